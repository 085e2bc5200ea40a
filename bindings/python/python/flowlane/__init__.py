"""Packet classification on every lane of a machine.

>>> import flowlane, numpy as np
>>> acl = flowlane.Classifier.from_rules("tcp,nw_dst=10.0.0.0/8,tp_dst=22,actions=drop\\nip,actions=output:1")
>>> acl.classify({"nw_dst": np.array([0x0A000001, 0x0B000001], "u4"), "nw_proto": 6, "tp_dst": 22}).tolist()
[0, 1]
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

from . import _flowlane
from ._flowlane import Error, __version__, set_max_simd

__all__ = ["BloomFilter", "Classifier", "CuckooMap", "Error", "Packets", "RouteTable", "__version__", "read_capture", "set_max_simd", "split_capture"]

_NONE = np.uint32(0xFFFF_FFFF)


def _array(name: str, values: Any) -> Any:
    """An array as the compiled part takes it: unsigned, of this machine's byte order, in one piece."""
    if isinstance(values, (int, np.integer)) and not isinstance(values, (bool, np.bool_)):
        if values < 0:
            raise Error(f"column `{name}`: {values} is negative")
        return int(values)
    array = np.asarray(values)
    if array.size == 0 and not isinstance(values, np.ndarray):
        array = array.astype(np.uint8)
    if array.dtype.kind == "b":
        array = array.view(np.uint8)
    if array.dtype.kind not in "ui":
        raise Error(
            f"column `{name}` is of type {array.dtype}; integers are taken, one a packet, or rows of bytes (uint8)"
        )
    if array.ndim not in (1, 2) or (array.ndim == 2 and array.dtype != np.uint8):
        raise Error(
            f"column `{name}` is of shape {array.shape} and type {array.dtype}; integers are taken, one a packet,"
            " or rows of bytes (uint8)"
        )
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    array = np.require(array, requirements="CA")
    return array.view(f"u{array.dtype.itemsize}")


def _is_arrow(packets: Any) -> bool:
    return hasattr(packets, "__arrow_c_stream__") or hasattr(packets, "__arrow_c_array__")


def _whole(packets: Any) -> Any:
    """A frame of pandas whose columns of floats are integers: it has them where some are missing, since its integers know no null."""
    if type(packets).__module__.split(".")[0] != "pandas":
        return packets
    floats = [name for name in packets.columns if getattr(packets.dtypes[name], "kind", "") == "f" and name in _flowlane.FIELDS]
    try:
        return packets.astype({name: "Int64" for name in floats})
    except (TypeError, ValueError) as error:
        names = ", ".join(f"`{name}`" for name in floats)
        raise Error(f"of the columns {names} one is of numbers that are not whole: {error}") from error


def _note_missing(missing: list[str]) -> None:
    """Warns of fields at which rules look, and of which no column says anything."""
    if missing:
        what = ", ".join(f"`{name}`" for name in missing)
        warnings.warn(f"rules look at {what}, of which there is no column: it counts as 0", stacklevel=3)


def _like(packets: Any, found: Any) -> Any:
    """An array of Arrow as the library that the packets came from has it."""
    library = type(packets).__module__.split(".")[0]
    if library == "polars":
        import polars

        return polars.Series("rule", found)
    try:
        import pyarrow
    except ImportError:
        return found
    return pyarrow.array(found)


