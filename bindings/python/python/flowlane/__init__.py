"""Packet classification with SIMD: access lists, routes, exact-match tables, Bloom filters and captures.

>>> import flowlane, numpy as np
>>> acl = flowlane.Classifier.from_rules("tcp,nw_dst=10.0.0.0/8,tp_dst=22,actions=drop\\nip,actions=output:1")
>>> acl.classify({"nw_dst": np.array([0x0A000001, 0x0B000001], "u4"), "nw_proto": 6, "tp_dst": 22}).tolist()
[0, 1]
"""

from __future__ import annotations

import ipaddress
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

from . import _flowlane
from ._flowlane import Error, __version__, set_max_simd

__all__ = [
    "BloomFilter",
    "Classifier",
    "CuckooMap",
    "Error",
    "Packets",
    "RouteTable",
    "__version__",
    "addresses",
    "ip_addresses",
    "read_capture",
    "set_max_simd",
    "split_capture",
]

_NONE = np.uint32(0xFFFF_FFFF)

_ADDRESS = (ipaddress.IPv4Address, ipaddress.IPv6Address)


def _bytes(name: str, values: Any) -> np.ndarray:
    """Converts byte strings of one length to rows of bytes."""
    lengths = {len(value) for value in values}
    if len(lengths) > 1:
        raise Error(f"column `{name}` has values of {' and '.join(map(str, sorted(lengths)))} bytes; they must have one length")
    width = lengths.pop() if lengths else 1
    return np.frombuffer(b"".join(values), np.uint8).reshape(-1, width)


def _without_nulls(name: str, values: Any) -> tuple[Any, np.ndarray | None]:
    """Converts a series of pandas or polars, an array of pyarrow, or a masked array of numpy to an array in which nulls are 0.

    Also returns which values are present; None where all are. Other values are returned as they are.
    """
    library = type(values).__module__.split(".")[0]
    if isinstance(values, np.ma.MaskedArray):
        present, filled = ~np.ma.getmaskarray(values), values.filled(0)
        if present.ndim == 2:
            present = present.all(axis=1)
    elif library == "polars":
        present = values.is_not_null().to_numpy()
        if values.dtype.is_integer() or values.dtype.is_float():
            filled = values.fill_null(0).to_numpy()
        else:
            filled = values.to_list()
    elif library == "pandas":
        present = values.notna().to_numpy()
        filled = values.to_list() if values.dtype == object else values.fillna(0).to_numpy()
        if not present.all() and getattr(filled, "dtype", np.dtype("u1")).kind in "fO" and values.dtype != object:
            filled = filled.astype(np.float64)
    elif library == "pyarrow":
        present = np.asarray(values.is_valid())
        kind = str(values.type)
        filled = values.to_pylist() if "binary" in kind else np.asarray(values.fill_null(0))
    else:
        return values, None
    if isinstance(filled, list):
        sizes = [len(value) for value in filled if isinstance(value, (bytes, bytearray))]
        width = sizes[0] if sizes else 1
        if any(value is not None and value == value and not isinstance(value, (bytes, bytearray)) for value in filled):
            return values, None
        filled = _bytes(name, [value if isinstance(value, (bytes, bytearray)) else bytes(width) for value in filled])
    elif filled.dtype.kind == "f" and (filled == np.trunc(filled)).all() and not present.all():
        # Pandas has integers with missing values as floats.
        filled = filled.astype(np.int64)
    return filled, None if present.all() else present


def addresses(values: Iterable[Any]) -> np.ndarray:
    """Converts addresses, as text or objects of `ipaddress`, to a column: integers for IPv4, rows of 16 bytes for IPv6.

    >>> addresses(["192.0.2.1", ipaddress.ip_address("10.0.0.1")])
    array([3221225985,  167772161], dtype=uint32)
    >>> addresses(["2001:db8::1"]).shape
    (1, 16)

    Raises:
        Error: a value is no address, or addresses of both versions are mixed; names the row.
    """
    own: list[Any] = []
    for row, value in enumerate(values):
        try:
            own.append(ipaddress.ip_address(value))
        except ValueError as error:
            raise Error(f"row {row}: {error}") from error
        if own[0].version != own[-1].version:
            raise Error(f"row {row}: {own[-1]} is IPv{own[-1].version}, and those before are IPv{own[0].version}; make a column for each")
    if own and own[0].version == 6:
        return _bytes("addresses", [address.packed for address in own])
    return np.array([int(address) for address in own], np.uint32)


