"""Tests of routes, compared with the `ipaddress` module."""

import ipaddress

import flowlane
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

addresses = st.sampled_from([0, 1, 0x0A000000, 0x0A0000FF, 0x0A010101, 0xFFFFFFFF])
prefixes = st.tuples(addresses, st.integers(0, 32)).map(
    lambda p: ipaddress.ip_network((p[0] & ~(2 ** (32 - p[1]) - 1), p[1]))
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(prefixes, st.integers(0, 300), min_size=1), st.lists(addresses, min_size=1), st.data())
def test_the_longest_prefix_wins(routes, asked, data):
    table = flowlane.RouteTable.from_routes("".join(f"{prefix} {hop}\n" for prefix, hop in routes.items()))

    def check():
        for number, found in zip(asked, table.lookup(np.array(asked, "u4")).tolist()):
            address = ipaddress.ip_address(number)
            covering = [prefix for prefix in routes if address in prefix]
            longest = max(covering, key=lambda prefix: prefix.prefixlen, default=None)
            assert found == (-1 if longest is None else routes[longest])
            assert table.route(address) == (None if longest is None else (str(longest), routes[longest]))

    check()
    gone = data.draw(st.sampled_from(sorted(routes)))
    new, hop = data.draw(prefixes), data.draw(st.integers(0, 70_000))
    del routes[gone]
    assert table.remove(gone) and not table.remove(gone)
    assert table.insert(new, hop) == routes.get(new)
    routes[new] = hop
    assert len(table) == len(routes)
    check()


def test_ipv6_and_what_is_refused(tmp_path):
    table = flowlane.RouteTable.from_routes("2001:db8::/32 7\n2001:db8:1::/48 8\n::/0 1\n")
    asked = ["2001:db8::1", "2001:db8:1::1", "::1"]
    rows = np.frombuffer(b"".join(ipaddress.ip_address(a).packed for a in asked), "u1").reshape(-1, 16)
    assert table.lookup(rows).tolist() == [7, 8, 1]
    (tmp_path / "r").write_text("10.0.0.0/8 5\n")
    assert flowlane.RouteTable.from_routes(tmp_path / "r").lookup(0x0A000001).tolist() == [5]
    with pytest.raises(flowlane.Error, match="r:1:"):
        (tmp_path / "r").write_text("10.0.0.0/33 5\n")
        flowlane.RouteTable.from_routes(tmp_path / "r")
    with pytest.raises(flowlane.Error, match="row 1 has more"):
        table.lookup(np.array([1, 1 << 32]))
    with pytest.raises(flowlane.Error, match="10.0.0.0/40"):
        table.insert("10.0.0.0/40", 1)
    with pytest.raises(flowlane.Error, match="16 bytes"):
        table.lookup(np.zeros((1, 4), "u1"))


def test_next_hops_have_names_where_they_are_no_numbers():
    table = flowlane.RouteTable.from_routes("0.0.0.0/0 192.0.2.1\n128.0.0.0/1 192.0.2.9")
    found = table.lookup(np.array([1, 0x80000000], "u4"))
    assert [table.next_hop(number) for number in found.tolist()] == ["192.0.2.1", "192.0.2.9"]
    assert flowlane.RouteTable.from_routes("0.0.0.0/0 7").next_hop(7) == "7"
