"""Tests of cuckoo tables and Bloom filters, compared with dictionaries and sets."""

import flowlane
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([1, 3, 4, 5, 8, 13, 16, 24, 40, 41, 64]), st.integers(0, 2**32 - 1), st.data())
def test_a_map_has_what_a_dictionary_has(key_bytes, seed, data):
    table, wanted = flowlane.CuckooMap(key_bytes, 4000), {}
    random = np.random.default_rng(seed)
    # Few values per byte, so that keys repeat and differ in one position.
    draw = lambda n: random.integers(0, 3, (n, key_bytes)).astype("u1")  # noqa: E731
    for _ in range(data.draw(st.integers(1, 4))):
        keys = draw(data.draw(st.integers(0, 700)))
        values = random.integers(0, 1 << 32, len(keys))
        table.insert(keys, values)
        wanted.update((key.tobytes(), int(value)) for key, value in zip(keys, values))
        gone = draw(50)
        was_there = [wanted.pop(key.tobytes(), None) is not None for key in gone]
        assert table.remove(gone).tolist() == was_there
        asked = np.concatenate([keys, gone, draw(100)])
        assert table.lookup(asked).tolist() == [wanted.get(key.tobytes(), -1) for key in asked]
        assert len(table) == len(wanted)


def test_integers_are_keys_and_errors_are_raised():
    table = flowlane.CuckooMap(8, 100)
    table.insert(np.array([1, -1]), [5, 6])
    assert table.lookup(np.array([-1, 1, 2])).tolist() == [6, 5, -1] and table.table_bytes > 100
    with pytest.raises(flowlane.Error, match="keys of 4 bytes; the map has keys of 8"):
        table.lookup(np.array([1], "u4"))
    with pytest.raises(flowlane.Error, match="1 keys but 2 values"):
        table.insert(np.array([1]), [1, 2])
    with pytest.raises(flowlane.Error, match="values must be unsigned integers of 32 bits"):
        table.insert(np.array([1]), [1 << 32])
    with pytest.raises(flowlane.Error, match=r"the map is full: \d+ of 5000 keys were inserted"):
        table.insert(np.arange(5000), np.arange(5000))
    for key_bytes, capacity in [(0, 1), (65, 1), (4, 0)]:
        with pytest.raises(flowlane.Error, match="possible"):
            flowlane.CuckooMap(key_bytes, capacity)


def test_a_filter_denies_nothing_that_it_holds():
    random = np.random.default_rng(5)
    numbers = random.integers(0, 1 << 63, 20_000)
    seen = flowlane.BloomFilter(40_000, 0.001)
    seen.insert(numbers)
    rows = random.integers(0, 256, (20_000, 13)).astype("u1")
    seen.insert(rows)
    assert seen.contains(numbers).all() and seen.contains(rows).all()
    others = seen.contains(random.integers(0, 1 << 63, 100_000)).mean()
    assert others < 0.003, others
    assert seen.contains(random.integers(0, 256, (100_000, 13)).astype("u1")).mean() < 0.003
    assert 40_000 < seen.table_bytes < 200_000
    with pytest.raises(flowlane.Error):
        flowlane.BloomFilter(10, 2.0)