def ip_addresses(column: Any) -> list[Any]:
    """Converts a column of addresses to objects of `ipaddress`: integers to IPv4, values of 16 bytes to IPv6, nulls to None.

    The column is an array, or a column of pyarrow, polars or pandas, such as a captured one.

    >>> ip_addresses(np.array([0xC0000201], "u4"))
    [IPv4Address('192.0.2.1')]
    >>> ip_addresses(addresses(["2001:db8::1"]))
    [IPv6Address('2001:db8::1')]

    Raises:
        Error: the values are no addresses: not integers of 32 bits, nor of 16 bytes.
    """
    values, present = _without_nulls("addresses", column)
    array = _array("addresses", values)
    array = np.atleast_1d(array)
    if array.ndim == 2 and array.shape[1] == 4:
        array = np.ascontiguousarray(array).view(">u4").reshape(-1)
    if array.ndim == 2:
        # A column of nothing but nulls has no width.
        if array.shape[1] != 16 and (present is None or present.any()):
            raise Error(f"addresses have 4 or 16 bytes; the values have {array.shape[1]}")
        found: list[Any] = [ipaddress.IPv6Address(row.tobytes().rjust(16, b"\0")) for row in array]
    else:
        if array.dtype.itemsize > 4 and array.size and array.max() > 0xFFFF_FFFF:
            raise Error(f"IPv4 addresses have 32 bits; row {int(array.argmax())} has more")
        found = [ipaddress.IPv4Address(int(value)) for value in array]
    if present is None:
        return found
    return [address if there else None for address, there in zip(found, present.tolist())]


def _array(name: str, values: Any) -> Any:
    """Converts a column for the compiled part: unsigned, native-endian and contiguous."""
    if isinstance(values, _ADDRESS):
        return int(values)
    if isinstance(values, (int, np.integer)) and not isinstance(values, (bool, np.bool_)):
        if values < 0:
            raise Error(f"column `{name}`: {values} is negative")
        return int(values)
    values, present = _without_nulls(name, values)
    if present is not None:
        row = int(np.argmin(present))
        raise Error(f"column `{name}`, row {row}: the value is null; leave such rows out")
    array = np.asarray(values)
    if array.size == 0 and not isinstance(values, np.ndarray):
        array = array.astype(np.uint8)
    if array.dtype.kind == "b":
        array = array.view(np.uint8)
    if array.dtype.kind not in "ui":
        raise Error(
            f"column `{name}` has the type {array.dtype}; expected one integer per packet, or rows of bytes (uint8)"
        )
    if array.ndim not in (1, 2) or (array.ndim == 2 and array.dtype != np.uint8):
        raise Error(
            f"column `{name}` has the shape {array.shape} and type {array.dtype}; expected one integer per packet,"
            " or rows of bytes (uint8)"
        )
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    array = np.require(array, requirements="CA")
    return array.view(f"u{array.dtype.itemsize}")


def _is_arrow(packets: Any) -> bool:
    return hasattr(packets, "__arrow_c_stream__") or hasattr(packets, "__arrow_c_array__")


def _whole(packets: Any) -> Any:
    """Converts float columns of a pandas frame to nullable integers: pandas stores integers with missing values as floats."""
    if type(packets).__module__.split(".")[0] != "pandas":
        return packets
    floats = [name for name in packets.columns if getattr(packets.dtypes[name], "kind", "") == "f" and name in _flowlane.FIELDS]
    try:
        return packets.astype({name: "Int64" for name in floats})
    except (TypeError, ValueError) as error:
        names = ", ".join(f"`{name}`" for name in floats)
        raise Error(f"one of the columns {names} has values that are not integers: {error}") from error


