#!/usr/bin/env python3
"""Hostile controllers beside packets: 100 connections at once, in pairs of windows with and without them.

    hostile.py [pinned|shared|tls]...      all without names

`pinned`: the worker has a core alone, control and clients have the other one. `shared`: control runs on the worker's core, too, and
the clients on the other. `tls`: as `pinned`, and the connections are of TLS; 40 of the 100 clients begin handshakes all the time.

Clients: 20 connect and say nothing, 20 ask for all flows and never read, 20 ask for all flows and read, 20 send echo requests, 20
ask for the statistics of tables; all as fast as they can; with `tls`, 12 of each. The table has FLOWS flows (20,000). Windows have
SECONDS (4), and there are PAIRS (5) of them. Printed are the medians of the ratios, with the lowest and the highest: of received
packets, and of those in a second of the worker's running time, which the scheduler does not change; the most memory that the switch
had, the longest time of an operator's request, and the load of the machine before.

All runs at the highest priority, where that is permitted: the work of others would be measured instead. Needs two cores, Open
vSwitch's `ovs-ofctl`, `chrt`, and `openssl` for `tls`; FLOWLANE names another program than target/release/flowlane.
"""

import multiprocessing
import os
import selectors
import shutil
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from beside_ovs import Flowlane, capture, keys, ofctl, received, rss, shell

SECONDS = float(os.environ.get("SECONDS", "4"))
PAIRS = int(os.environ.get("PAIRS", "5"))
FLOWS = int(os.environ.get("FLOWS", "20000"))
PORT = 16653

HELLO = struct.pack(">BBHI", 4, 0, 8, 1)
ECHO = struct.pack(">BBHI", 4, 2, 1008, 2) + bytes(1000)
ALL_FLOWS = struct.pack(">BBHIHHI", 4, 18, 56, 3, 1, 0, 0) + struct.pack(">B3xII4xQQHH4x", 255, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0, 1, 4)
TABLES = struct.pack(">BBHIHHI", 4, 18, 16, 4, 3, 0, 0)
# What a client sends, whether it reads, and how many messages it sends before it waits for answers.
KINDS = {"silent": (None, False, 0), "deaf": (ALL_FLOWS, False, 1 << 30), "flows": (ALL_FLOWS, True, 4),
         "echo": (ECHO, True, 64), "tables": (TABLES, True, 16)}


