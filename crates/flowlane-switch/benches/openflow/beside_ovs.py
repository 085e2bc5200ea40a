#!/usr/bin/env python3
"""The speed of rules that controllers send, in Flowlane and in Open vSwitch with DPDK, on the same machine.

    beside_ovs.py [NAME ...]      tables bundle conjunctions; all where none is named

tables        packets through 47 tables: the first packet of each flow, and flows seen before
bundle        57,580 rules in one bundle of `ovs-ofctl` while packets pass: seconds, packets kept, memory a rule
conjunctions  3,321 parts of conjunctions beside as many rules without

Needs root, two cores that do nothing else, 1,500 huge pages, Debian's openvswitch-switch-dpdk with the null and pcap
drivers, and target/release/flowlane (FLOWLANE names another). The switch's worker is on core 1, all else on core 0.
"""
import atexit, json, os, random, re, shutil, struct, subprocess, sys, tempfile, time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
FLOWLANE = os.environ.get("FLOWLANE", str(ROOT / "target/release/flowlane"))
PAUSE = float(os.environ.get("SECONDS", "3"))


def shell(*words, **more):
    done = subprocess.run(words, capture_output=True, text=True, **more)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stderr}")
    return done.stdout


def rss(process):
    return int(re.search(r"VmRSS:\s*(\d+)", Path(f"/proc/{process}/status").read_text())[1]) * 1024


def capture(path, keys):
    """UDP packets of 64 bytes: (source, destination, source port, destination port)."""
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for source, destination, from_port, to_port in keys:
            udp = struct.pack(">HHHH", from_port, to_port, 26, 0) + bytes(18)
            ip = struct.pack(">BBHHHBBHII", 0x45, 0, 46, 0, 0, 64, 17, 0, source, destination)
            total = sum(struct.unpack(">10H", ip))
            total = (total & 0xFFFF) + (total >> 16)
            ip = ip[:10] + struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF) + ip[12:]
            frame = bytes.fromhex("020000000002020000000001" "0800") + ip + udp
            file.write(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)


class Ovs:
    name = "Open vSwitch"

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp())
        folder = str(self.folder)
        self.environment = dict(os.environ, OVS_RUNDIR=folder, OVS_LOGDIR=folder, OVS_DBDIR=folder,
                                OVS_SYSCONFDIR=folder)
        shell("ovsdb-tool", "create", f"{folder}/conf.db", "/usr/share/openvswitch/vswitch.ovsschema")
        self.processes = [self.start("ovsdb-server", f"{folder}/conf.db", f"--remote=punix:{folder}/db.sock",
                                     f"--unixctl={folder}/db.ctl")]
        self.vsctl("--no-wait", "init")
        self.vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:dpdk-init=true",
                   "other_config:dpdk-socket-mem=1500", "other_config:dpdk-lcore-mask=0x1",
                   "other_config:pmd-cpu-mask=0x2", "other_config:pmd-perf-metrics=true",
                   "other_config:dpdk-extra=--in-memory --no-pci")
        self.processes.append(self.start("/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk",
                                         f"unix:{folder}/db.sock", f"--unixctl={folder}/vs.ctl"))
        self.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail-mode=secure")
        self.vsctl("add-port", "br0", "p2", "--", "set", "interface", "p2", "type=dpdk",
                   "options:dpdk-devargs=net_null0,no-rx=1", "ofport_request=2")
        self.bridge = f"{folder}/br0.mgmt"

    def start(self, *words):
        output = open(self.folder / (Path(words[0]).name + ".out"), "w")
        process = subprocess.Popen(words, env=self.environment, stdout=output, stderr=output)
        atexit.register(process.kill)
        return process

    def vsctl(self, *words):
        shell("ovs-vsctl", "--retry", "--timeout=60", f"--db=unix:{self.folder}/db.sock", *words)

    def control(self, *words):
        return shell("ovs-appctl", "-t", f"{self.folder}/vs.ctl", *words)

    def process(self):
        return self.processes[1].pid

    def packets(self, path):
        """Lets packets come, again and again from a capture."""
        self.control("dpif-netdev/pmd-stats-clear")
        self.vsctl("add-port", "br0", "p1", "--", "set", "interface", "p1", "type=dpdk",
                   f"options:dpdk-devargs=net_pcap0,rx_pcap={path},infinite_rx=1", "ofport_request=1")

    def first_cycles(self):
        """Cycles of a packet that had to go by the tables, since packets came; cycles a second."""
        text = self.control("dpif-netdev/pmd-perf-show")
        hertz = int(re.search(r"Used TSC cycles: +(\d+)", text)[1])
        hertz /= float(re.search(r"Measurement duration: ([0-9.]+)", text)[1])
        micro = re.search(r"Upcalls: +\d+ +\(.*?([0-9.]+) us/upcall", text)[1]
        return float(micro) * hertz / 1e6, hertz

    def received(self):
        text = shell("ovs-ofctl", "dump-ports", self.bridge, "1")
        return int(re.search(r"rx pkts=(\d+)", text)[1])

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
            process.wait()
        shutil.rmtree(self.folder)