def _table(columns: Mapping[str, Any]) -> Any:
    """Makes an Arrow table of columns of which some have nulls."""
    import pyarrow

    converted: dict[str, Any] = {}
    for name, values in columns.items():
        values, present = _without_nulls(name, values)
        converted[name] = (_array(name, values), present)
    rows = next((len(array) for array, _ in converted.values() if not isinstance(array, int)), 0)
    out = {}
    for name, (array, present) in converted.items():
        mask = None if present is None else ~present
        if isinstance(array, int):
            width = (array.bit_length() + 7) // 8 or 1
            array = np.full(rows, array, np.uint64) if width <= 8 else _bytes(name, [array.to_bytes(16, "big")] * rows)
        if array.ndim == 2:
            kind = pyarrow.binary(array.shape[1])
            there = [True] * len(array) if present is None else present.tolist()
            rows_of_bytes = [row.tobytes() if is_there else None for row, is_there in zip(array, there)]
            out[name] = pyarrow.array(rows_of_bytes, kind)
        else:
            out[name] = pyarrow.array(array, mask=mask)
    return pyarrow.table(out)


def _note_missing(missing: list[str]) -> None:
    """Warns of fields that the rules inspect and that have no column."""
    if missing:
        what = ", ".join(f"`{name}`" for name in missing)
        warnings.warn(f"rules inspect {what}, but there is no such column; its value is taken as 0", stacklevel=3)


