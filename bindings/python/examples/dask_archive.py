"""An archive of captures on a Dask cluster: the matching rule of each packet, as Parquet partitioned by rule.

    python examples/dask_archive.py RULES OUT CAPTURE…     (on a local cluster; pass an address to Client for another)
"""

import sys

import dask.dataframe as dd
import flowlane
import pandas as pd
import pyarrow as pa
from dask.distributed import Client

COLUMNS = ["time", "length", "dl_type", "nw_src", "nw_dst", "ipv6_src", "ipv6_dst", "nw_proto", "tp_src", "tp_dst"]


def read(path, acl):
    packets = pa.RecordBatchReader.from_stream(flowlane.read_capture(path, COLUMNS)).read_all()
    # A worker has several threads, so each lookup uses one.
    packets = packets.append_column("rule", acl.classify(packets, threads=1))
    # Arrow types: with numpy types, absent addresses would turn the column into floats.
    return packets.to_pandas(types_mapper=pd.ArrowDtype)


def same(acl):
    return acl


def packets(client, rules, paths):
    # The result of a task, built once by each worker: unlike scattered data, it survives the loss of a worker.
    acl = client.submit(same, flowlane.Classifier.from_rules(rules))
    reading = [client.submit(read, str(path), acl) for path in paths]
    return dd.from_delayed(reading, verify_meta=False)


if __name__ == "__main__":
    with Client() as client:
        packets(client, sys.argv[1], sys.argv[3:]).to_parquet(sys.argv[2], partition_on=["rule"])
