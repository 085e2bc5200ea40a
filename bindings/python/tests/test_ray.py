"""The example for Ray, on a cluster of this machine."""

import captures
import pytest

pytest.importorskip("ray.data", reason="Ray is not installed: pip install flowlane[ray]")


def test_packets_are_classified_as_without_ray(tmp_path):
    folder = captures.write(tmp_path / "captures", [3000, 1, 0, 2000])
    (tmp_path / "rules.flows").write_text(captures.RULES)
    captures.run_example("ray_archive.py", tmp_path / "rules.flows", tmp_path / "out", *sorted(folder.glob("*.pcap")))
    assert captures.found_in(tmp_path / "out") == captures.expected(folder)
