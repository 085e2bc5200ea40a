"""An archive of captures on a Spark cluster: the matching rule of each packet, as Parquet partitioned by rule.

    spark-submit examples/spark_archive.py CAPTURES RULES OUT

CAPTURES is a directory that all machines share, or an fsspec URL (s3://bucket/folder). Packets without a match are in the
partition `rule=__HIVE_DEFAULT_PARTITION__`, which is read as null.
"""

import sys

import flowlane.spark
from pyspark.sql import SparkSession

COLUMNS = ["path", "time", "length", "dl_type", "nw_src", "nw_dst", "ipv6_src", "ipv6_dst", "nw_proto", "tp_src", "tp_dst"]


def write(spark, captures, rules, out):
    packets = flowlane.spark.read_captures(spark, captures, COLUMNS)
    flowlane.spark.classify(packets, rules).write.mode("overwrite").partitionBy("rule").parquet(out)


if __name__ == "__main__":
    write(SparkSession.builder.appName("flowlane").getOrCreate(), *sys.argv[1:4])
