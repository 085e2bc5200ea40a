"""An archive of captures on a Ray cluster: the matching rule of each packet, as Parquet partitioned by rule.

    python examples/ray_archive.py RULES OUT CAPTURE…
"""

import sys

import flowlane
import pyarrow as pa
import ray

COLUMNS = ["time", "length", "dl_type", "nw_src", "nw_dst", "ipv6_src", "ipv6_dst", "nw_proto", "tp_src", "tp_dst"]


class Classify:
    """An actor that reads captures and holds a classifier."""

    def __init__(self, acl):
        # The classifier from Ray's object store is built once per actor.
        self.acl = ray.get(acl)

    def __call__(self, paths):
        for path in paths["path"]:
            for batch in pa.RecordBatchReader.from_stream(flowlane.read_capture(path, COLUMNS)):
                packets = pa.Table.from_batches([batch])
                yield packets.append_column("rule", self.acl.classify(packets, threads=1))


def packets(rules, paths, actors=2):
    acl = ray.put(flowlane.Classifier.from_rules(rules))
    files = ray.data.from_items([{"path": str(path)} for path in paths])
    return files.map_batches(Classify, fn_constructor_args=[acl], batch_size=1, concurrency=actors)


if __name__ == "__main__":
    packets(sys.argv[1], sys.argv[3:]).write_parquet(sys.argv[2], partition_cols=["rule"])
