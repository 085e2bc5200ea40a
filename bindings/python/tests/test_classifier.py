"""Tests of access lists, compared with a linear search in plain Python."""

import gzip
import pickle
import threading

import flowlane
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

NAMES = ["nw_src", "nw_dst", "nw_proto", "tp_src", "tp_dst"]
BITS = {"nw_src": 32, "nw_dst": 32, "nw_proto": 8, "tp_src": 16, "tp_dst": 16}
SMALL = {name: st.sampled_from([0, 1, 2, 3, 2 ** (bits - 1), 2**bits - 1]) for name, bits in BITS.items()}


@st.composite
def rule(draw):
    """Draws a rule, as masks and as text."""
    asked, words = {}, []
    for name, bits in BITS.items():
        if not draw(st.booleans()):
            continue
        value = draw(SMALL[name])
        kept = draw(st.integers(0, bits)) if name.startswith("nw_") and name != "nw_proto" else bits
        mask = (2**bits - 1) ^ (2 ** (bits - kept) - 1)
        asked[name] = (value & mask, mask)
        if name.startswith("nw_") and name != "nw_proto":
            address = ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0))
            words.append(f"{name}={address}/{kept}")
        elif name != "nw_proto":
            words.append(f"{name}={value}")
    if "tp_src" in asked or "tp_dst" in asked:
        asked["nw_proto"] = (draw(st.sampled_from([6, 17])), 255)
    proto = asked.get("nw_proto")
    first = {6: "tcp", 17: "udp"}.get(proto[0]) if proto else "ip"
    words.insert(0, first if first else f"ip,nw_proto={proto[0]}")
    priority = draw(st.integers(0, 3))
    return priority, asked, f"priority={priority},{','.join(words)} actions=drop"


packet = st.fixed_dictionaries({**SMALL, "nw_proto": st.sampled_from([1, 6, 17])})


def best(rules, packet):
    """Returns the first matching rule of the highest priority."""
    won = -1
    for number, (priority, asked, _) in rules.items():
        if all(packet[name] & mask == value for name, (value, mask) in asked.items()):
            if won < 0 or priority > rules[won][0]:
                won = number
    return won


def in_force(rules):
    """Returns the rules by number: one with the priority and match of an earlier one takes its place."""
    latest = {}
    for rule in rules:
        priority, asked, _ = rule
        latest[priority, frozenset(item for item in asked.items() if item[1][1])] = rule
    return dict(enumerate(latest.values()))


def columns(packets):
    types = {"nw_proto": "u1", "tp_src": "u2", "tp_dst": "u2"}
    return {name: np.array([p[name] for p in packets], types.get(name, "u4")) for name in NAMES}


@settings(max_examples=150, deadline=None)
@given(
    st.lists(rule(), min_size=1, max_size=30),
    st.lists(packet, min_size=1, max_size=40),
    st.sampled_from(["auto", "tree", "dynamic", "brute"]),
    st.data(),
)
def test_verdicts_are_those_of_a_search_rule_by_rule(rules, packets, engine, data):
    acl = flowlane.Classifier.from_rules("\n".join(text for _, _, text in rules) + "\n", engine)
    numbered = in_force(rules)

    def check():
        expected = [best(numbered, packet) for packet in packets]
        values = columns(packets)
        assert acl.classify(values).tolist() == expected
        found = acl.classify(pa.table(values))
        assert [-1 if rule is None else rule for rule in found.to_pylist()] == expected
        explained = [acl.explain(packet)["rule"] for packet in packets[:5]]
        assert [-1 if rule is None else rule for rule in explained] == expected[:5]

    check()
    for _ in range(data.draw(st.integers(0, 4))):
        if len(numbered) > 1 and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(sorted(numbered)))
            assert gone in acl and acl.remove(gone) and not acl.remove(gone)
            del numbered[gone]
        else:
            new = data.draw(rule())
            [number] = acl.insert(new[2])
            numbered[number] = new
    assert list(acl) == sorted(numbered) and len(acl) == len(numbered)
    check()
    acl = pickle.loads(pickle.dumps(acl))
    assert list(acl) == sorted(numbered)
    check()


