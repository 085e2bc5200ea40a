"""The example for Dask, on a cluster of this machine."""

import captures
import pytest

pytest.importorskip("dask.distributed", reason="Dask is not installed: pip install flowlane[dask]")
pytest.importorskip("dask.dataframe", reason="Dask is not installed: pip install flowlane[dask]")


def test_packets_are_classified_as_without_dask(tmp_path):
    folder = captures.write(tmp_path / "captures", [3000, 1, 0, 2000])
    (tmp_path / "rules.flows").write_text(captures.RULES)
    captures.run_example("dask_archive.py", tmp_path / "rules.flows", tmp_path / "out", *sorted(folder.glob("*.pcap")))
    assert captures.found_in(tmp_path / "out") == captures.expected(folder)
