"""Captures and access lists on a Spark cluster: `read_captures` and `classify` of data frames.

Both run in Spark's Python workers on Arrow record batches (`mapInArrow`), so this package must be installed on every machine of
the cluster: `pip install flowlane[spark]`. Spark Connect is not supported, because it has no broadcast variables.

Spark has no unsigned types. Unsigned columns become the next wider signed type, which preserves comparison and order:
uint8 → smallint, uint16 → int, uint32 (addresses, lengths) → bigint. uint64 becomes bigint in two's complement.
Times become timestamps truncated to microseconds. IPv6 and MAC addresses are binaries in network byte order.
"""

from __future__ import annotations

import contextlib
import glob
import heapq
import io
import os
import struct
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from . import Classifier, Error, read_capture, split_capture

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["classify", "read_captures"]

# Similar to Spark's own batches of 10,000 rows; a column of whole frames must stay below Arrow's 2 GiB.
_ROWS = 16384
# Enough to balance the cores, and few enough for the driver.
_TASKS_A_CORE = 32
# Spark's types and their Arrow equivalents: those of packet columns, and likely wrong ones, for error messages.
_ARROW = {"tinyint": "int8", "smallint": "int16", "int": "int32", "bigint": "int64", "binary": "binary"}
_ARROW |= {"string": "string", "boolean": "bool", "float": "float", "double": "double", "timestamp": "timestamp[us]"}
_SPARK = {arrow: spark for spark, arrow in _ARROW.items()}


def classify(df: DataFrame, rules: Classifier | str | os.PathLike[str], *, column: str = "rule") -> DataFrame:
    """Adds a column (int) with the number of the matching rule of each row, or null.

    `rules` are a classifier or an argument of `Classifier.from_rules`, read on the driver. They are broadcast, and every worker
    process builds the classifier once. Later changes of the rules do not affect the data frame.

    Columns are named as fields in rules. Integers may have any width: an address may be a bigint, or an int in two's complement.
    Other columns are kept, but every column passes through the Python worker: select the needed ones first.

    Raises:
        Error: the type of a column does not fit its field. An invalid value makes the job fail with this error.
    """
    import pyarrow as pa
    from pyspark.sql.types import IntegerType, StructField, StructType

    if column in df.columns:
        raise Error(f"the column `{column}` exists already; choose another name: classify(…, column=…)")
    built = rules if isinstance(rules, Classifier) else Classifier.from_rules(rules)
    # Report unsuitable types here instead of by a failing job.
    none = {field.name: pa.array([], _ARROW.get(field.dataType.simpleString(), "null")) for field in df.schema}
    built.classify(pa.RecordBatch.from_arrays(list(none.values()), list(none)))
    held = _context(df.sparkSession).broadcast(built)

    def numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # A worker process deserializes a broadcast once, and keeps it for later tasks.
        classifier = held.value
        for batch in batches:
            # Spark runs a task on each core.
            found = classifier.classify(batch, threads=1).cast(pa.int32())
            yield pa.RecordBatch.from_arrays([*batch.columns, found], names=[*batch.schema.names, column])

    return df.mapInArrow(numbered, StructType([*df.schema.fields, StructField(column, IntegerType())]))