def test_rules_that_differ_in_their_priority_alone_are_pickled():
    acl = flowlane.Classifier.from_rules("priority=2,tcp,actions=drop\npriority=1,tcp,actions=output:1\n")
    assert acl.insert("priority=1,tcp,actions=output:2") == [2]
    again = pickle.loads(pickle.dumps(acl))
    assert [again[number] for number in again] == [acl[number] for number in acl]


DNS = "udp,nw_dst=10.0.0.0/8,tp_dst=53,actions=drop\nip,actions=output:1"


def test_numbers_of_any_type_are_taken_where_they_fit():
    acl = flowlane.Classifier.from_rules(DNS)
    plain = {"nw_dst": np.array([0x0A000001, 0xFF000001, 0x0A000002], "u4"), "nw_proto": 17, "tp_dst": [53, 53, 54]}
    assert acl.classify(plain).tolist() == [0, 1, 1]
    for dtype in ["u4", "i4", "u8", "i8", ">u4", ">i8"]:
        dst = np.array([0x0A000001, 0xFF000001, 0x0A000002], "u8").astype("u4")
        dst = dst.view("i4").astype(dtype) if dtype == "i4" else dst.astype(dtype)
        assert acl.classify({**plain, "nw_dst": dst}).tolist() == [0, 1, 1], dtype
    # Strided arrays, and rows of bytes in network byte order.
    wide = np.zeros((3, 2), "u4")
    wide[:, 1] = plain["nw_dst"]
    assert acl.classify({**plain, "nw_dst": wide[:, 1]}).tolist() == [0, 1, 1]
    rows = np.array(plain["nw_dst"], ">u4").view("u1").reshape(3, 4)
    assert acl.classify({**plain, "nw_dst": rows}).tolist() == [0, 1, 1]
    empty = {"nw_dst": np.array([], "u4"), "nw_proto": 17, "tp_dst": 53}
    assert acl.classify(empty).tolist() == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"nw_dts": np.zeros(1, "u4")}, "no field `nw_dts`; did you mean `nw_dst`?"),
        ({"tp_dst": np.array([1, 70000])}, "column `tp_dst`, row 1: 0x11170 does not fit into 16 bits"),
        ({"tp_dst": np.array([-1])}, "does not fit into 16 bits"),
        ({"tp_dst": np.zeros(2, "u2"), "nw_dst": np.zeros(3, "u4")}, "has 3 rows, and others have 2"),
        ({"tp_dst": np.array([1.5])}, "column `tp_dst` has the type float64"),
        ({"nw_dst": ["10.0.0.1"]}, "column `nw_dst` has the type <U8"),
        ({"tp_dst": np.zeros((2, 2), "u2")}, "column `tp_dst` has the shape (2, 2)"),
        ({"nw_dst": np.zeros((2, 17), "u1")}, "column `nw_dst` has 17 bytes per packet; the field has 4"),
        ({"tp_dst": 53}, "all columns are scalars; give at least one array"),
        ({"tp_dst": -53}, "-53 is negative"),
        ({"nw_dst": np.zeros(1, "u4"), "ipv6_dst": np.zeros((1, 16), "u1")}, "without a column `dl_type` that tells the packets apart"),
    ],
)
def test_unsuitable_columns_are_named(columns, message):
    with pytest.raises(flowlane.Error) as error:
        flowlane.Classifier.from_rules(DNS).classify(columns)
    assert message in str(error.value)


def arrow(**columns):
    return pa.table({name: values for name, values in columns.items()})