class Classifier:
    """Rules, and the engine that finds for each packet the one that wins.

    Rules have numbers: their position in the file, from 0; those that are inserted go on counting. Of rules
    that match, the one of the highest priority wins, and of equals the earlier one. Any number of threads may
    classify while another changes rules.
    """

    def __init__(self, rules: _flowlane.Classifier) -> None:
        self._rules = rules

    @classmethod
    def from_rules(cls, source: str | os.PathLike[str], engine: str = "auto", *, table: int = 0) -> Classifier:
        """The rules of a file, or of a text: flows as `ovs-ofctl` reads them, or ClassBench filters.

        A file may be packed by gzip or zstd. `engine` is auto, tree, dynamic or brute. Of flows of several tables those of `table` are
        taken, 0 being where packets enter; numbers are positions in the file all the same. `goto_table` is not followed.

        >>> len(Classifier.from_rules("udp,tp_dst=53,actions=drop"))
        1

        Raises:
            Error: lines that are not understood, each with file, line and column.
            FileNotFoundError: there is no such file.
        """
        if not 0 <= table <= 254:
            raise Error(f"table {table}; they are 0 to 254")
        if isinstance(source, str) and not source.strip():
            raise Error("there are no rules in an empty text; a file of them, or a line each, is wanted")
        is_text = isinstance(source, str) and ("\n" in source or "=" in source or source.startswith("@"))
        if is_text and not os.path.isfile(source):
            return cls(_flowlane.Classifier.from_text(source, engine, table))
        return cls(_flowlane.Classifier.from_file(os.fspath(source), engine, table))

    def classify(self, packets: Any, *, threads: int | None = None) -> Any:
        """The number of the rule that wins for each packet.

        `packets` are columns that are named as fields are in rules (`nw_src`, `tp_dst`, …; see `fields`):

        - a mapping of names to numpy arrays of integers (signed ones count as unsigned of their width), to arrays of
          `uint8` with a row for each packet (addresses of IPv6 and MACs in network order), or to one integer for all.
          The result is an array of `int32`; -1: no rule matches.
        - a table or record batch of Arrow, or anything with its PyCapsule interface (pyarrow, polars, DuckDB, pandas):
          integers and fixed-size binaries are read where they lie. The result is a Series for a frame of polars, else an array of
          pyarrow; null: no rule matches. Columns that are no fields are passed over; a null is a field that the packet does not have.

        Fields without a column are 0, with a `UserWarning` where rules look at them; without `dl_type` packets are of the kind that
        their addresses are of. `threads`: how many may look up, all cores where it is left out.

        >>> acl = Classifier.from_rules("udp,tp_dst=53,actions=drop")
        >>> acl.classify({"nw_src": 1, "nw_proto": 17, "tp_dst": np.array([53, 80])}).tolist()
        [0, -1]

        Raises:
            Error: a column that does not suit its field, by name and row.
        """
        if threads is not None and threads < 1:
            raise Error(f"{threads} threads; at least one looks up")
        if isinstance(packets, Mapping):
            _note_missing(self._rules.missing(list(packets), False))
            columns = {name: _array(name, values) for name, values in packets.items()}
            return self._rules.classify_numpy(columns, threads).view(np.int32)
        if _is_arrow(packets):
            packets = _whole(packets)
            found, missing = self._rules.classify_arrow(packets, threads)
            _note_missing(missing)
            return _like(packets, found)
        raise TypeError(
            f"{type(packets).__name__} has neither columns by name nor the Arrow PyCapsule interface;"
            " give a mapping of arrays, or a table of Arrow"
        )

    def insert(self, rules: str) -> list[int]:
        """Adds rules, a line each, all or none of them; their numbers.

        >>> acl = Classifier.from_rules("udp,tp_dst=53,actions=drop")
        >>> acl.insert("priority=9,udp,actions=drop")
        [1]
        """
        return self._rules.insert_text(rules)

    def explain(self, packet: Mapping[str, int]) -> dict[str, Any]:
        """How the answer for one packet comes about: `rule`, `next_rule` (which would win without it), `engine`,
        `variant`, how many `nodes` and `rules` were read, and the bits of each field that it `depends_on`.

        >>> Classifier.from_rules("udp,tp_dst=53,actions=drop").explain({"nw_src": 1, "nw_proto": 17, "tp_dst": 53})["rule"]
        0
        """
        return self._rules.explain_packet(dict(packet))

    def remove(self, rule: int) -> bool:
        """Removes the rule of this number; says whether it was there."""
        return self._rules.remove(rule)

    @property
    def fields(self) -> list[str]:
        """The fields that any rule looks at: the columns that `classify` wants."""
        return self._rules.fields

    @property
    def engine(self) -> tuple[str, str]:
        """The engine that has the rules, and its variant."""
        return self._rules.engine

    @property
    def table_bytes(self) -> int:
        """Bytes of the tables."""
        return self._rules.table_bytes

    def __getitem__(self, number: int) -> str:
        """The rule of this number, as text."""
        if not 0 <= number < 1 << 32:
            raise KeyError(f"there is no rule {number}")
        return self._rules.rule(number)

    def __iter__(self) -> Iterator[int]:
        """The numbers of all rules, ascending."""
        return iter(self._rules.numbers())

    def __contains__(self, number: int) -> bool:
        return 0 <= number < 1 << 32 and self._rules.has(number)

    def __len__(self) -> int:
        return len(self._rules)

    def __reduce__(self) -> tuple[Any, ...]:
        """It is pickled by its rules, and built anew from them."""
        return Classifier._restored, self._rules.state()

    @classmethod
    def _restored(
        cls, numbers: list[int], priorities: list[int], text: str, engine: str, next_number: int, table: int
    ) -> Classifier:
        return cls(_flowlane.Classifier.from_numbered(numbers, priorities, text, engine, next_number, table))

    def __repr__(self) -> str:
        engine, variant = self.engine
        return f"<flowlane.Classifier: {len(self)} rules, {engine}/{variant}, {self.table_bytes} bytes>"


