"""Tests of captures, with hand-made frames."""

import gzip
import io
import socket
import struct
import warnings

import flowlane
import polars as pl
import pyarrow as pa
import pytest


def udp(source, destination, ports, payload=b"", tag=None):
    body = struct.pack("!HHHH", *ports, 8 + len(payload), 0) + payload
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 1, 0, 64, 17, 0)
    ip += socket.inet_aton(source) + socket.inet_aton(destination)
    ether = bytes.fromhex("020000000002020000000001") + (struct.pack("!HH", 0x8100, tag) if tag else b"")
    return ether + struct.pack("!H", 0x0800) + ip + body


def tcp6(ports, flags):
    body = struct.pack("!HHIIHHHH", *ports, 1, 2, 0x5000 | flags, 9, 0, 0)
    ip = struct.pack("!IHBB", 0x60000000, len(body), 6, 63)
    ip += socket.inet_pton(socket.AF_INET6, "2001:db8::1") + socket.inet_pton(socket.AF_INET6, "2001:db8::2")
    return bytes(12) + struct.pack("!H", 0x86DD) + ip + body


ARP = bytes(12) + bytes.fromhex("0806" + "0001080006040001" + "020000000001" + "0a000001" + "000000000000" + "0a000002")
FRAMES = [udp("10.0.0.1", "10.0.0.2", (1000, 53), b"x" * 100), udp("10.0.0.3", "10.0.0.4", (7, 8), tag=0x2005)]
FRAMES += [tcp6((80, 443), 0x12), ARP, b"short"]


def pcap(frames, snap_len=65535):
    file = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, snap_len, 1)]
    for number, frame in enumerate(frames):
        file += [struct.pack("<IIII", 1_700_000_000, number, min(len(frame), snap_len), len(frame)), frame[:snap_len]]
    return b"".join(file)


def read(path, *arguments, **named):
    return pa.RecordBatchReader.from_stream(flowlane.read_capture(path, *arguments, **named)).read_all()


@pytest.fixture
def path(tmp_path):
    (tmp_path / "t.pcap").write_bytes(pcap(FRAMES))
    return tmp_path / "t.pcap"


def test_a_packet_is_a_row(path):
    table = read(path)
    assert table.num_rows == 5 and table.schema.field("time").type == pa.timestamp("ns", "UTC")
    first, tagged, v6, arp, short = table.to_pylist()
    assert first["time"].value == 1_700_000_000_000_000_000 and tagged["time"].value % 10 == 1
    found = {name: first[name] for name in ["nw_src", "nw_dst", "nw_proto", "nw_ttl", "tp_src", "tp_dst", "dl_type"]}
    assert list(found.values()) == [0x0A000001, 0x0A000002, 17, 64, 1000, 53, 0x0800]
    assert (first["dl_src"], first["dl_dst"]) == (bytes.fromhex("020000000001"), bytes.fromhex("020000000002"))
    assert (first["captured"], first["length"], first["dl_vlan"], first["ipv6_src"]) == (142, 142, None, None)
    assert (tagged["dl_vlan"], tagged["tp_src"], first["tcp_flags"]) == (5, 7, None)
    assert v6["ipv6_dst"] == socket.inet_pton(socket.AF_INET6, "2001:db8::2")
    assert (v6["tp_dst"], v6["tcp_flags"], v6["nw_src"], v6["nw_ttl"]) == (443, 0x12, None, 63)
    assert (arp["arp_op"], arp["nw_src"], arp["tp_src"], arp["fault"]) == (1, None, None, None)
    assert (short["fault"], short["dl_type"], short["captured"]) == ("ethernet-truncated", None, 5)


def test_columns_are_chosen(path):
    table = read(path, ["frame", "arp_spa", "vlan_tci"])
    assert table["frame"].to_pylist() == FRAMES
    assert table["arp_spa"].to_pylist() == [None, None, None, 0x0A000001, None]
    assert table["vlan_tci"].to_pylist() == [None, 0x3005, None, None, None]
    with pytest.raises(flowlane.Error, match="no field `sport`.*columns other than fields are packet, time, captured"):
        flowlane.read_capture(path, ["sport"])