def test_arrow_is_read_as_it_is():
    acl = flowlane.Classifier.from_rules(DNS)
    dst = pa.array([0x0A000001, None, 0x0A000002, 0x0A000003], pa.uint32())
    kinds = pa.array([0x0800] * 4, pa.uint16())
    ports = pa.array([53, 53, None, 53], pa.int16())
    table = arrow(dl_type=kinds, nw_dst=dst, tp_dst=ports, nw_proto=pa.array([17, 17, 17, None], pa.uint8()), note=["a", "b", "c", "d"])
    # Null fields are absent.
    assert acl.classify(table).to_pylist() == [0, 1, 1, 1]
    assert acl.classify(table.slice(2)).to_pylist() == [1, 1]
    assert acl.classify(table.slice(0, 0)).to_pylist() == []
    assert acl.classify(table.to_batches()[0].slice(1, 2)).to_pylist() == [1, 1]
    chunks = pa.concat_tables([table.slice(3), table, table.slice(1, 1)])
    assert acl.classify(chunks).to_pylist() == [1, 0, 1, 1, 1, 1]
    assert acl.classify(chunks.to_reader()).to_pylist() == [1, 0, 1, 1, 1, 1]
    only_dns = flowlane.Classifier.from_rules("udp,tp_dst=53,actions=drop")
    with pytest.raises(flowlane.Error, match="column `nw_src` has nulls; add a column `dl_type`"):
        only_dns.classify(arrow(nw_src=dst, nw_proto=[17] * 4, tp_dst=[53] * 4))
    found = only_dns.classify(arrow(dl_type=kinds, nw_src=dst, nw_proto=[17, 17, 17, 6], tp_dst=[53, 53, 54, 53]))
    assert found.type == pa.uint32() and found.to_pylist() == [0, 0, None, None]
    frame = pl.DataFrame({"nw_dst": [0x0A000001], "nw_proto": [17], "tp_dst": [53]})
    assert isinstance(acl.classify(frame), pl.Series) and acl.classify(frame).to_list() == [0]
    assert acl.classify(pd.DataFrame({"nw_dst": [1], "nw_proto": [17], "tp_dst": [53]})).to_pylist() == [1]


def test_addresses_of_ipv6_are_binaries():
    acl = flowlane.Classifier.from_rules("udp6,ipv6_dst=2001:db8::/32,actions=drop")
    inside, outside = bytes.fromhex("20010db8" + "0" * 24), bytes(16)
    for kind in [pa.binary(16), pa.binary(), pa.large_binary(), pa.binary_view()]:
        table = arrow(ipv6_dst=pa.array([inside, outside, inside], kind), nw_proto=[17, 17, 6])
        assert acl.classify(table).to_pylist() == [0, None, None], kind
        table = arrow(ipv6_dst=pa.array([None, inside], kind), nw_proto=[17, 17], dl_type=[0x86DD, 0x86DD])
        assert acl.classify(table).to_pylist() == [None, 0], kind
    frame = pl.DataFrame({"ipv6_dst": [inside, outside], "nw_proto": [17, 17]})
    assert acl.classify(frame).to_list() == [0, None]
    rows = np.frombuffer(inside + outside, "u1").reshape(2, 16)
    assert acl.classify({"ipv6_dst": rows, "nw_proto": 17}).tolist() == [0, -1]
    with pytest.raises(flowlane.Error, match="column `ipv6_dst` has 4 bytes per packet; the field has 16"):
        acl.classify(arrow(ipv6_dst=pa.array([b"abcd"], pa.binary(4)), nw_proto=[17]))
    with pytest.raises(flowlane.Error, match="column `ipv6_dst`, row 1, has 3 bytes per packet; the field has 16"):
        acl.classify(arrow(ipv6_dst=pa.array([inside, b"abc"]), nw_proto=[17, 17]))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array(["10.0.0.1"]), "column `nw_dst` has the Arrow type Utf8"),
        (pa.array([1.5]), "column `nw_dst` has the Arrow type Float64"),
        (pa.array([1]).dictionary_encode(), "column `nw_dst` has the Arrow type Dictionary"),
        (pa.RunEndEncodedArray.from_arrays([1], [7]), "column `nw_dst` has the Arrow type RunEndEncoded"),
        (pa.array([1 << 32]), "column `nw_dst`, row 0: 0x100000000 does not fit into 32 bits"),
    ],
)
def test_unsuitable_arrow_columns_are_named(column, message):
    with pytest.raises(flowlane.Error) as error:
        flowlane.Classifier.from_rules(DNS).classify(pa.table({"nw_dst": column}))
    assert message in str(error.value)