class RouteTable:
    """Routes of IPv4 and IPv6: the next hop of the longest prefix that an address is in.

    >>> routes = RouteTable.from_routes("10.0.0.0/8 1\\n10.1.0.0/16 2\\n2001:db8::/32 7")
    >>> routes.lookup(np.array([0x0A010001, 0x0A020001, 0x0B000001], "u4")).tolist()
    [2, 1, -1]
    """

    def __init__(self, routes: _flowlane.RouteTable) -> None:
        self._routes = routes

    @classmethod
    def from_routes(cls, source: str | os.PathLike[str]) -> RouteTable:
        """The routes of a file (which may be packed by gzip or zstd) or of a text: prefix and next hop, a line each, or the
        output of `ip route`."""
        is_text = isinstance(source, str) and ("\n" in source or " " in source)
        if is_text and not os.path.isfile(source):
            return cls(_flowlane.RouteTable.from_text(source))
        return cls(_flowlane.RouteTable.from_file(os.fspath(source)))

    def lookup(self, addresses: Any) -> np.ndarray:
        """The next hop of each address, -1 where there is no route: an array of `int64`.

        `addresses` are integers of 32 bits for IPv4, or rows of 16 bytes for IPv6. Next hops that are no numbers where they were read have
        numbers from 1 on; `next_hop` says what they are.
        """
        array = _array("addresses", addresses)
        if isinstance(array, int):
            array = np.array([array])
        if array.ndim == 2:
            found = self._routes.lookup_v6(array)
        elif array.dtype.itemsize > 4 and array.size and array.max() > 0xFFFF_FFFF:
            raise Error(f"addresses of IPv4 have 32 bits; row {int(array.argmax())} has more")
        else:
            found = self._routes.lookup_v4(array.astype(np.uint32, copy=False))
        return np.where(found == _NONE, np.int64(-1), found.astype(np.int64))

    def route(self, address: str) -> tuple[str, int] | None:
        """The route of an address: its prefix and next hop."""
        return self._routes.route(str(address))

    def next_hop(self, number: int) -> str:
        """What the routes that were read call a next hop: `192.0.2.1 dev eth0`, `blackhole`; the number itself where they have numbers.

        >>> RouteTable.from_routes("0.0.0.0/0 192.0.2.1").next_hop(1)
        '192.0.2.1'
        """
        return self._routes.next_hop(number) or str(number)

    def insert(self, prefix: str, next_hop: int) -> int | None:
        """Adds a route, or replaces its next hop; the one that it had."""
        return self._routes.insert(str(prefix), next_hop)

    def remove(self, prefix: str) -> bool:
        """Removes the route of exactly this prefix; says whether it was there."""
        return self._routes.remove(str(prefix))

    def __len__(self) -> int:
        return len(self._routes)

    def __repr__(self) -> str:
        return f"<flowlane.RouteTable: {len(self)} routes>"


class CuckooMap:
    """Numbers of 32 bits by keys of 1 to 64 bytes, all of one width: flows, hosts, sessions.

    Keys are integers (of 4 or 8 bytes), or rows of bytes (`uint8`).

    >>> flows = CuckooMap(key_bytes=4, capacity=1000)
    >>> flows.insert(np.array([7, 9], "u4"), np.array([70, 90]))
    >>> flows.lookup(np.array([9, 8, 7], "u4")).tolist()
    [90, -1, 70]
    """

    def __init__(self, key_bytes: int, capacity: int) -> None:
        self._map = _flowlane.CuckooMap(key_bytes, capacity)
        self._key_bytes = key_bytes

    def _rows(self, keys: Any) -> np.ndarray:
        array = _array("keys", keys)
        if isinstance(array, int):
            raise Error("keys are an array: integers, or rows of bytes")
        if array.ndim == 1:
            array = array.view(np.uint8).reshape(len(array), array.dtype.itemsize)
        return array

    def insert(self, keys: Any, values: Any) -> None:
        """Gives keys these values; where it is full, `Error` says from which row on nothing was inserted."""
        values = np.asarray(values)
        if values.dtype.kind not in "ui" or (values.size and (values.min() < 0 or values.max() > 0xFFFF_FFFF)):
            raise Error("values are integers of 32 bits that are not negative")
        self._map.insert(self._rows(keys), np.ascontiguousarray(values, np.uint32))

    def lookup(self, keys: Any) -> np.ndarray:
        """The value of each key, -1 where it is not there: an array of `int64`."""
        values, there = self._map.lookup(self._rows(keys))
        return np.where(there, values.astype(np.int64), np.int64(-1))

    def remove(self, keys: Any) -> np.ndarray:
        """Removes keys; for each whether it was there."""
        return self._map.remove(self._rows(keys))

    @property
    def table_bytes(self) -> int:
        """Bytes of the table, and of what is kept to change it."""
        return self._map.table_bytes

    def __len__(self) -> int:
        return len(self._map)


