"""Captures and rules for engine tests, with the expected results."""

import socket
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import flowlane
import pyarrow as pa
from pyarrow import dataset

EXAMPLES = Path(__file__).parents[1] / "examples"

RULES = """
priority=9,udp,nw_src=10.0.0.0/24,tp_dst=53,actions=drop
priority=8,tcp6,ipv6_dst=2001:db8::/32,actions=output:1
priority=7,ip,nw_dst=192.168.0.0/16,actions=output:2
priority=6,udp,tp_src=1000/0xff00,actions=output:3
"""


def _frame(random):
    ports = struct.pack("!HH", 1000 + random % 700, (53, 443, 80, 53)[random >> 3 & 3])
    ether = bytes.fromhex("020000000002020000000001")
    if random % 5 == 0:
        ip = struct.pack("!IHBB", 0x60000000, 20, 6, 63) + socket.inet_pton(socket.AF_INET6, "2001:db8::1")
        ip += socket.inet_pton(socket.AF_INET6, ("2001:db8::2", "2001:db9::2")[random >> 5 & 1])
        return ether + struct.pack("!H", 0x86DD) + ip + ports + struct.pack("!IIHHHH", 1, 2, 0x5012, 9, 0, 0)
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 28, 1, 0, 64, 17, 0)
    ip += struct.pack("!II", 0x0A000000 | random >> 4 & 0x3FF, (0xC0A80001, 0xFF000001)[random >> 6 & 1])
    return ether + struct.pack("!H", 0x0800) + ip + ports + struct.pack("!HH", 8, 0)


def pcap(packets, seed=0, padding=0):
    """Builds a capture of packets with distinct times and trailing bytes."""
    parts = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)]
    for number in range(packets):
        frame = _frame(zlib.crc32(struct.pack("<II", seed, number))) + bytes(padding)
        parts.append(struct.pack("<IIII", 1_700_000_000 + seed, number * 1001, len(frame), len(frame)) + frame)
    return b"".join(parts)


def write(folder, sizes, padding=0):
    """Writes a capture of each size into a directory."""
    folder.mkdir(exist_ok=True)
    for number, packets in enumerate(sizes):
        (folder / f"{number}.pcap").write_bytes(pcap(packets, number, padding))
    return folder


def expected(folder, rules=RULES):
    """Returns (nanoseconds, rule) of each packet, sorted, computed without an engine."""
    acl, rows = flowlane.Classifier.from_rules(rules), []
    for path in folder.glob("*.pcap"):
        packets = pa.RecordBatchReader.from_stream(flowlane.read_capture(path)).read_all()
        rows += zip(packets["time"].cast(pa.int64()).to_pylist(), acl.classify(packets).to_pylist())
    assert {rule for _, rule in rows} == {0, 1, 2, 3, None}
    return sorted(rows)


def found_in(out):
    """Returns (nanoseconds, rule) of each packet, sorted, from Parquet partitioned by rule."""
    kind = dataset.partitioning(pa.schema([("rule", pa.int32())]), flavor="hive")
    table = dataset.dataset(out, format="parquet", partitioning=kind).to_table(["time", "rule"])
    return sorted(zip(table["time"].cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).to_pylist(), table["rule"].to_pylist()))


def run_example(name, *arguments):
    """Runs an example as its documentation describes."""
    done = subprocess.run([sys.executable, EXAMPLES / name, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
