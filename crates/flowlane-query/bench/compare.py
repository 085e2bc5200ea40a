#!/usr/bin/env python3
"""Compares `flowlane query` with tshark, DuckDB and polars: counts packets by their matching ClassBench rule.

    compare.py FLOWLANE RULES CAPTURE [SECONDS]

The peers read the packets from a Parquet file, and the rules as a join or as one CASE; tshark prints fields only, without
classification. Queries that take longer than SECONDS (60) on a share of the packets are reported as such. Rates are in packets
per second. Requires tshark, and DuckDB and polars in this Python.
"""

import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time


def rules_of(path):
    """Returns ranges of source, destination and ports, and protocol or None, in the order of the rules."""
    pattern = re.compile(r"@(\S+)/(\d+)\s+(\S+)/(\d+)\s+(\d+) : (\d+)\s+(\d+) : (\d+)\s+0x([0-9a-fA-F]+)/0x([0-9a-fA-F]+)")
    rules = []
    for line in open(path):
        found = pattern.match(line)
        if found is None:
            continue
        ranges = []
        for address, length in [found.group(1, 2), found.group(3, 4)]:
            value = int.from_bytes(map(int, address.split(".")), "big")
            ones = (1 << 32 - int(length)) - 1
            ranges.append((value & ~ones, value | ones))
        ranges += [tuple(map(int, found.group(5, 6))), tuple(map(int, found.group(7, 8)))]
        protocol = int(found.group(9), 16) if found.group(10).lower() == "ff" else None
        rules.append((ranges, protocol))
    return rules


COLUMNS = ["nw_src", "nw_dst", "tp_src", "tp_dst"]


def condition(rule):
    ranges, protocol = rule
    full = [(1 << 32) - 1, (1 << 32) - 1, 65535, 65535]
    asked = [
        f"{name} = {low}" if low == high else f"{name} BETWEEN {low} AND {high}"
        for name, (low, high), most in zip(COLUMNS, ranges, full)
        if (low, high) != (0, most)
    ]
    if protocol is not None:
        asked.append(f"nw_proto = {protocol}")
    return " AND ".join(asked) or "true"


def duckdb_case(rules, parquet, packets):
    import duckdb

    case = " ".join(f"WHEN {condition(rule)} THEN {number}" for number, rule in enumerate(rules))
    source = f"(SELECT * FROM '{parquet}' LIMIT {packets})"
    sql = f"SELECT rule, count(*) FROM (SELECT CASE {case} END AS rule FROM {source}) GROUP BY 1"
    connection = duckdb.connect()
    connection.execute("SET max_expression_depth TO 100000")
    return connection.sql(sql).fetchall()


def duckdb_join(rules, parquet, packets):
    import duckdb
    import pyarrow as pa

    names = [f"{name}_{end}" for name in COLUMNS for end in ("low", "high")]
    values = zip(*[[bound for pair in ranges for bound in pair] for ranges, _ in rules])
    table = pa.table(dict(zip(names, map(list, values)), rule=list(range(len(rules))), proto=[p for _, p in rules]))
    connection = duckdb.connect()
    connection.register("rules", table)
    between = " AND ".join(f"{name} BETWEEN {name}_low AND {name}_high" for name in COLUMNS)
    source = f"(SELECT packet, {', '.join(COLUMNS)}, nw_proto FROM '{parquet}' LIMIT {packets})"
    sql = (
        f"SELECT rule, count(*) FROM (SELECT packet, min(rule) AS rule FROM {source} LEFT JOIN rules "
        f"ON {between} AND (proto IS NULL OR proto = nw_proto) GROUP BY packet) GROUP BY 1"
    )
    return connection.sql(sql).fetchall()


def polars_case(rules, parquet, packets):
    import polars as pl

    chain = pl
    for number, (ranges, protocol) in enumerate(rules):
        asked = [pl.col(name).is_between(low, high) for name, (low, high) in zip(COLUMNS, ranges)]
        if protocol is not None:
            asked.append(pl.col("nw_proto") == protocol)
        chain = chain.when(pl.all_horizontal(asked)).then(number)
    frame = pl.scan_parquet(parquet).limit(packets)
    return frame.select(chain.otherwise(None).alias("rule")).group_by("rule").len().collect().rows()


def limited(function, arguments, seconds):
    """Returns the result of a function and its duration; None on a timeout."""
    parent, child = multiprocessing.Pipe()
    worker = multiprocessing.Process(target=lambda: child.send(function(*arguments)))
    begun = time.perf_counter()
    worker.start()
    answer = parent.recv() if parent.poll(seconds) else None
    taken = time.perf_counter() - begun
    worker.kill()
    worker.join()
    return answer, taken


def run(command):
    begun = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True)
    return done.stdout, time.perf_counter() - begun


def main():
    flowlane, rules_file, capture = sys.argv[1:4]
    seconds = float(sys.argv[4]) if len(sys.argv) > 4 else 60
    rules = rules_of(rules_file)
    by_rule = f"SELECT matches('{rules_file}') AS rule, count(*) FROM {{}} GROUP BY 1"
    run(["sh", "-c", f"cat '{capture}' > /dev/null"])
    _, taken = run(["sh", "-c", f"cat '{capture}' > /dev/null"])
    size = os.path.getsize(capture)
    print(f"{'cat':32} {size / taken / 1e9:10.2f} GB/s")
    text, own = run([flowlane, "query", by_rule.format("packets"), capture, "--format", "csv"])
    wanted = {int(rule) if rule else None: int(n) for rule, n in (line.split(",") for line in text.split()[1:])}
    packets = sum(wanted.values())
    print(f"{'flowlane query, capture':32} {size / own / 1e9:10.2f} GB/s {packets / own:14,.0f} packets/s")
    with tempfile.TemporaryDirectory() as folder:
        parquet = os.path.join(folder, "packets.parquet")
        # Packets without ports have port 0, which matches rules for all ports.
        kept = "SELECT packet, nw_src, nw_dst, coalesce(tp_src, 0) AS tp_src, coalesce(tp_dst, 0) AS tp_dst, nw_proto FROM packets"
        run([flowlane, "query", kept, capture, "--output", parquet])
        _, taken = run([flowlane, "query", by_rule.format(f"'{parquet}'"), "--format", "csv"])
        print(f"{'flowlane query, Parquet':32} {'':15} {packets / taken:14,.0f} packets/s")
        fields = ["frame.time_epoch", "frame.len", "ip.src", "ip.dst", "ip.proto", "tcp.dstport", "udp.dstport"]
        some = min(packets, 200_000)
        dissect = ["tshark", "-n", "-r", capture, "-c", str(some), "-T", "fields"]
        _, taken = run(dissect + [part for field in fields for part in ("-e", field)])
        print(f"{'tshark -T fields':32} {'':15} {some / taken:14,.0f} packets/s")
        peers = [("DuckDB, CASE", duckdb_case), ("DuckDB, join", duckdb_join), ("polars, when/then", polars_case)]
        for name, function in peers:
            # As many packets as take some seconds.
            share, best = 1000, None
            while True:
                answer, taken = limited(function, (rules, parquet, share), seconds)
                if answer is None:
                    break
                best = (share, taken)
                if share == packets and dict(answer) != wanted:
                    sys.exit(f"{name} counts other packets than flowlane")
                if taken > seconds / 8 or share == packets:
                    break
                share = min(packets, share * 8)
            rate = f"{best[0] / best[1]:14,.0f} packets/s of {best[0]:,}" if best else f"more than {seconds:.0f} s for {share:,}"
            print(f"{name:32} {'':15} {rate}", flush=True)


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    main()