def test_snap_lengths_compression_and_batches(tmp_path):
    whole = pcap(FRAMES * 3000)
    (tmp_path / "w.pcap").write_bytes(whole)
    (tmp_path / "w.pcap.gz").write_bytes(gzip.compress(whole))
    (tmp_path / "c.pcap").write_bytes(pcap(FRAMES * 3000, 60))
    table = read(tmp_path / "w.pcap")
    assert read(tmp_path / "w.pcap.gz") == table
    cut = read(tmp_path / "c.pcap")
    same = ["time", "length", "nw_src", "nw_dst", "tp_src", "tp_dst", "ipv6_dst", "dl_vlan"]
    assert cut.select(same) == table.select(same)
    assert cut["fault"].to_pylist()[:5] == [None, None, "not-captured", None, "ethernet-truncated"]
    batches = pa.RecordBatchReader.from_stream(flowlane.read_capture(tmp_path / "w.pcap", batch_size=100))
    assert pa.Table.from_batches(list(batches)) == table
    assert len(pl.DataFrame(flowlane.read_capture(tmp_path / "w.pcap"))) == 15000


def test_captures_are_classified(path):
    rules = "udp,nw_dst=10.0.0.2,tp_dst=53,actions=drop\ntcp6,tp_dst=443,actions=drop\narp,actions=drop"
    acl = flowlane.Classifier.from_rules(rules)
    assert acl.classify(flowlane.read_capture(path)).to_pylist() == [0, None, 1, 2, None]


def test_tags_and_ports_are_in_the_usual_columns(path):
    for rules, wanted in [
        ("dl_vlan=5,actions=drop", [None, 0, None, None, None]),
        ("dl_vlan=0xffff,actions=drop", [0, None, 0, 0, 0]),
        ("in_port=7,udp,actions=drop", [0, 0, None, None, None]),
    ]:
        acl = flowlane.Classifier.from_rules(rules)
        assert acl.classify(flowlane.read_capture(path, in_port=7)).to_pylist() == wanted, rules
        assert acl.classify(flowlane.read_capture(path, acl.fields, in_port=7)).to_pylist() == wanted, rules


def test_frames_end_a_batch_before_they_fill_memory(tmp_path):
    with gzip.open(tmp_path / "l.pcap.gz", "wb", 1) as file:
        file.write(pcap([]))
        for _ in range(1200):
            file.write(struct.pack("<IIII", 0, 0, 1 << 18, 1 << 18) + bytes(1 << 18))
    stream = pa.RecordBatchReader.from_stream(flowlane.read_capture(tmp_path / "l.pcap.gz", ["frame"]))
    sizes = [batch.nbytes for batch in stream]
    assert len(sizes) == 2 and max(sizes) < 300 << 20
    with pytest.raises(flowlane.Error, match="no columns given"):
        flowlane.read_capture(tmp_path / "l.pcap.gz", [])


def test_of_a_damaged_capture_comes_what_is_before_the_damage(tmp_path):
    file = pcap(FRAMES)
    (tmp_path / "t.pcap").write_bytes(file[:-3])
    with pytest.warns(RuntimeWarning, match=r"t.pcap: the file ends within record 4 \(byte "):
        assert read(tmp_path / "t.pcap").num_rows == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream = pa.RecordBatchReader.from_stream(flowlane.read_capture(tmp_path / "t.pcap"))
        # Packets before the damage are returned.
        assert stream.read_next_batch().num_rows == 4
        with pytest.raises(Exception, match="record 4"):
            stream.read_next_batch()
    (tmp_path / "no.pcap").write_bytes(b"GIF89a")
    with pytest.raises(flowlane.Error, match="no.pcap: not a pcap, pcapng or snoop file"):
        flowlane.read_capture(tmp_path / "no.pcap")
    with pytest.raises(FileNotFoundError, match="none.pcap"):
        flowlane.read_capture(tmp_path / "none.pcap")