class Flowlane:
    name = "Flowlane"

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp())
        self.bridge = f"{self.folder}/br0.mgmt"
        self.running = None

    def words(self, port, flows=None):
        """Writes the configuration; gives the command's words."""
        tables = ""
        for table in range(64):
            tables += f"[[table]]\nnumber = {table}\nrules_max = 200000\n"
            if flows:
                lines = [line for line in flows if line.startswith(f"table={table},")]
                (self.folder / f"{table}.flows").write_text("\n".join(lines) + "\n")
                tables += f'rules_file = "{table}.flows"\n'
        (self.folder / "switch.toml").write_text(
            f'[openflow]\nbridge = "br0"\ncontrollers = ["punix:{self.bridge}"]\n'
            f'[[port]]\nnumber = 1\nname = "p1"\nopen = "{port}"\n'
            '[[port]]\nnumber = 2\nname = "p2"\nopen = "null"\n' + tables)
        return [FLOWLANE, "switch", "run", str(self.folder / "switch.toml"), "--socket", f"{self.folder}/control"]

    def cycles(self, flows, path, packets, loop):
        """Cycles a packet, on average over a run of `packets`."""
        words = ["taskset", "-c", "1"] + self.words(f"pcap:{path},loop={loop}", flows)
        counted = json.loads(shell(*words, "--packets", str(packets), "--json", env=self.environment()))
        return sum(stage["cycles_per_packet"] * stage["packets"] for stage in counted["stages"]) / packets

    def environment(self):
        return dict(os.environ, XDG_RUNTIME_DIR=str(self.folder))

    def begin(self, port):
        output = open(self.folder / "switch.out", "w")
        self.running = subprocess.Popen(["taskset", "-c", "0", *self.words(port)], env=self.environment(), stdout=output, stderr=output)
        atexit.register(self.running.kill)
        until = time.monotonic() + 10
        while not os.path.exists(self.bridge):
            if time.monotonic() > until or self.running.poll() is not None:
                sys.exit((self.folder / "switch.out").read_text())
            time.sleep(0.05)
        # The worker is the first thread.
        shell("taskset", "-p", "-c", "1", str(self.running.pid))

    def process(self):
        return self.running.pid

    def stop(self):
        if self.running:
            self.running.terminate()
            self.running.wait()
        shutil.rmtree(self.folder)


def ofctl(switch, *words):
    return shell("ovs-ofctl", *words[:1], f"unix:{switch.bridge}", *words[1:])


def received(switch):
    text = ofctl(switch, "dump-ports", "1")
    return int(re.search(r"rx pkts=(\d+)", text)[1])


def rate(switch, seconds):
    first, start = received(switch), time.perf_counter()
    time.sleep(seconds)
    return (received(switch) - first) / (time.perf_counter() - start)


