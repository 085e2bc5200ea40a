"""Tests of Spark on a local cluster of two executors with one core each. FLOWLANE_SPARK_MASTER selects another: local[2,4]."""

import importlib.util
import os
import re
import shutil
import signal
import sys
import threading
import time
import uuid
from pathlib import Path

import captures
import flowlane
import pyarrow as pa
import pytest

pyspark = pytest.importorskip("pyspark", reason="Spark is not installed: pip install flowlane[spark]")
if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
    pytest.skip("Java is not installed, which Spark needs: apt-get install openjdk-17-jre-headless", allow_module_level=True)

from flowlane.spark import classify, read_captures  # noqa: E402

MASTER = os.environ.get("FLOWLANE_SPARK_MASTER", "local-cluster[2,1,1024]")
# Marks the processes of these tests.
TOKEN = uuid.uuid4().hex


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spark")
    # The cluster starts executors from a Spark distribution, which the package contains.
    os.environ.setdefault("SPARK_HOME", os.path.dirname(pyspark.__file__))
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1", SPARK_WORKER_DIR=str(folder / "work"))
    builder = pyspark.sql.SparkSession.builder.master(MASTER).config("spark.ui.enabled", "false")
    builder = builder.config("spark.executorEnv.FLOWLANE_TEST", TOKEN).config("spark.sql.shuffle.partitions", "2")
    session = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse")).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return captures.write(tmp_path_factory.mktemp("data") / "captures", [3000, 1, 0, 20_000, 500])


def rows(found):
    """Returns (microseconds, rule) of each packet, sorted."""
    return sorted((row[0], row[1]) for row in found.selectExpr("unix_micros(time)", "rule").collect())