def read_captures(
    spark: SparkSession,
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    columns: Iterable[str] | None = None,
    *,
    rules: Classifier | str | os.PathLike[str] | None = None,
    in_port: int = 1,
    strict: bool = False,
    tasks: int | None = None,
    split_size: int | None = 256 << 20,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Reads captures as a data frame. The workers read the files; each is sent one row per file, or per part of a file.

    `paths` are files, directories (recursively, except names that begin with `.` or `_`), patterns (`*.pcap.gz`), or fsspec URLs
    (`s3://…`), which are opened with `storage_options`. Local paths must refer to the same files on every machine. fsspec files are
    streamed.

    `columns` and `in_port` are as for `flowlane.read_capture`; the additional column `path` is the packet's file. The module's
    documentation lists the types.

    With `rules` (as for `classify`) the result has a column `rule`: packets are classified where they are read, so that they cross
    between Python and the JVM once, and with the requested columns only.

    Files larger than `split_size` bytes are split between tasks: a first stage finds packet boundaries, which reads these files
    once more. Compressed and fsspec files are not split; None disables splitting. `tasks` is the number of tasks that share the
    other files, balanced by size; by default one per file, at most 32 per core.

    A damaged capture yields all packets that can be read, and the worker's log gives the position; with `strict` the job fails.

    Raises:
        Error: unknown column, or no files.
        FileNotFoundError: a file does not exist.
    """
    import pyarrow as pa

    options = dict(storage_options or {})
    schema = _schema(columns)
    built = rules if rules is None or isinstance(rules, Classifier) else Classifier.from_rules(rules)
    # Fields that the rules inspect are read even if not requested.
    names = list(dict.fromkeys([*schema.names, *(built.fields if built is not None else [])]))
    if built is not None:
        schema = schema.append(pa.field("rule", pa.int32()))
    files = _files([paths] if isinstance(paths, (str, os.PathLike)) else paths, options)
    context = _context(spark)
    held = context.broadcast(built)
    is_large = lambda path, length: split_size is not None and length > split_size and "://" not in path  # noqa: E731
    large = [file for file in files if is_large(*file)]
    rows = _split(context, large, split_size, strict) if large else None
    small = [file for file in files if not is_large(*file)]
    if small or rows is None:
        shares = _shares(small, tasks or _TASKS_A_CORE * context.defaultParallelism)
        own = context.parallelize(shares, len(shares)).flatMap(lambda share: share)
        rows = own if rows is None else own.union(rows)

    def packets(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, *split in zip(*(column.to_pylist() for column in batch.columns)):
                with _opened(path, options) as source:
                    part = tuple(split) if split[2] >= 0 else None
                    for read in _read(source, names, in_port, strict, part):
                        classifier = held.value
                        if classifier is not None:
                            found = classifier.classify(read, threads=1).cast(pa.int32())
                            read = read.append_column("rule", found)
                        yield _as_spark(read, path, schema)

    named = ", ".join(f"`{field.name}` {_SPARK[str(field.type).replace(', tz=UTC', '')]}" for field in schema)
    return spark.createDataFrame(rows, "path string, offset bigint, first bigint, packets bigint").mapInArrow(packets, named)


def _context(spark: SparkSession) -> Any:
    # The `sparkContext` error of Spark Connect does not name the reason.
    if "connect" in type(spark).__module__:
        raise Error("Spark Connect has no broadcast variables: use a session of the cluster's own driver")
    return spark.sparkContext


def _files(paths: Iterable[str | os.PathLike[str]], options: dict[str, Any]) -> list[tuple[str, int]]:
    """Returns all files, each once, with their sizes in bytes."""
    files: dict[str, int] = {}
    for path in map(os.fspath, paths):
        files.update(_stored(path, options) if "://" in path else _on_disk(path))
    if not files:
        raise Error("no files found in the given directories and patterns")
    return list(files.items())


def _is_hidden(name: str, below: str = "") -> bool:
    """Returns whether engines ignore a file: one being written, or a completion marker."""
    return any(part.startswith((".", "_")) for part in os.path.relpath(name, below or os.path.dirname(name)).split(os.sep))


def _on_disk(path: str) -> dict[str, int]:
    if os.path.isdir(path):
        below = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
        found = [name for name in below if not _is_hidden(name, path)]
    elif os.path.exists(path):
        found = [path]
    elif glob.has_magic(path):
        found = [name for name in glob.glob(path, recursive=True) if os.path.isfile(name)]
    else:
        raise FileNotFoundError(f"{path}: no such file or directory")
    return {os.path.abspath(name): os.path.getsize(name) for name in sorted(found)}


def _stored(path: str, options: dict[str, Any]) -> dict[str, int]:
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise Error(f"{path} requires fsspec: pip install fsspec") from error
    store, inner = url_to_fs(path, **options)
    if glob.has_magic(inner):
        found = store.glob(inner, detail=True)
    elif store.isdir(inner):
        found = {name: info for name, info in store.find(inner, detail=True).items() if not _is_hidden(name, inner)}
    else:
        found = {inner: store.info(inner)}
    files = {name: info for name, info in sorted(found.items()) if info["type"] == "file"}
    # A store may not know the size of a file.
    return {store.unstrip_protocol(name): info["size"] or 0 for name, info in files.items()}


def _split(context: Any, files: list[tuple[str, int]], size: int, strict: bool) -> Any:
    """Returns rows for parts of large files, one task per part."""
    # Task numbers of a file follow those of the files before it, estimated from the sum of their lengths.
    begins = [sum(length for _, length in files[:number]) // size + number for number in range(len(files) + 1)]

    def parts(file: tuple[int, str]) -> Iterator[tuple[int, tuple[str, int, int, int]]]:
        begin, path = file
        with warnings.catch_warnings():
            if strict:
                warnings.simplefilter("error", RuntimeWarning)
            found = split_capture(path, size)
        for number, (offset, first, packets) in enumerate(found):
            # -1: all packets of the file.
            yield begin + number, (path, offset, first, packets if packets < 1 << 63 else -1)

    named = [(begin, path) for begin, (path, _) in zip(begins, files)]
    numbered = context.parallelize(named, len(named)).flatMap(parts)
    tasks = begins[-1]
    return numbered.partitionBy(tasks, lambda number: number % tasks).values()


def _shares(files: list[tuple[str, int]], most: int) -> list[list[tuple[str, int, int, int]]]:
    """Returns rows per task: assigns files, the largest first, to the task with the fewest bytes."""
    shares: list[list[tuple[str, int, int, int]]] = [[] for _ in range(max(1, min(most, len(files))))]
    least = [(0, 0, number) for number in range(len(shares))]
    for path, length in sorted(files, key=lambda file: -file[1]):
        held, count, number = heapq.heappop(least)
        shares[number].append((path, 0, 0, -1))
        heapq.heappush(least, (held + length, count + 1, number))
    return shares


@contextlib.contextmanager
def _opened(path: str, options: dict[str, Any]) -> Iterator[str | BinaryIO]:
    """Yields an argument for `read_capture`: a local path, or an open fsspec file."""
    if "://" not in path:
        yield path
        return
    import fsspec

    with fsspec.open(path, "rb", **options) as stored:
        yield _Named(stored, path)


class _Named:
    """A file whose name is its URL, for error messages."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.read, self.name = file.read, name


def _stream(
    source: Any, names: list[str] | None, in_port: int = 1, split: tuple[int, int, int] | None = None
) -> pa.RecordBatchReader:
    import pyarrow as pa

    # Without a column there would be no row count.
    own = None if names is None else [name for name in names if name != "path"] or ["length"]
    return pa.RecordBatchReader.from_stream(read_capture(source, own, batch_size=_ROWS, in_port=in_port, split=split))


def _read(
    source: Any, names: list[str], in_port: int, strict: bool, split: tuple[int, int, int] | None
) -> Iterator[pa.RecordBatch]:
    stream = _stream(source, names, in_port, split)
    while True:
        with warnings.catch_warnings():
            if strict:
                warnings.simplefilter("error", RuntimeWarning)
            try:
                batch = stream.read_next_batch()
            except StopIteration:
                return
        yield batch


def _schema(columns: Iterable[str] | None) -> pa.Schema:
    """Returns the Spark schema of packets, determined from an empty capture."""
    import pyarrow as pa

    names = None if columns is None else list(dict.fromkeys(columns))
    empty = io.BytesIO(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1))
    read = _stream(empty, names).schema
    types = {field.name: _as_type(field.type) for field in read} | {"path": pa.string()}
    return pa.schema([(name, types[name]) for name in names or read.names])


def _as_type(read: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_timestamp(read):
        return pa.timestamp("us", "UTC")
    if pa.types.is_fixed_size_binary(read):
        return pa.binary()
    wider = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.int64()}
    return wider.get(read, read)


def _as_spark(batch: pa.RecordBatch, path: str, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    def column(field: pa.Field) -> pa.Array:
        if field.name == "path":
            return pa.repeat(path, batch.num_rows)
        # Unsafe casts: truncate nanoseconds, and reinterpret uint64.
        return batch.column(field.name).cast(field.type, safe=False)

    return pa.RecordBatch.from_arrays([column(field) for field in schema], schema=schema)