class BloomFilter:
    """A set that forgets what it holds: no key that was inserted is denied, others are confirmed at a rate.

    Keys are integers of up to 64 bits, or rows of bytes (`uint8`); the same key by both is two.

    >>> seen = BloomFilter(items=1000, rate=0.001)
    >>> seen.insert(np.arange(1000))
    >>> bool(seen.contains(np.arange(1000)).all())
    True
    """

    def __init__(self, items: int, rate: float = 0.01) -> None:
        self._filter = _flowlane.BloomFilter(items, rate)

    def insert(self, keys: Any) -> None:
        """Inserts keys."""
        array = np.atleast_1d(_array("keys", keys))
        if array.ndim == 2:
            self._filter.insert_rows(array)
        else:
            self._filter.insert_numbers(array.astype(np.uint64))

    def contains(self, keys: Any) -> np.ndarray:
        """For each key whether it may be in."""
        array = np.atleast_1d(_array("keys", keys))
        if array.ndim == 2:
            return self._filter.contains_rows(array)
        return self._filter.contains_numbers(array.astype(np.uint64))

    @property
    def table_bytes(self) -> int:
        """Bytes of the filter."""
        return self._filter.table_bytes


class Packets:
    """Packets as a stream of record batches, which is read once: what `read_capture` gives.

    It has the Arrow PyCapsule interface, by which every library of Arrow takes it. Its other methods are pyarrow's, which has to be there.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._reader: Any = None

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        if self._reader is not None:
            return self._reader.__arrow_c_stream__(requested_schema)
        return self._stream.__arrow_c_stream__(requested_schema)

    def _by_pyarrow(self) -> Any:
        if self._reader is None:
            import pyarrow

            self._reader = pyarrow.RecordBatchReader.from_stream(self._stream)
        return self._reader

    @property
    def schema(self) -> Any:
        """Names and types of the columns."""
        return self._by_pyarrow().schema

    def __iter__(self) -> Iterator[Any]:
        """The record batches that are left."""
        return iter(self._by_pyarrow())

    def read_all(self) -> Any:
        """A table of all packets that are left."""
        return self._by_pyarrow().read_all()


def read_capture(
    source: str | os.PathLike[str] | BinaryIO,
    columns: Iterable[str] | None = None,
    *,
    batch_size: int = 65536,
    in_port: int = 1,
    decapsulate: bool = False,
    split: tuple[int, int, int] | None = None,
) -> Packets:
    """The packets of a capture (pcap or pcapng, packed by gzip or zstd or not) as a stream of record batches.

    It has the Arrow PyCapsule interface: `pyarrow.table(…)`, `polars.DataFrame(…)`, DuckDB and `Classifier.classify` read it; or take
    batch by batch (`for batch in read_capture(path)`, by pyarrow). Memory is bounded by the batch.

    `source` is a path, or anything with a method `read` that gives bytes: an open file, `io.BytesIO`, a file of fsspec. It is read once,
    from where it is, and not closed. What its `read` raises is raised.

    `columns` are names of fields as in rules, `time` (nanoseconds, UTC), `captured` and `length` (bytes), `fault` (why a packet
    was not parsed to its end), `packet` (its number in the capture, from 0) and `frame` (its bytes); where they are left out, what analysts of flows usually ask. Null is a
    field that the packet does not have. With `decapsulate`, packets in VXLAN, GENEVE and GTP-U are read in the place of what
    carries them, and have the tunnel's fields (`tun_id`, `tun_src`, ..).

    `split` is a part of the capture that `split_capture` has found.

    Where the capture is damaged, all packets before that come, and a `RuntimeWarning` says where.
    """
    named = None if columns is None else list(columns)
    if hasattr(source, "read"):
        own = getattr(source, "name", None)
        name = own if isinstance(own, str) else f"<{type(source).__name__}>"
        return Packets(_flowlane.capture_batches(source, name, named, batch_size, in_port, decapsulate, split))
    path = os.fspath(source)
    return Packets(_flowlane.capture_batches(path, os.fsdecode(path), named, batch_size, in_port, decapsulate, split))


def split_capture(path: str | os.PathLike[str], size: int = 256 << 20) -> list[tuple[int, int, int]]:
    """Parts of a capture of about `size` bytes, so that several processes or machines read it.

    Each is where it begins in the file, the number of its first packet, and how many packets it has; `read_capture` takes it as
    `split`. The file is read once for it. One that is packed, or that describes interfaces behind its first packet (pcapng),
    stays one part.

    Where the capture is damaged, the parts are those before the damage, and a `RuntimeWarning` says where it is.
    """
    parts, damage = _flowlane.capture_splits(os.fspath(path), size)
    if damage is not None:
        warnings.warn(f"{os.fspath(path)}: {damage}", RuntimeWarning, stacklevel=2)
    return parts