def test_parts_of_a_capture_are_read_apart(tmp_path):
    frames = [FRAMES[i % len(FRAMES)] for i in range(20_000)]
    path = tmp_path / "p.pcap"
    path.write_bytes(pcap(frames))
    whole = read(path, ["packet", "length", "nw_src"])
    parts = flowlane.split_capture(path, 300_000)
    assert len(parts) > 2 and sum(packets for _, _, packets in parts) == len(frames)
    apart = [read(path, ["packet", "length", "nw_src"], split=part) for part in parts]
    assert pa.concat_tables(apart).equals(whole)
    with pytest.raises(FileNotFoundError, match="none.pcap"):
        flowlane.split_capture(tmp_path / "none.pcap")
    damaged = tmp_path / "d.pcap"
    damaged.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(RuntimeWarning, match="d.pcap: the file ends within record 19999"):
        parts = flowlane.split_capture(damaged, 300_000)
    assert sum(packets for _, _, packets in parts) == len(frames) - 1


def test_objects_are_read(tmp_path):
    whole = pcap([bytes([i % 7]) * (60 + i % 1000) for i in range(5000)])
    (tmp_path / "o.pcap").write_bytes(whole)
    wanted = read(tmp_path / "o.pcap")
    for bytes_of in [whole, gzip.compress(whole)]:
        assert read(io.BytesIO(bytes_of)).equals(wanted)
        behind = io.BytesIO(b"before" + bytes_of)
        behind.seek(6)
        assert read(behind).equals(wanted)
    with open(tmp_path / "o.pcap", "rb") as file:
        assert read(file).equals(wanted)
        assert not file.closed
    with pytest.warns(RuntimeWarning, match="<BytesIO>: the file ends within record 4999"):
        assert len(read(io.BytesIO(whole[:-1]))) == 4999


class Failing:
    """A file whose reads fail from some byte on."""

    name = "far.pcap"

    def __init__(self, bytes_of, fails_at, gives):
        self.file, self.fails_at, self.gives = io.BytesIO(bytes_of), fails_at, gives

    def read(self, size):
        if self.file.tell() + size > self.fails_at:
            return self.gives()
        return self.file.read(size)


def fails():
    raise ConnectionError("the other side is gone")


def test_what_an_object_raises_is_no_damage():
    whole = pcap([bytes(1000)] * 5000)
    for bytes_of in [whole, gzip.compress(whole, 0)]:
        with pytest.raises(OSError, match="far.pcap: ConnectionError: the other side is gone"):
            read(Failing(bytes_of, 3_000_000, fails))
    with pytest.raises(ConnectionError, match="the other side is gone"):
        flowlane.read_capture(Failing(whole, 0, fails))
    with pytest.raises(TypeError, match="did not return bytes"):
        flowlane.read_capture(io.StringIO("text"))
    with pytest.raises(OSError, match="returned more bytes than requested"):
        read(Failing(whole, 3_000_000, lambda: bytes(1 << 20)))
    with pytest.raises(flowlane.Error, match="far.pcap: split requires a path"):
        flowlane.read_capture(Failing(whole, 1 << 40, fails), split=(24, 0, 1))


def test_packets_are_taken_batch_by_batch_by_pyarrow(tmp_path):
    (tmp_path / "b.pcap").write_bytes(pcap(FRAMES * 100))
    packets = flowlane.read_capture(tmp_path / "b.pcap", ["length", "tp_dst"], batch_size=100)
    assert packets.schema.names == ["length", "tp_dst"]
    assert sum(batch.num_rows for batch in packets) == 500
    packets = flowlane.read_capture(tmp_path / "b.pcap", ["length"])
    assert next(iter(packets)).num_rows + packets.read_all().num_rows == 500
    packets = flowlane.read_capture(tmp_path / "b.pcap", ["length"])
    assert packets.schema.names == ["length"] and pa.table(packets).num_rows == 500