def _like(packets: Any, found: Any) -> Any:
    """Converts an Arrow array to the type of the library that the packets came from."""
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
    """An access list, which finds the matching rule of the highest priority for each packet.

    A rule's number is its position in the list of the file's rules, from 0; inserted rules get the next numbers. In the list, a flow
    with the table, priority and match of an earlier one takes that one's place, and a range of ICMP types or codes is a rule for each
    prefix of it. Of several matching rules, the one with the highest priority wins, and among equals the earlier one. Any number of
    threads may classify while another changes rules.
    """

    def __init__(self, rules: _flowlane.Classifier) -> None:
        self._rules = rules

    @classmethod
    def from_rules(cls, source: str | os.PathLike[str], engine: str = "auto", *, table: int = 0) -> Classifier:
        """Creates a classifier from a file or text of flows, as `ovs-ofctl` reads them, or ClassBench filters.

        A file may be compressed by gzip or zstd. `engine` is auto, tree, dynamic or brute. Only the flows of OpenFlow table `table` are
        used; their numbers are positions in the list of all tables' rules. `goto_table` is not followed.

        >>> len(Classifier.from_rules("udp,tp_dst=53,actions=drop"))
        1

        Raises:
            Error: invalid lines, each with file, line and column.
            FileNotFoundError: the file does not exist.
        """
        if not 0 <= table <= 254:
            raise Error(f"table {table}; expected 0 to 254")
        if isinstance(source, str) and not source.strip():
            raise Error("the text is empty; give the path of a file, or one rule per line")
        is_text = isinstance(source, str) and ("\n" in source or "=" in source or source.startswith("@"))
        if is_text and not os.path.isfile(source):
            return cls(_flowlane.Classifier.from_text(source, engine, table))
        return cls(_flowlane.Classifier.from_file(os.fspath(source), engine, table))

    def classify(self, packets: Any, *, threads: int | None = None) -> Any:
        """Returns the number of the matching rule of each packet.

        `packets` are columns named as fields in rules (`nw_src`, `tp_dst`, …; see `fields`):

        - a mapping of names to numpy arrays of integers (signed ones are reinterpreted as unsigned), to arrays of `uint8` with one row
          per packet (IPv6 and MAC addresses in network byte order), to columns of pyarrow, polars or pandas, or to one integer (or object
          of `ipaddress`) for all packets. A null is an absent field, and requires pyarrow. The result is an array of `int32`; -1 without a match.
        - an Arrow table or record batch, or an object with the PyCapsule interface (pyarrow, polars, DuckDB, pandas): integers and
          fixed-size binaries are read without copying. The result is a Series for a polars frame, else a pyarrow array; null without a
          match. Columns that are not fields are ignored; a null is an absent field.

        Fields without a column are 0, with a `UserWarning` if rules inspect them; without `dl_type`, the addresses determine the packet
        type. `threads` is the maximum number of threads, by default all cores.

        >>> acl = Classifier.from_rules("udp,tp_dst=53,actions=drop")
        >>> acl.classify({"nw_src": 1, "nw_proto": 17, "tp_dst": np.array([53, 80])}).tolist()
        [0, -1]

        Raises:
            Error: a column does not fit its field; names the column and row.
        """
        if threads is not None and threads < 1:
            raise Error(f"{threads} threads; expected at least one")
        if isinstance(packets, Mapping):
            if any(_without_nulls(name, values)[1] is not None for name, values in packets.items()):
                found = self.classify(_table(packets), threads=threads)
                return np.asarray(found.fill_null(int(_NONE))).view(np.int32)
            _note_missing(self._rules.missing(list(packets), False))
            columns = {name: _array(name, values) for name, values in packets.items()}
            return self._rules.classify_numpy(columns, threads).view(np.int32)
        if _is_arrow(packets):
            packets = _whole(packets)
            found, missing = self._rules.classify_arrow(packets, threads)
            _note_missing(missing)
            return _like(packets, found)
        raise TypeError(
            f"{type(packets).__name__} is neither a mapping of columns nor has the Arrow PyCapsule interface;"
            " give a mapping of arrays, or an Arrow table"
        )

    def insert(self, rules: str) -> list[int]:
        """Adds rules, one per line, all or none; returns their numbers.

        >>> acl = Classifier.from_rules("udp,tp_dst=53,actions=drop")
        >>> acl.insert("priority=9,udp,actions=drop")
        [1]
        """
        return self._rules.insert_text(rules)

    def explain(self, packet: Mapping[str, Any]) -> dict[str, Any]:
        """Explains the lookup of one packet: `rule`, `next_rule` (which would match without it), `engine`, `variant`, the number of
        `nodes` and `rules` read, and the bits of each field that the result `depends_on`.

        >>> Classifier.from_rules("udp,tp_dst=53,actions=drop").explain({"nw_src": 1, "nw_proto": 17, "tp_dst": 53})["rule"]
        0
        """
        return self._rules.explain_packet({name: int(value) if isinstance(value, _ADDRESS) else value for name, value in packet.items()})

    def remove(self, rule: int) -> bool:
        """Removes the rule of this number; returns whether it existed."""
        return self._rules.remove(rule)

    @property
    def fields(self) -> list[str]:
        """The fields that the rules inspect, which are the columns that `classify` needs."""
        return self._rules.fields

    @property
    def engine(self) -> tuple[str, str]:
        """The engine that holds the rules, and its variant."""
        return self._rules.engine

    @property
    def table_bytes(self) -> int:
        """Size of the tables in bytes."""
        return self._rules.table_bytes

    def __getitem__(self, number: int) -> str:
        """Returns the rule of this number as text."""
        if not 0 <= number < 1 << 32:
            raise KeyError(f"there is no rule {number}")
        return self._rules.rule(number)

    def __iter__(self) -> Iterator[int]:
        """Iterates over the numbers of all rules, ascending."""
        return iter(self._rules.numbers())

    def __contains__(self, number: int) -> bool:
        return 0 <= number < 1 << 32 and self._rules.has(number)

    def __len__(self) -> int:
        return len(self._rules)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the rules; unpickling rebuilds the tables."""
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
    """A table of IPv4 and IPv6 routes, with longest-prefix-match lookups.

    >>> routes = RouteTable.from_routes("10.0.0.0/8 1\\n10.1.0.0/16 2\\n2001:db8::/32 7")
    >>> routes.lookup(np.array([0x0A010001, 0x0A020001, 0x0B000001], "u4")).tolist()
    [2, 1, -1]
    """

    def __init__(self, routes: _flowlane.RouteTable) -> None:
        self._routes = routes

    @classmethod
    def from_routes(cls, source: str | os.PathLike[str]) -> RouteTable:
        """Creates a table from a file (may be compressed by gzip or zstd) or text: a prefix and next hop per line, or the output of
        `ip route`."""
        is_text = isinstance(source, str) and ("\n" in source or " " in source)
        if is_text and not os.path.isfile(source):
            return cls(_flowlane.RouteTable.from_text(source))
        return cls(_flowlane.RouteTable.from_file(os.fspath(source)))

    def lookup(self, addresses: Any) -> np.ndarray:
        """Returns the next hop of each address, -1 without a route, as an array of `int64`.

        `addresses` are 32-bit integers for IPv4, or rows of 16 bytes for IPv6, as an array or as a column of pyarrow, polars or pandas; a
        null has no route. Next hops that are not numbers in the file are numbered from 1; `next_hop` returns their names.
        """
        values, present = _without_nulls("addresses", addresses)
        array = _array("addresses", values)
        if isinstance(array, int):
            array = np.array([array])
        if array.ndim == 2:
            found = self._routes.lookup_v6(array)
        elif array.dtype.itemsize > 4 and array.size and array.max() > 0xFFFF_FFFF:
            raise Error(f"IPv4 addresses have 32 bits; row {int(array.argmax())} has more")
        else:
            found = self._routes.lookup_v4(array.astype(np.uint32, copy=False))
        absent = found == _NONE if present is None else (found == _NONE) | ~present
        return np.where(absent, np.int64(-1), found.astype(np.int64))

    def route(self, address: str) -> tuple[str, int] | None:
        """Returns the route of an address: prefix and next hop."""
        return self._routes.route(str(address))

    def next_hop(self, number: int) -> str:
        """Returns the name of a next hop in the file, such as `192.0.2.1 dev eth0` or `blackhole`, or its number.

        >>> RouteTable.from_routes("0.0.0.0/0 192.0.2.1").next_hop(1)
        '192.0.2.1'
        """
        return self._routes.next_hop(number) or str(number)

    def insert(self, prefix: str, next_hop: int) -> int | None:
        """Adds a route or replaces its next hop; returns the previous next hop."""
        return self._routes.insert(str(prefix), next_hop)

    def remove(self, prefix: str) -> bool:
        """Removes the route of exactly this prefix; returns whether it existed."""
        return self._routes.remove(str(prefix))

    def __len__(self) -> int:
        return len(self._routes)

    def __repr__(self) -> str:
        return f"<flowlane.RouteTable: {len(self)} routes>"


class CuckooMap:
    """An exact-match table from keys of 1 to 64 bytes, all of one width, to 32-bit integers.

    Keys are integers (of 4 or 8 bytes) or rows of bytes (`uint8`).

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
            raise Error("keys must be an array of integers or of rows of bytes")
        if array.ndim == 1:
            array = array.view(np.uint8).reshape(len(array), array.dtype.itemsize)
        return array

    def insert(self, keys: Any, values: Any) -> None:
        """Inserts keys with values; if the table is full, `Error` states how many keys were inserted."""
        values = np.asarray(values)
        if values.dtype.kind not in "ui" or (values.size and (values.min() < 0 or values.max() > 0xFFFF_FFFF)):
            raise Error("values must be unsigned integers of 32 bits")
        self._map.insert(self._rows(keys), np.ascontiguousarray(values, np.uint32))

    def lookup(self, keys: Any) -> np.ndarray:
        """Returns the value of each key, -1 for absent keys and for nulls, as an array of `int64`."""
        keys, present = _without_nulls("keys", keys)
        values, there = self._map.lookup(self._rows(keys))
        if present is not None:
            there = there & present
        return np.where(there, values.astype(np.int64), np.int64(-1))

    def remove(self, keys: Any) -> np.ndarray:
        """Removes keys; returns whether each was present. A null never is."""
        keys, present = _without_nulls("keys", keys)
        rows = self._rows(keys)
        if present is None:
            return self._map.remove(rows)
        found = np.zeros(len(rows), bool)
        found[present] = self._map.remove(np.ascontiguousarray(rows[present]))
        return found

    @property
    def table_bytes(self) -> int:
        """Size of the table in bytes, including its writer's data."""
        return self._map.table_bytes

    def __len__(self) -> int:
        return len(self._map)