def tables_flows():
    """47 tables of 100 rules in a few masks each; table 23 looks at the whole source port."""
    flows = []
    for t in range(47):
        then = f"resubmit(,{t + 1})" if t < 46 else "output:2"
        for n in range(50):
            flows.append(f"table={t},priority=100,udp,metadata={n % 2},nw_dst=10.0.{(n * 7 + t) % 64}.0/24 "
                         f"actions=set_field:{n}->reg{t % 8},{then}")
        for n in range(25):
            flows.append(f"table={t},priority=90,udp,metadata=0,nw_src=10.1.{(n * 5 + t) % 64}.0/25 "
                         f"actions=set_field:{n}->reg{(t + 3) % 8},{then}")
        for n in range(24):
            flows.append(f"table={t},priority=80,udp,reg{t % 8}={n},tp_dst={(n * 3 + t) % 64} actions={then}")
        if t == 23:
            flows.append(f"table={t},priority=120,udp actions=move:NXM_OF_UDP_SRC[]->NXM_NX_REG9[0..15],{then}")
        else:
            flows.append(f"table={t},priority=0 actions={then}")
    return flows


def keys(count):
    draw = random.Random(7)
    return [(0x0A010000 | draw.randrange(1 << 14), 0x0A000000 | draw.randrange(1 << 14),
             draw.randrange(1 << 16), draw.randrange(64)) for _ in range(count)]


