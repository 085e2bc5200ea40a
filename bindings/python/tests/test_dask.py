"""Tests the Dask example on a local cluster."""

import os
import signal
import threading
import time

import captures
import pytest

distributed = pytest.importorskip("dask.distributed", reason="Dask is not installed: pip install flowlane[dask]")
pytest.importorskip("dask.dataframe", reason="Dask is not installed: pip install flowlane[dask]")


def test_packets_are_classified_as_without_dask(tmp_path):
    folder = captures.write(tmp_path / "captures", [3000, 1, 0, 2000])
    (tmp_path / "rules.flows").write_text(captures.RULES)
    captures.run_example("dask_archive.py", tmp_path / "rules.flows", tmp_path / "out", *sorted(folder.glob("*.pcap")))
    assert captures.found_in(tmp_path / "out") == captures.expected(folder)


def test_killed_in_the_middle_the_result_is_complete(tmp_path, monkeypatch):
    # Workers import the module as well.
    monkeypatch.setenv("PYTHONPATH", str(captures.EXAMPLES))
    monkeypatch.syspath_prepend(captures.EXAMPLES)
    import dask_archive

    folder = captures.write(tmp_path / "captures", [3000, 2000, 1, 4000])
    begun, done, killed = tmp_path / "begun", tmp_path / "done", []
    begun.mkdir()
    read = dask_archive.read

    def waiting(path, acl):
        packets = read(path, acl)
        (begun / str(os.getpid())).touch()
        while not done.exists():
            time.sleep(0.01)
        return packets

    def kill():
        # Both workers, with the classifier that they hold.
        while len(pids := list(begun.iterdir())) < 2:
            time.sleep(0.01)
        for pid in pids:
            os.kill(int(pid.name), signal.SIGKILL)
            killed.append(pid)
        done.touch()

    monkeypatch.setattr(dask_archive, "read", waiting)
    threading.Thread(target=kill, daemon=True).start()
    with distributed.Client(n_workers=2, threads_per_worker=1) as client:
        found = dask_archive.packets(client, captures.RULES, sorted(folder.glob("*.pcap"))).compute()
    assert len(killed) == 2
    rules = [None if rule != rule else rule for rule in found["rule"].astype(object).where(found["rule"].notna(), None)]
    assert sorted(zip(found["time"].astype("int64").tolist(), rules)) == captures.expected(folder)
