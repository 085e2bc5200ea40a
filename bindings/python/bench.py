"""Measures `classify` in rows per second: python bench.py RULES [ROWS]. Best of seven passes, with distinct packets."""

import resource
import sys
import time

import flowlane
import numpy as np
import pyarrow as pa


def rate(classify, packets, rows, threads):
    best = float("inf")
    for _ in range(7):
        begun = time.perf_counter()
        classify(packets, threads=threads)
        best = min(best, time.perf_counter() - begun)
    return rows / best / 1e6


def main(path, rows=10_000_000):
    acl = flowlane.Classifier.from_rules(path)
    random = np.random.default_rng(1)
    # Half of the packets have addresses of a rule, the others random ones.
    texts = [acl._rules.rule(n) for n in range(len(acl))]
    pick = random.integers(0, len(texts), rows)
    columns = {"nw_src": random.integers(0, 1 << 32, rows, "u4"), "nw_dst": random.integers(0, 1 << 32, rows, "u4")}
    for name in columns:
        values = []
        for rule in texts:
            word = next((w for w in rule.replace(" ", ",").split(",") if w.startswith(name + "=")), "=0.0.0.0")
            parts = word.split("=")[1].split("/")[0].split(".")
            values.append(int.from_bytes(bytes(map(int, parts)), "big"))
        keep = random.random(rows) < 0.5
        columns[name][keep] = np.array(values, "u4")[pick][keep]
    columns["nw_proto"] = random.choice(np.array([6, 17], "u1"), rows)
    columns["tp_src"] = random.integers(0, 1 << 16, rows, "u2")
    columns["tp_dst"] = random.integers(0, 1 << 10, rows, "u2")
    table = pa.table(columns)
    print(acl)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for threads in (1, 2):
        numpy = rate(acl.classify, columns, rows, threads)
        arrow = rate(acl.classify, table, rows, threads)
        print(f"{threads} threads: numpy {numpy:.1f}, Arrow {arrow:.1f} million rows per second")
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"memory beyond the input: {more:.0f} MiB at most, including results of {rows * 4 / 2**20:.0f} MiB each")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
