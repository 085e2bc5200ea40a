"""Captures and access lists on a Spark cluster: `read_captures` and `classify` of data frames.

Both run in Spark's Python workers, on record batches of Arrow (`mapInArrow`), so this package has to be installed
on every machine of the cluster: `pip install flowlane[spark]`. Spark Connect, which has no broadcast, is not taken.

Spark has no unsigned types. What a capture has becomes the next wider signed type, so that values compare and sort as they
are: uint8 → smallint, uint16 → int, uint32 (addresses, lengths) → bigint. uint64 stays as wide: bigint, two's complement.
Times become timestamps of microseconds; the nanoseconds below are cut off. IPv6 and MACs are binaries, in network order.
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

# Spark takes batches of 10,000 rows from its own; a column of whole frames must stay below Arrow's 2 GiB.
_ROWS = 16384
# Enough for cores to even out, and few enough for the driver.
_TASKS_A_CORE = 32
# Spark's types, and Arrow's: those of packets, and those that packets are mistaken to be of.
_ARROW = {"tinyint": "int8", "smallint": "int16", "int": "int32", "bigint": "int64", "binary": "binary"}
_ARROW |= {"string": "string", "boolean": "bool", "float": "float", "double": "double", "timestamp": "timestamp[us]"}
_SPARK = {arrow: spark for spark, arrow in _ARROW.items()}


def classify(df: DataFrame, rules: Classifier | str | os.PathLike[str], *, column: str = "rule") -> DataFrame:
    """`df` with one column more: the number of the rule that wins for each row (int), null where none does.

    `rules` are a classifier, or what `Classifier.from_rules` reads, on the driver. They are broadcast, and every worker process
    builds the classifier once. Rules that are changed later do not change the data frame.

    Columns are named as fields are in rules. Integers of any width are taken: an address may be a bigint, or an int in
    two's complement. Columns that are no fields are kept, but every column passes through the Python worker: select first.

    Raises:
        Error: a column that does not suit its field, where its type says so; where a value does, the job fails with it.
    """
    import pyarrow as pa
    from pyspark.sql.types import IntegerType, StructField, StructType

    if column in df.columns:
        raise Error(f"there is a column `{column}` already; give another name: classify(…, column=…)")
    built = rules if isinstance(rules, Classifier) else Classifier.from_rules(rules)
    # A type that does not suit is said here, and not by a job that fails.
    none = {field.name: pa.array([], _ARROW.get(field.dataType.simpleString(), "null")) for field in df.schema}
    built.classify(pa.RecordBatch.from_arrays(list(none.values()), list(none)))
    held = _context(df.sparkSession).broadcast(built)

    def numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Of a broadcast a worker process makes its value once, and keeps it from task to task.
        classifier = held.value
        for batch in batches:
            # Spark has a task on each core.
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
    """The packets of captures as a data frame, read by the workers: they are sent a row for each file, or part of one.

    `paths` are files, folders (all files in and below them, but for names that begin with `.` or `_`), patterns (`*.pcap.gz`), or
    addresses of fsspec (`s3://…`), to which `storage_options` go. Local paths must lead to the same files on every machine.
    A file of fsspec is read as it comes.

    `columns` and `in_port` are as for `flowlane.read_capture`; one more is `path`, the file that the packet is from. Types
    are those of the module's text.

    With `rules` (as for `classify`) there is a column `rule`, too: packets are classified where they are read, so that they cross
    between Python and the JVM once, and only with the columns that are asked for.

    Files of more than `split_size` bytes are split, so that several tasks read one: a first stage finds where packets begin, which
    reads each of them once. Files that are packed and those of fsspec are not split, and none is where it is None.
    `tasks` is how many tasks share the other files, by size; where it is left out, one a file, and at most 32 a core.

    Of a damaged capture all packets before the damage come, and the worker's log says where it is; with `strict` the job fails.

    Raises:
        Error: there is no such column, or nothing to read.
        FileNotFoundError: there is no such file.
    """
    import pyarrow as pa

    options = dict(storage_options or {})
    schema = _schema(columns)
    built = rules if rules is None or isinstance(rules, Classifier) else Classifier.from_rules(rules)
    # What rules look at is read, whether it is asked for or not.
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
    # A session of Spark Connect says of `sparkContext` only that there is none.
    if "connect" in type(spark).__module__:
        raise Error("Spark Connect has no broadcast: take a session of a cluster's own driver")
    return spark.sparkContext


def _files(paths: Iterable[str | os.PathLike[str]], options: dict[str, Any]) -> list[tuple[str, int]]:
    """All files, each once, and the bytes of each."""
    files: dict[str, int] = {}
    for path in map(os.fspath, paths):
        files.update(_stored(path, options) if "://" in path else _on_disk(path))
    if not files:
        raise Error("there is no file in the folders, or of the patterns, that were given")
    return list(files.items())


def _is_hidden(name: str, below: str = "") -> bool:
    """Whether engines pass a file over: what is being written, and what only says that something is complete."""
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
        raise FileNotFoundError(f"{path}: there is no such file or folder")
    return {os.path.abspath(name): os.path.getsize(name) for name in sorted(found)}


def _stored(path: str, options: dict[str, Any]) -> dict[str, int]:
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise Error(f"{path} is read through fsspec, which is not installed: pip install fsspec") from error
    store, inner = url_to_fs(path, **options)
    if glob.has_magic(inner):
        found = store.glob(inner, detail=True)
    elif store.isdir(inner):
        found = {name: told for name, told in store.find(inner, detail=True).items() if not _is_hidden(name, inner)}
    else:
        found = {inner: store.info(inner)}
    files = {name: told for name, told in sorted(found.items()) if told["type"] == "file"}
    # A store may not know how large a file is.
    return {store.unstrip_protocol(name): told["size"] or 0 for name, told in files.items()}


def _split(context: Any, files: list[tuple[str, int]], size: int, strict: bool) -> Any:
    """Rows for parts of large files, each for a task of its own."""
    # Tasks of a file begin behind those of the files before it. Sums of lengths say about how many there are.
    begins = [sum(length for _, length in files[:number]) // size + number for number in range(len(files) + 1)]

    def parts(file: tuple[int, str]) -> Iterator[tuple[int, tuple[str, int, int, int]]]:
        begin, path = file
        with warnings.catch_warnings():
            if strict:
                warnings.simplefilter("error", RuntimeWarning)
            found = split_capture(path, size)
        for number, (offset, first, packets) in enumerate(found):
            # All packets, however many there are.
            yield begin + number, (path, offset, first, packets if packets < 1 << 63 else -1)

    named = [(begin, path) for begin, (path, _) in zip(begins, files)]
    numbered = context.parallelize(named, len(named)).flatMap(parts)
    tasks = begins[-1]
    return numbered.partitionBy(tasks, lambda number: number % tasks).values()


def _shares(files: list[tuple[str, int]], most: int) -> list[list[tuple[str, int, int, int]]]:
    """Rows for each task: the largest file first, each to the task that has the fewest bytes."""
    shares: list[list[tuple[str, int, int, int]]] = [[] for _ in range(max(1, min(most, len(files))))]
    least = [(0, 0, number) for number in range(len(shares))]
    for path, length in sorted(files, key=lambda file: -file[1]):
        held, count, number = heapq.heappop(least)
        shares[number].append((path, 0, 0, -1))
        heapq.heappush(least, (held + length, count + 1, number))
    return shares


@contextlib.contextmanager
def _opened(path: str, options: dict[str, Any]) -> Iterator[str | BinaryIO]:
    """What `read_capture` takes: the path of a file on this machine, or what fsspec opens."""
    if "://" not in path:
        yield path
        return
    import fsspec

    with fsspec.open(path, "rb", **options) as stored:
        yield _Named(stored, path)


class _Named:
    """A file that is called by its address, since the name is in what is said about it."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.read, self.name = file.read, name


def _stream(
    source: Any, names: list[str] | None, in_port: int = 1, split: tuple[int, int, int] | None = None
) -> pa.RecordBatchReader:
    import pyarrow as pa

    # Without a column there would be no rows.
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
    """What packets are for Spark: found out by a capture without any."""
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
        # Unsafe: nanoseconds are cut off, and uint64 is taken bit by bit.
        return batch.column(field.name).cast(field.type, safe=False)

    return pa.RecordBatch.from_arrays([column(field) for field in schema], schema=schema)