def tables():
    flows = tables_flows()
    folder = Path(tempfile.mkdtemp())
    for name, count in (("40,000 flows", 40_000), ("5,000 flows", 5_000), ("100 flows", 100)):
        path = folder / "in.pcap"
        # Open vSwitch's driver takes at least some hundred packets.
        capture(path, keys(count) * max(1, 1000 // count))
        ovs = Ovs()
        (ovs.folder / "flows").write_text("\n".join(flows) + "\n")
        ofctl(ovs, "add-flows", f"{ovs.folder}/flows")
        ovs.packets(path)
        time.sleep(PAUSE)
        first, hertz = ovs.first_cycles()
        seen = hertz / rate(ovs, PAUSE)
        ovs.stop()
        ours = Flowlane()
        ours_first = ours.cycles(flows, path, count, 1)
        ours.stop()
        # Without what comes first: both switches take seconds to learn which flows there are.
        sums = []
        for packets in (8_000_000, 16_000_000):
            ours = Flowlane()
            sums.append(packets * ours.cycles(flows, path, packets, 0))
            ours.stop()
        ours_seen = (sums[1] - sums[0]) / 8_000_000
        print(f"47 tables, {name}: first packet {first:.0f} cycles, Flowlane {ours_first:.0f}, {first / ours_first:.1f} ×; "
              f"seen before {seen:.0f}, Flowlane {ours_seen:.0f}, {seen / ours_seen:.1f} ×")
    shutil.rmtree(folder)


def bundle_flows(count=57_580):
    """As OVN's: 50 tables, nearly all rules of a table in a few masks, with metadata."""
    flows = []
    for n in range(count):
        t, m = n % 50, n // 50
        kind = m % 4
        if kind == 0:
            match = f"priority=100,metadata={m % 97},reg14={m},dl_dst=02:00:00:{t:02x}:{m >> 8:02x}:{m & 255:02x}"
        elif kind == 1:
            match = f"priority=90,ip,metadata={m % 97},nw_dst=10.{t}.{m >> 8}.{m & 255}"
        elif kind == 2:
            match = f"priority=80,tcp,metadata={m % 97},reg0={m}/0xfff,tp_dst={m}"
        else:
            match = f"priority=70,ipv6,metadata={m % 97},ipv6_dst=fd00::{m:x}"
        flows.append(f"table={t},{match} actions=set_field:{m}->reg15,resubmit(,{t + 1})")
    return flows


def bundle():
    flows = bundle_flows()
    folder = Path(tempfile.mkdtemp())
    capture(folder / "in.pcap", keys(1000))
    (folder / "flows").write_text("\n".join(flows) + "\n")
    start = time.perf_counter()
    shell("ovs-ofctl", "parse-flows", str(folder / "flows"))
    print(f"ovs-ofctl alone parses and prints {len(flows)} rules in {time.perf_counter() - start:.2f} s")
    for kind in (Ovs, Flowlane):
        switch = kind()
        if kind is Ovs:
            switch.packets(folder / "in.pcap")
        else:
            switch.begin(f"pcap:{folder}/in.pcap,loop=0")
        ofctl(switch, "add-flow", "table=60,priority=0,actions=drop")
        ofctl(switch, "add-flow", "priority=0,actions=output:2")
        time.sleep(1)
        usual = rate(switch, PAUSE)
        memory = rss(switch.process())
        before, start = received(switch), time.perf_counter()
        shell("ovs-ofctl", "--bundle", "add-flows", f"unix:{switch.bridge}", f"{folder}/flows")
        took = time.perf_counter() - start
        kept = (received(switch) - before) / (time.perf_counter() - start) / usual
        count = len(re.findall("cookie", ofctl(switch, "dump-flows")))
        memory = rss(switch.process()) - memory
        after = rate(switch, PAUSE)
        print(f"bundle, {switch.name}: {took:.2f} s with the client, {100 * kept:.0f} % of {usual / 1e6:.2f} M packets/s "
              f"meanwhile, {100 * after / usual:.0f} % after; {count} rules, {memory / len(flows):.0f} bytes a rule")
        switch.stop()
    shutil.rmtree(folder)


def conjunctions():
    """3,321 parts of 81 conjunctions, about half of them addresses and half ports: as network policies of 40 pods give them, all
    of one priority, with many conjunctions in a rule; and each with a priority of its own. Beside as many rules without."""
    draw = random.Random(3)
    addresses = [f"10.1.{n % 64}.{n}" for n in range(128)]
    parts = []
    for c in range(1, 82):
        parts += [(f"udp,nw_src={draw.choice(addresses)}", c, 1) for _ in range(21)]
        parts += [(f"udp,tp_dst={draw.randrange(64)}", c, 2) for _ in range(20)]
    own = [f"table=0,priority={2000 + c},{match} actions=conjunction({c},{k}/2)" for match, c, k in parts]
    rules = {}
    for match, c, k in parts:
        rules.setdefault(match, []).append(f"conjunction({c},{k}/2)")
    shared = [f"table=0,priority=2000,{match} actions={','.join(actions)}" for match, actions in rules.items()]
    ids = [f"table=0,priority=2000,udp,conj_id={c} actions=output:2" for c in range(1, 82)]
    plain = [f"table=0,priority={2000 + n // 41},udp,nw_src={draw.choice(addresses)},tp_dst={draw.randrange(64)} "
             "actions=output:2" for n in range(len(parts))]
    rest = ["table=0,priority=0 actions=output:2"]
    packets = [(int.from_bytes(bytes(map(int, draw.choice(addresses).split("."))), "big"), 0x0A000001,
                draw.randrange(1 << 16), draw.randrange(64)) for _ in range(40_000)]
    folder = Path(tempfile.mkdtemp())
    capture(folder / "in.pcap", packets)
    for name, count, loop in (("first packets", 40_000, 1), ("packets seen before", 4_000_000, 0)):
        figures = []
        for flows in (shared + ids, own + ids, plain):
            switch = Flowlane()
            figures.append(switch.cycles(flows + rest, folder / "in.pcap", count, loop))
            switch.stop()
        print(f"{len(parts)} parts of conjunctions, {name}: {figures[0]:.0f} cycles a packet; with priorities of their own "
              f"{figures[1]:.0f}; as many plain rules {figures[2]:.0f}: {figures[0] / figures[2]:.2f} and {figures[1] / figures[2]:.2f} ×")
    shutil.rmtree(folder)


if __name__ == "__main__":
    for workload in (tables, bundle, conjunctions):
        if len(sys.argv) == 1 or workload.__name__ in sys.argv[1:]:
            workload()