def test_what_is_neither_is_refused():
    acl = flowlane.Classifier.from_rules(DNS)
    with pytest.raises(TypeError, match="list is neither a mapping of columns nor has the Arrow PyCapsule interface"):
        acl.classify([1, 2])
    with pytest.raises(flowlane.Error, match=r"no column has the name of a field \(a, b\)"):
        acl.classify(pa.table({"a": [1], "b": [2]}))


def test_rules_come_from_files_and_faults_are_placed(tmp_path):
    (tmp_path / "r.flows").write_text(DNS)
    with gzip.open(tmp_path / "r.flows.gz", "wt") as packed:
        packed.write(DNS)
    for path in [tmp_path / "r.flows", str(tmp_path / "r.flows"), tmp_path / "r.flows.gz"]:
        acl = flowlane.Classifier.from_rules(path)
        assert (len(acl), acl[0].split(" ")[1]) == (2, "actions=drop")
    with pytest.raises(FileNotFoundError, match="no.flows"):
        flowlane.Classifier.from_rules(tmp_path / "no.flows")
    (tmp_path / "bad.flows").write_text("ip,actions=drop\ntcp,tp_dts=80,actions=drop\n")
    with pytest.raises(flowlane.Error, match=r"bad.flows:2:5: `tp_dts`.*did you mean `tp_dst`"):
        flowlane.Classifier.from_rules(tmp_path / "bad.flows")
    with pytest.raises(flowlane.Error, match="engine"):
        flowlane.Classifier.from_rules(DNS, engine="treee")
    # All or none.
    acl = flowlane.Classifier.from_rules(DNS)
    with pytest.raises(flowlane.Error):
        acl.insert("ip,actions=drop\nnonsense=1,actions=drop")
    assert list(acl) == [0, 1]
    with pytest.raises(KeyError):
        acl[2]


def test_many_rows_go_to_all_threads_and_rules_change_meanwhile():
    acl = flowlane.Classifier.from_rules("udp,tp_dst=53,actions=drop")
    values = {"nw_src": np.arange(400_000, dtype="u4"), "nw_proto": 17, "tp_dst": np.arange(400_000, dtype="u4") % 60}
    values["tp_dst"] = values["tp_dst"].astype("u2")
    wanted = np.where(values["tp_dst"] == 53, 0, -1)
    for threads in [None, 1, 3, 7]:
        assert (acl.classify(values, threads=threads) == wanted).all()
    stop = threading.Event()

    def change():
        while not stop.is_set():
            [number] = acl.insert("priority=9,udp,nw_src=10.0.0.1,actions=drop")
            acl.remove(number)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _ in range(20):
            assert (acl.classify(values) == wanted).all()
    finally:
        stop.set()
        changing.join()


def test_fields_that_share_a_place_and_tags_are_told_apart():
    acl = flowlane.Classifier.from_rules("arp,arp_spa=10.0.0.1,actions=drop")
    assert acl.fields == ["dl_type", "arp_spa"]
    columns = {"dl_type": np.array([0x806, 0x806], "u2"), "arp_spa": np.array([0x0A000001, 5], "u4")}
    assert acl.classify(columns).tolist() == [0, -1]
    assert acl.classify(pa.table(columns)).to_pylist() == [0, None]
    tagged = flowlane.Classifier.from_rules("dl_vlan=5,actions=drop")
    assert tagged.classify({"vlan_tci": np.array([0x1005, 0x0005, 0, 0x3005], "u2")}).tolist() == [0, -1, -1, 0]
    for columns in [{"dl_vlan": np.array([5])}, pa.table({"dl_vlan": [5]})]:
        with pytest.raises(flowlane.Error, match="does not tell which packets have a tag; add `vlan_tci`"):
            tagged.classify(columns)


def test_missing_columns_are_warned_of():
    acl = flowlane.Classifier.from_rules("in_port=1,udp,tp_dst=53,actions=drop")
    with pytest.warns(UserWarning, match="rules inspect `in_port`, `tp_dst`, but there is no such column"):
        acl.classify({"nw_src": np.zeros(1, "u4"), "nw_proto": 17})
    with pytest.warns(UserWarning, match="`dl_type`"):
        acl.classify(pa.table({"in_port": [1], "nw_proto": [17], "tp_dst": [53]}))
    with pytest.raises(flowlane.Error, match="at least one"):
        acl.classify({"nw_src": [1]}, threads=0)


