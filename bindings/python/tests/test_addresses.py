"""Tests of addresses as objects of `ipaddress`, and of columns with nulls, as captures have them."""

import ipaddress
import warnings

import flowlane
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

ROUTES = "10.0.0.0/8 1\n10.1.0.0/16 2\n2001:db8::/32 7\n"
V4 = [0x0A010001, None, 0x0B000001, 0x0A020001]
V6 = [ipaddress.ip_address("2001:db8::1").packed, None, ipaddress.ip_address("::1").packed]


def columns_of(values, kind):
    """The values, with nulls, as a column of each library."""
    arrow = pa.array(values, kind)
    yield arrow
    yield pa.chunked_array([arrow[:1], arrow[1:]])
    yield pl.Series(values, dtype=pl.UInt32 if kind == pa.uint32() else pl.Binary)
    if kind == pa.uint32():
        yield pd.Series(values, dtype="UInt32")
        yield pd.Series(values)  # floats
        yield np.ma.MaskedArray([value or 0 for value in values], [value is None for value in values])
        yield pd.Series(arrow.to_pandas(types_mapper=pd.ArrowDtype))
    else:
        yield pd.Series(values, dtype=object)


def test_addresses_become_columns_and_columns_addresses():
    texts = ["192.0.2.1", "10.0.0.1", "255.255.255.255", "0.0.0.0"]
    objects = [ipaddress.ip_address(text) for text in texts]
    for given in [texts, objects, iter(objects), np.array(texts)]:
        column = flowlane.addresses(given)
        assert column.dtype == np.uint32 and column.tolist() == [int(address) for address in objects]
    assert flowlane.ip_addresses(column) == objects
    assert flowlane.ip_addresses(column.astype(">u4").view("u1").reshape(-1, 4)) == objects, "rows of bytes"
    assert flowlane.ip_addresses(column.view("i4")) == objects, "as Spark has them"
    texts = ["2001:db8::1", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"]
    column = flowlane.addresses(texts)
    assert column.shape == (3, 16) and flowlane.ip_addresses(column) == [ipaddress.ip_address(text) for text in texts]
    assert flowlane.addresses([]).tolist() == [] and flowlane.ip_addresses(flowlane.addresses([])) == []


def test_what_is_no_address_is_named_with_its_row():
    for values, message in [
        (["10.0.0.1", "10.0.0.256"], "row 1: '10.0.0.256' does not appear to be"),
        (["10.0.0.1", "::1"], "row 1: ::1 is IPv6, and those before are IPv4"),
        ([None], "row 0"),
    ]:
        with pytest.raises(flowlane.Error, match=message):
            flowlane.addresses(values)
    with pytest.raises(flowlane.Error, match="IPv4 addresses have 32 bits; row 1 has more"):
        flowlane.ip_addresses(np.array([1, 1 << 32]))
    with pytest.raises(flowlane.Error, match="addresses have 4 or 16 bytes; the values have 6"):
        flowlane.ip_addresses(np.zeros((1, 6), "u1"))
    with pytest.raises(flowlane.Error, match="has the type"):
        flowlane.ip_addresses(np.array([1.5]))


def test_nulls_of_columns_are_no_addresses_and_have_no_route():
    routes = flowlane.RouteTable.from_routes(ROUTES)
    for column in columns_of(V4, pa.uint32()):
        assert routes.lookup(column).tolist() == [2, -1, -1, 1], type(column)
        wanted = [None if value is None else ipaddress.ip_address(value) for value in V4]
        assert flowlane.ip_addresses(column) == wanted, type(column)
    for kind in [pa.binary(16), pa.binary()]:
        for column in columns_of(V6, kind):
            assert routes.lookup(column).tolist() == [7, -1, -1], type(column)
            wanted = [None if value is None else ipaddress.ip_address(value) for value in V6]
            assert flowlane.ip_addresses(column) == wanted, type(column)
    assert flowlane.ip_addresses(pa.array([None, None], pa.binary(16))) == [None, None]
    assert flowlane.ip_addresses(pl.Series([None, None], dtype=pl.UInt32)) == [None, None]


def test_nulls_are_in_no_map_and_no_filter():
    flows, seen = flowlane.CuckooMap(key_bytes=4, capacity=100), flowlane.BloomFilter(items=100)
    # A null must not be taken for the key 0.
    flows.insert(np.array([0, V4[0]], "u4"), np.array([5, 6]))
    seen.insert(np.array([0, V4[0]], "u4"))
    for column in columns_of(V4, pa.uint32()):
        if isinstance(column, pd.Series) and column.dtype == "float64":
            continue  # eight bytes each
        if isinstance(column, np.ma.MaskedArray):
            column = column.astype("u4")
        assert flows.lookup(column).tolist() == [6, -1, -1, -1], type(column)
        assert not seen.contains(column)[1], type(column)
        with pytest.raises(flowlane.Error, match="column `keys`, row 1: the value is null"):
            flows.insert(column, np.arange(4))
        with pytest.raises(flowlane.Error, match="column `keys`, row 1: the value is null"):
            seen.insert(column)
    assert flows.remove(pa.array(V4, pa.uint32())).tolist() == [True, False, False, False]
    assert flows.lookup(np.array([0], "u4")).tolist() == [5]


def test_columns_with_nulls_are_classified_as_tables_are():
    acl = flowlane.Classifier.from_rules("ip,nw_dst=10.0.0.0/8,actions=drop\npriority=1,ip,nw_dst=0.0.0.0,actions=drop\npriority=0,actions=drop")
    types = np.array([0x0800, 0x86DD, 0x0800, 0x0800], "u2")
    wanted = acl.classify(pa.table({"dl_type": types, "nw_dst": pa.array(V4, pa.uint32())})).to_pylist()
    assert wanted == [0, 2, 2, 0]
    for column in columns_of(V4, pa.uint32()):
        found = acl.classify({"dl_type": types, "nw_dst": column})
        assert found.tolist() == wanted and found.dtype == np.int32, type(column)
    inside = flowlane.Classifier.from_rules("ipv6,ipv6_dst=2001:db8::/32,actions=drop")
    for column in columns_of(V6, pa.binary(16)):
        found = inside.classify({"dl_type": np.array([0x86DD, 0x0800, 0x86DD], "u2"), "ipv6_dst": column, "nw_proto": 6})
        assert found.tolist() == [0, -1, -1], type(column)


def test_one_address_for_all_packets():
    acl = flowlane.Classifier.from_rules("ip,nw_dst=10.0.0.0/8,actions=drop")
    packets = {"nw_dst": ipaddress.ip_address("10.0.0.1"), "nw_proto": np.array([6, 17])}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert acl.classify(packets).tolist() == [0, 0]
    assert acl.explain({"nw_dst": ipaddress.ip_address("10.0.0.1")})["rule"] == 0


def test_captured_columns_have_addresses_and_routes(tmp_path):
    frame = "020000000002020000000001" "0800" "4500002000010000401100000a0000010a000002" "03e80035000c0000" "deadbeef"
    other = "0200000000020200000000018" "8b5" + "00" * 32
    record = "00f1536500000000" "2e000000" "2e000000"
    header = "d4c3b2a1020004000000000000000000ffff000001000000"
    (tmp_path / "t.pcap").write_bytes(bytes.fromhex(header + record + frame + record + other))
    table = flowlane.read_capture(tmp_path / "t.pcap").read_all()
    routes = flowlane.RouteTable.from_routes("10.0.0.0/8 1\n0.0.0.0/32 9\n")
    for column in [table["nw_src"], pl.DataFrame(table)["nw_src"], table.to_pandas()["nw_src"]]:
        assert flowlane.ip_addresses(column) == [ipaddress.ip_address("10.0.0.1"), None], type(column)
        assert routes.lookup(column).tolist() == [1, -1], type(column)