def expected(folder, rules=captures.RULES):
    return [(time // 1000, rule) for time, rule in captures.expected(folder, rules)]


def test_packets_are_classified_as_without_spark(spark, folder):
    packets = read_captures(spark, folder)
    assert packets.rdd.getNumPartitions() == 5
    (folder.parent / "rules.flows").write_text(captures.RULES)
    for rules in [captures.RULES, flowlane.Classifier.from_rules(captures.RULES), folder.parent / "rules.flows"]:
        assert rows(classify(packets, rules)) == expected(folder)


def test_packets_are_classified_where_they_are_read(spark, folder):
    acl = flowlane.Classifier.from_rules(captures.RULES)
    apart = classify(read_captures(spark, folder), acl).select("length", "rule")
    at_once = read_captures(spark, folder, ["length"], rules=acl)
    assert at_once.columns == ["length", "rule"]
    order = lambda df: sorted((row.length, -1 if row.rule is None else row.rule) for row in df.collect())  # noqa: E731
    assert order(at_once) == order(apart) and len({row.rule for row in at_once.collect()}) > 1


def test_large_captures_are_split(spark, folder):
    acl = flowlane.Classifier.from_rules(captures.RULES)
    whole = read_captures(spark, folder, ["length", "tp_dst", "packet", "path"], rules=acl, split_size=None)
    parts = read_captures(spark, folder, ["length", "tp_dst", "packet", "path"], rules=acl, split_size=300_000)
    assert parts.rdd.getNumPartitions() > whole.rdd.getNumPartitions()
    order = lambda df: sorted(df.collect(), key=lambda row: (row.path, row.packet))  # noqa: E731
    assert order(parts) == order(whole) and len(order(whole)) == 23_501


def test_rows_are_those_of_a_capture(spark, folder):
    columns = ["time", "dl_src", "nw_src", "ipv6_dst", "nw_proto", "tp_dst", "tcp_flags", "fault", "length", "path"]
    own = flowlane.read_capture(folder / "0.pcap", columns[:-1])
    packets = read_captures(spark, folder / "0.pcap", columns)
    kinds = ["timestamp", "binary", "bigint", "binary", "smallint", "int", "int", "string", "bigint", "string"]
    assert packets.dtypes == list(zip(columns, kinds))
    found = [row.asDict() for row in packets.withColumn("time", pyspark.sql.functions.unix_micros("time")).collect()]
    for row, packet in zip(found, pa.RecordBatchReader.from_stream(own).read_all().to_pylist(), strict=True):
        packet |= {"time": packet["time"].value // 1000, "path": str(folder / "0.pcap")}
        assert {name: bytes(value) if isinstance(value, bytearray) else value for name, value in row.items()} == packet


def test_addresses_may_be_int_or_bigint(spark):
    addresses = [0x0A000001, 0xC0A80001, 0xFF000001, None]
    rules = "ip,nw_dst=192.168.0.0/16,actions=drop\nip,nw_dst=255.0.0.0/8,actions=drop"
    for kind, wraps in [("bigint", 0), ("int", 1 << 32)]:
        values = [(a if a is None or a < 1 << 31 else a - wraps, 0x0800, "kept") for a in addresses]
        df = spark.createDataFrame(values, f"nw_dst {kind}, dl_type int, note string")
        found = classify(df, rules, column="won").collect()
        assert [(row.note, row.won) for row in found] == [("kept", None), ("kept", 0), ("kept", 1), ("kept", None)]


def test_what_does_not_suit_is_said_before_a_job_runs(spark, folder, tmp_path):
    df = spark.createDataFrame([("10.0.0.1", 1)], "nw_dst string, rule int")
    with pytest.raises(flowlane.Error, match="column `nw_dst` has the Arrow type Utf8"):
        classify(df.select("nw_dst"), captures.RULES)
    with pytest.raises(flowlane.Error, match="the column `rule` exists already"):
        classify(df, captures.RULES)
    with pytest.raises(flowlane.Error, match="rules:2:5: `tp_dts`"):
        classify(df, column="won", rules="ip,actions=drop\nudp,tp_dts=53,actions=drop")
    with pytest.raises(flowlane.Error, match="no column has the name of a field"):
        classify(df.drop("nw_dst").withColumnRenamed("rule", "r"), captures.RULES)
    with pytest.raises(flowlane.Error, match="no field `sport`"):
        read_captures(spark, folder, ["sport"])
    with pytest.raises(FileNotFoundError, match="none.pcap"):
        read_captures(spark, [folder, tmp_path / "none.pcap"])
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(flowlane.Error, match="no files found"):
        read_captures(spark, tmp_path)


@pytest.mark.parametrize("before", ["", "file://"])
def test_folders_patterns_and_addresses_of_fsspec(spark, folder, tmp_path, before):
    if before:
        pytest.importorskip("fsspec")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    for name in ["1.pcap", "2.cap", ".3.pcap", "_4.pcap"]:
        shutil.copy(folder / "4.pcap", below / name)

    def names(path, **more):
        found = read_captures(spark, f"{before}{tmp_path}{path}", ["path"], **more).groupBy("path").count().collect()
        assert all(row["path"].startswith(f"{before}{below}/") and row["count"] == 500 for row in found)
        return sorted(Path(row["path"]).name for row in found)

    assert names("") == names("", tasks=1) == ["1.pcap", "2.cap"]
    assert names("/a/*/[!.]*.pcap") == ["1.pcap", "_4.pcap"]
    assert names("/a/b/.3.pcap") == [".3.pcap"]


@pytest.fixture
def bucket(folder):
    """Stores captures in an S3 server; yields the URL and fsspec options."""
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    server = pytest.importorskip("moto.server", reason="there is nothing that speaks as S3 does: pip install moto[server]")
    running = server.ThreadedMotoServer(port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    options = {"key": "key", "secret": "secret", "client_kwargs": {"endpoint_url": f"http://{host}:{port}"}}
    import s3fs

    store = s3fs.S3FileSystem(**options)
    store.mkdir("archive")
    store.put(f"{folder}/", "archive/2026/", recursive=True)
    yield "s3://archive/2026", options
    running.stop()


def test_captures_are_read_from_storage_as_of_s3(spark, folder, bucket):
    address, options = bucket
    acl = flowlane.Classifier.from_rules(captures.RULES)
    found = read_captures(spark, address, ["time", "path"], rules=acl, storage_options=options).cache()
    assert rows(found) == expected(folder)
    assert {row.path for row in found.collect()} == {f"{address}/{number}.pcap" for number in (0, 1, 3, 4)}
    assert read_captures(spark, f"{address}/[04].pcap", ["time"], storage_options=options).count() == 3500
    with pytest.raises(FileNotFoundError):
        read_captures(spark, f"{address}/none.pcap", storage_options=options)


def test_tasks_share_files_by_size():
    from flowlane.spark import _shares

    shares = _shares([("a", 10), ("b", 70), ("c", 30), ("d", 20), ("e", 0)], 2)
    bytes_of = {"a": 10, "b": 70, "c": 30, "d": 20, "e": 0}
    assert sorted(sum(bytes_of[row[0]] for row in share) for share in shares) == [60, 70]
    assert sorted(row for share in shares for row in share)[:2] == [("a", 0, 0, -1), ("b", 0, 0, -1)]
    assert len(_shares([("a", 0), ("b", 0)], 9)) == 2


def test_of_a_damaged_capture_comes_what_is_before_the_damage(spark, folder, tmp_path):
    (tmp_path / "cut.pcap").write_bytes((folder / "4.pcap").read_bytes()[:-3])
    assert read_captures(spark, tmp_path).count() == 499
    with pytest.raises(Exception, match="cut.pcap: the file ends within record 499"):
        read_captures(spark, tmp_path, strict=True).count()


COUNTED = """
import os, flowlane
class Counted(flowlane.Classifier):
    def __reduce__(self):
        return built, (self.log, *super().__reduce__())
def built(log, make, state):
    with open(log, "a") as file:
        file.write(f"{os.getpid()}\\n")
    return make(*state)
"""


def test_a_worker_process_builds_the_classifier_once(spark, folder, tmp_path, monkeypatch):
    (tmp_path / "counted.py").write_text(COUNTED)
    monkeypatch.syspath_prepend(tmp_path)
    import counted

    spark.sparkContext.addPyFile(str(tmp_path / "counted.py"))
    acl = counted.Counted.from_rules(captures.RULES)
    acl.log = str(tmp_path / "log")
    found = classify(read_captures(spark, [folder / "0.pcap"]).repartition(12).cache(), acl)
    assert found.rdd.getNumPartitions() == 12
    for _ in range(2):
        assert found.count() == 3000
    builders = (tmp_path / "log").read_text().split()
    assert 1 <= len(builders) == len(set(builders)) <= 4


def processes(what, within):
    """Returns the processes of a kind that Spark started for these tests."""

    def has(pid, name, text):
        try:
            return text.encode() in (Path("/proc") / pid / name).read_bytes()
        except OSError:
            return False

    pids = [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid()]
    return [int(pid) for pid in pids if has(pid, "environ", TOKEN) and has(pid, within, what)]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads /proc")
@pytest.mark.parametrize(
    ("what", "within"),
    [
        # Processes that have loaded the package's library: readers and classifiers.
        pytest.param("_flowlane", "maps", id="workers"),
        pytest.param("CoarseGrainedExecutorBackend", "cmdline", id="executor"),
    ],
)
def test_killed_in_the_middle_the_result_is_complete(spark, tmp_path, what, within):
    if within == "cmdline" and not MASTER.startswith("local-cluster"):
        pytest.skip(f"{MASTER} has no executor that can be killed")
    # More bytes than the buffers between processes hold: the writer blocks until they are read.
    folder = captures.write(tmp_path / "captures", [40_000] * 3 + [1000], padding=1400)
    begun, done, killed = tmp_path / "begun", tmp_path / "done", []

    def waiting(batches):
        for batch in batches:
            begun.touch()
            for _ in range(3000):
                if done.exists():
                    break
                time.sleep(0.01)
            yield batch

    def kill():
        while not begun.exists():
            time.sleep(0.01)
        for pid in processes(what, within)[: 1 if within == "cmdline" else None]:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        done.touch()

    columns = ["time", "dl_type", *flowlane.Classifier.from_rules(captures.RULES).fields, "frame"]
    found = classify(read_captures(spark, folder, columns), captures.RULES)
    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    group = f"killed-{within}"
    spark.sparkContext.setJobGroup(group, "a job that is disturbed")
    found = rows(found.mapInArrow(waiting, found.schema))
    killer.join(10)
    tracker = spark.sparkContext.statusTracker()
    stages = [stage for job in tracker.getJobIdsForGroup(group) for stage in tracker.getJobInfo(job).stageIds]
    assert killed and sum(tracker.getStageInfo(stage).numFailedTasks for stage in stages) > 0
    assert found == expected(folder)


def example(name):
    described = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    return module


def test_the_example_writes_parquet_by_rule(spark, folder, tmp_path):
    example("spark_archive").write(spark, str(folder), captures.RULES, str(tmp_path / "out"))
    parts = {path.name for path in (tmp_path / "out").iterdir() if path.is_dir()}
    assert parts == {"rule=0", "rule=1", "rule=2", "rule=3", "rule=__HIVE_DEFAULT_PARTITION__"}
    assert captures.found_in(tmp_path / "out") == [(time * 1000, rule) for time, rule in expected(folder)]


def test_the_page(spark, folder, tmp_path):
    page = Path(__file__).parents[3] / "docs" / "cluster.md"
    if not page.exists():
        pytest.skip("the page is not in a source distribution")
    [code] = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
    shutil.copytree(folder, tmp_path / "captures")
    (tmp_path / "rules.flows").write_text(captures.RULES)
    assert "/archive/" in code
    exec(code.replace("/archive/", f"{tmp_path}/"), {})
    assert rows(spark.read.parquet(str(tmp_path / "found"))) == expected(folder)