def test_numbers_of_rules_that_are_gone_are_not_given_again():
    acl = flowlane.Classifier.from_rules(DNS)
    acl.remove(1)
    copy = pickle.loads(pickle.dumps(acl))
    assert acl.insert("ip,actions=drop") == copy.insert("ip,actions=drop") == [2]


def test_empty_and_misaligned_arrays():
    acl = flowlane.Classifier.from_rules(DNS)
    assert acl.classify({"nw_dst": [], "nw_proto": 17, "tp_dst": 53}).tolist() == []
    off = np.frombuffer(b"x" + np.array([0x0A000001], "u4").tobytes(), "u4", offset=1)
    assert acl.classify({"nw_dst": off, "nw_proto": 17, "tp_dst": 53}).tolist() == [0]


def test_packets_enter_at_a_table():
    rules = "table=0,priority=1,ip,actions=goto_table:1\ntable=1,priority=9,ip,actions=drop\ntable=1,udp,actions=drop"
    packets = {"nw_src": np.array([1, 2], "u4"), "nw_proto": 17}
    first, second = (flowlane.Classifier.from_rules(rules, table=table) for table in (0, 1))
    assert list(first) == [0] and first.classify(packets).tolist() == [0, 0]
    assert list(second) == [1, 2] and second.classify(packets).tolist() == [2, 2]
    with pytest.raises(flowlane.Error, match="rules for table 1; this classifier is for table 0, nothing was inserted"):
        first.insert("ip,actions=drop\ntable=1,ip,actions=drop")
    assert len(first) == 1 and first.insert("udp,actions=drop") == [3]
    again = pickle.loads(pickle.dumps(second))
    assert list(again) == [1, 2] and again.insert("table=1,tcp,actions=drop") == [3]
    with pytest.raises(flowlane.Error, match="no rules for table 0, but for table 1; use table=1"):
        flowlane.Classifier.from_rules(rules.split("\n", 1)[1])
    with pytest.raises(flowlane.Error, match="expected 0 to 254"):
        flowlane.Classifier.from_rules(rules, table=255)


def test_a_column_of_other_packets_says_nothing_of_arp():
    acl = flowlane.Classifier.from_rules("arp,arp_tpa=10.0.0.0/8,actions=drop")
    others = pa.table({"dl_type": pa.array([0x0806], "u2"), "nw_dst": pa.array([None], "u4")})
    with pytest.warns(UserWarning, match="rules inspect `arp_tpa`, but there is no such column"):
        assert acl.classify(others).to_pylist() == [None]
    own = others.append_column("arp_tpa", pa.array([0x0A000001], "u4"))
    assert acl.classify(own).to_pylist() == [0]


def test_frames_of_pandas_have_floats_where_integers_are_missing():
    acl = flowlane.Classifier.from_rules("udp,nw_dst=192.168.0.0/16,tp_dst=53,actions=drop")
    packets = {"dl_type": [0x0800, 0x0800, 0x0806], "nw_dst": [0xC0A80001, 1, None], "nw_proto": [17, 17, None], "tp_dst": [53, 53, None]}
    packets = pd.DataFrame(packets | {"score": [0.5, 0.25, None]})
    assert str(packets.dtypes["nw_dst"]) == "float64"
    assert acl.classify(packets).to_pylist() == [0, None, None]
    packets.loc[1, "nw_dst"] = 1.5
    with pytest.raises(flowlane.Error, match="`nw_dst`.*not integers"):
        acl.classify(packets)


def test_numbers_that_are_none():
    acl = flowlane.Classifier.from_rules("ip,actions=drop")
    for number in (-1, 1, 1 << 32):
        assert number not in acl
        with pytest.raises(KeyError, match=f"there is no rule {number}"):
            acl[number]
    with pytest.raises(flowlane.Error, match="the text is empty"):
        flowlane.Classifier.from_rules("")