class Client:
    def __init__(self, kind, context, poll):
        self.request, self.reads, self.ahead = KINDS[kind]
        self.context, self.poll, self.stream = context, poll, None
        self.connect()

    def connect(self):
        if self.stream:
            self.poll.unregister(self.stream)
            self.stream.close()
        self.output, self.head, self.skip, self.open = b"", b"", 0, 0
        self.stream = socket.create_connection(("127.0.0.1", PORT))
        if self.context and self.request:
            self.stream = self.context.wrap_socket(self.stream)
        self.stream.setblocking(False)
        if self.request:
            self.output = HELLO
        self.poll.register(self.stream, selectors.EVENT_READ | selectors.EVENT_WRITE if self.request else selectors.EVENT_READ, self)

    def turn(self, readable):
        try:
            if readable and (self.reads or not self.request):
                for _ in range(8):
                    data = self.stream.recv(1 << 18)
                    if not data:
                        return self.connect()
                    self.heard(data)
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        except OSError:
            return self.connect()
        try:
            while self.request and (self.output or self.open < self.ahead):
                if not self.output:
                    count = min(64, self.ahead - self.open)
                    self.output, self.open = self.request * count, self.open + count
                self.output = self.output[self.stream.send(self.output):]
        except (BlockingIOError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self.connect()

    def heard(self, data):
        """Counts the messages that end: each frees a place for a request, but the parts of an answer before its last."""
        at = 0
        while at < len(data):
            if self.skip:
                step = min(self.skip, len(data) - at)
                at, self.skip = at + step, self.skip - step
                continue
            take = min(12 - len(self.head), len(data) - at)
            self.head, at = self.head + data[at:at + take], at + take
            length = struct.unpack_from(">H", self.head, 2)[0] if len(self.head) >= 8 else 12
            if len(self.head) < min(12, length):
                continue
            # A short message may have been read beyond its end.
            rest, self.skip = self.head[length:], max(0, length - len(self.head))
            more = self.head[1] == 19 and self.head[11] & 1
            self.open -= 0 if more or self.head[1] == 0 else 1
            self.head = b""
            if rest:
                data, at = rest + data[at:], 0


def leave(core):
    """Runs on a core, in a session of its own, with the priority that others have."""
    os.setsid()
    os.nice(20)
    os.sched_setaffinity(0, {core})


def attack(kind, count, context, core):
    leave(core)
    poll = selectors.DefaultSelector()
    clients = [Client(kind, context() if context else None, poll) for _ in range(count)]
    while clients:
        for key, events in poll.select():
            key.data.turn(events & selectors.EVENT_READ)


def handshakes(count, core):
    """Handshakes without a certificate, which the switch refuses after its own signature."""
    leave(core)
    while True:
        half = [socket.create_connection(("127.0.0.1", PORT)) for _ in range(count)]
        for stream in half:
            try:
                tls = anonymous().wrap_socket(stream)
                tls.recv(1)
                tls.close()
            except OSError:
                stream.close()


def anonymous():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class Hostile(Flowlane):
    tls = False

    def words(self, port, flows=None):
        words = super().words(port, flows)
        file = self.folder / "switch.toml"
        scheme = "pssl" if self.tls else "ptcp"
        text = file.read_text().replace('controllers = [', f'controllers = ["{scheme}:{PORT}:127.0.0.1", ')
        if self.tls:
            shell("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test", "-addext",
                  "basicConstraints=critical,CA:FALSE", "-keyout", str(self.folder / "key"), "-out", str(self.folder / "own"))
            (self.folder / "ca").write_text((self.folder / "own").read_text())
            tls = '[openflow.tls]\nprivate_key = "key"\ncertificate = "own"\nca_certificate = "ca"\n'
            text = text.replace("[[port]]", tls + "[[port]]", 1)
        file.write_text(text)
        return words


def peak(switch, seconds):
    """The most memory that the switch has in this time."""
    most, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        most = max(most, rss(switch.process()))
        time.sleep(0.05)
    return most


def worker_seconds(switch):
    """The seconds for which the worker, the first thread, has run and for which it has waited for a processor."""
    words = Path(f"/proc/{switch.process()}/task/{switch.process()}/schedstat").read_text().split()
    return [int(word) / 1e9 for word in words[:2]]


def window(switch):
    """Packets a second, packets a second of the worker's running time, the most memory, and the longest time of an operator's
    request."""
    samples, most = [], 0
    for n in range(2):
        begun = time.perf_counter()
        count = received(switch)
        ended = time.perf_counter()
        samples.append((count, (begun + ended) / 2, *worker_seconds(switch), ended - begun))
        if n == 0:
            most = peak(switch, SECONDS)
    packets, wall, ran, waited = (after - before for before, after in zip(samples[0][:4], samples[1][:4]))
    if "VERBOSE" in os.environ:
        print(f"  {packets / wall / 1e6:.2f} M/s, {packets / ran / 1e6:.2f} M/s of running time; waited {100 * waited / wall:.0f} %")
    return packets / wall, packets / ran, most, max(sample[4] for sample in samples)


def run(mode):
    tls, load = mode == "tls", os.getloadavg()[0]
    folder = Path(tempfile.mkdtemp())
    capture(folder / "in.pcap", keys(1000))
    (folder / "flows").write_text("".join(
        f"table=1,priority=100,udp,nw_src=10.2.{n >> 8 & 255}.{n & 255},tp_dst={(n >> 16) + 1} actions=set_field:{n}->reg1,output:2\n"
        for n in range(FLOWS)))
    switch = Hostile()
    switch.tls = tls
    switch.begin(f"pcap:{folder}/in.pcap,loop=0")
    ofctl(switch, "add-flow", "priority=0,actions=output:2")
    ofctl(switch, "add-flows", str(folder / "flows"))
    if mode != "shared":
        # No other thread of the switch is there: the work of others alone is kept away.
        subprocess.run(["chrt", "--rr", "-p", "1", str(switch.process())], capture_output=True)
    else:
        # All threads but the clients' may run where the worker runs.
        shell("taskset", "-a", "-p", "-c", "1", str(switch.process()))
    time.sleep(1)
    context = None
    if tls:
        def context():
            own = anonymous()
            own.load_cert_chain(str(switch.folder / "own"), str(switch.folder / "key"))
            return own
    pairs, before = [], rss(switch.process())
    for _ in range(PAIRS):
        undisturbed = window(switch)
        clients = [multiprocessing.Process(target=attack, args=(kind, 20 - 8 * tls, context, 0), daemon=True) for kind in KINDS]
        if tls:
            clients.append(multiprocessing.Process(target=handshakes, args=(40, 0), daemon=True))
        [client.start() for client in clients]
        time.sleep(2)
        pairs.append((undisturbed, window(switch)))
        [client.kill() for client in clients]
        [client.join() for client in clients]
        time.sleep(1.5)
    wall, running = ([100 * after[n] / before[n] for before, after in pairs] for n in range(2))
    alone = statistics.median(undisturbed[0] for undisturbed, _ in pairs)
    memory, slowest = (max(disturbed[n] for _, disturbed in pairs) for n in (2, 3))
    print(f"{mode}: {statistics.median(wall):.1f} % of {alone / 1e6:.2f} M packets/s with 100 hostile connections ({min(wall):.1f} to "
          f"{max(wall):.1f} %), a second of the worker's running time {statistics.median(running):.1f} % ({min(running):.1f} to "
          f"{max(running):.1f} %); memory {before / 1e6:.0f} MB, at most {memory / 1e6:.0f} MB; an operator's request {slowest:.2f} s "
          f"at most; load before {load:.1f}", flush=True)
    switch.stop()
    shutil.rmtree(folder)


if __name__ == "__main__":
    try:
        os.nice(-20)
        # Where Linux divides time among sessions first.
        if os.path.exists("/proc/self/autogroup"):
            Path("/proc/self/autogroup").write_text("-20")
    except OSError:
        print("without priority: the work of others is measured, too")
    for mode in sys.argv[1:] or ["pinned", "shared", "tls"]:
        run(mode)