class BloomFilter:
    """A Bloom filter: a set without false negatives, and with false positives at a given rate.

    Keys are integers of up to 64 bits or rows of bytes (`uint8`); an integer and its bytes are different keys.

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
        """Returns for each key whether it may be in the set. A null is not."""
        keys, present = _without_nulls("keys", keys)
        array = np.atleast_1d(_array("keys", keys))
        found = self._filter.contains_rows(array) if array.ndim == 2 else self._filter.contains_numbers(array.astype(np.uint64))
        return found if present is None else found & present

    @property
    def table_bytes(self) -> int:
        """Size of the filter in bytes."""
        return self._filter.table_bytes


class Packets:
    """A stream of record batches of packets, returned by `read_capture`. It can be read once.

    It has the Arrow PyCapsule interface, which all Arrow libraries accept. Its other methods require pyarrow.
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
        """Iterates over the remaining record batches."""
        return iter(self._by_pyarrow())

    def read_all(self) -> Any:
        """Returns the remaining packets as a table."""
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
    """Reads a capture (pcap or pcapng, optionally compressed by gzip or zstd) as a stream of record batches.

    The stream has the Arrow PyCapsule interface: `pyarrow.table(…)`, `polars.DataFrame(…)`, DuckDB and `Classifier.classify` read it; with
    pyarrow it can be iterated (`for batch in read_capture(path)`). Memory is bounded by the size of a batch.

    `source` is a path, or an object with a method `read` that returns bytes: an open file, `io.BytesIO`, an fsspec file. It is read once
    from its current position, and not closed. Exceptions of `read` propagate.

    `columns` are names of fields as in rules, `time` (nanoseconds, UTC), `captured` and `length` (bytes), `fault` (reason why a packet
    was not parsed completely), `packet` (number in the capture, from 0) and `frame` (bytes); the default is a set of columns for flow
    analysis. A null is an absent field. With `decapsulate`, the inner headers of VXLAN, GENEVE, GTP-U, GRE and ERSPAN packets replace the outer
    ones, and tunnel fields are set (`tun_id`, `tun_src`, ..).

    `split` is a part of the capture, from `split_capture`.

    A damaged capture yields all packets that can be read, and a `RuntimeWarning` with the position: records that cannot be read are
    skipped where their end is known, and otherwise the capture ends there.
    """
    named = None if columns is None else list(columns)
    if hasattr(source, "read"):
        own = getattr(source, "name", None)
        name = own if isinstance(own, str) else f"<{type(source).__name__}>"
        return Packets(_flowlane.capture_batches(source, name, named, batch_size, in_port, decapsulate, split))
    path = os.fspath(source)
    return Packets(_flowlane.capture_batches(path, os.fsdecode(path), named, batch_size, in_port, decapsulate, split))


def split_capture(path: str | os.PathLike[str], size: int = 256 << 20) -> list[tuple[int, int, int]]:
    """Splits a capture into parts of about `size` bytes, for several processes or machines.

    A part is a tuple of file offset, number of the first packet, and number of packets; `read_capture` accepts it as `split`. Splitting
    reads the file once. A compressed file, or a pcapng file that describes an interface after its first packet, is one part.

    A damaged capture yields the parts with all packets that can be read, and a `RuntimeWarning` with the position.
    """
    parts, damage = _flowlane.capture_splits(os.fspath(path), size)
    if damage is not None:
        warnings.warn(f"{os.fspath(path)}: {damage}", RuntimeWarning, stacklevel=2)
    return parts
