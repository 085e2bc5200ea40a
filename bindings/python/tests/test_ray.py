"""Tests the Ray example on a local cluster."""

import os
import signal
import threading
import time

import captures
import pyarrow as pa
import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install flowlane[ray]")
pytest.importorskip("ray.data", reason="Ray is not installed: pip install flowlane[ray]")


def test_packets_are_classified_as_without_ray(tmp_path):
    folder = captures.write(tmp_path / "captures", [3000, 1, 0, 2000])
    (tmp_path / "rules.flows").write_text(captures.RULES)
    captures.run_example("ray_archive.py", tmp_path / "rules.flows", tmp_path / "out", *sorted(folder.glob("*.pcap")))
    assert captures.found_in(tmp_path / "out") == captures.expected(folder)


def test_killed_in_the_middle_the_result_is_complete(tmp_path, monkeypatch):
    # Actors import the module as well.
    monkeypatch.setenv("PYTHONPATH", str(captures.EXAMPLES))
    monkeypatch.syspath_prepend(captures.EXAMPLES)
    import ray_archive

    folder = captures.write(tmp_path / "captures", [60_000, 70_000, 1])
    begun, done = tmp_path / "begun", tmp_path / "done"
    begun.mkdir()

    class Waiting(ray_archive.Classify):
        def __call__(self, paths):
            for packets in super().__call__(paths):
                yield packets
                # Halfway through.
                (begun / str(os.getpid())).touch()
                while not done.exists():
                    time.sleep(0.01)

    def kill():
        while not (pids := list(begun.iterdir())):
            time.sleep(0.01)
        os.kill(int(pids[0].name), signal.SIGKILL)
        done.touch()

    monkeypatch.setattr(ray_archive, "Classify", Waiting)
    threading.Thread(target=kill, daemon=True).start()
    with ray.init(num_cpus=2, include_dashboard=False):
        found = ray_archive.packets(captures.RULES, sorted(folder.glob("*.pcap")))
        table = pa.concat_tables(ray.get(found.to_arrow_refs()))
        rows = sorted(zip(table["time"].cast(pa.int64()).to_pylist(), table["rule"].to_pylist()))
    assert done.exists()
    assert rows == captures.expected(folder)
