"""Runs the examples of the documentation."""

import doctest
from pathlib import Path

import flowlane
import pytest

PAGE = Path(__file__).parents[3] / "docs" / "python.md"


def test_docstrings():
    failed, tried = doctest.testmod(flowlane)
    assert failed == 0 and tried > 8


def test_the_page(tmp_path, monkeypatch):
    if not PAGE.exists():
        pytest.skip("the page is not in a source distribution")
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert failed == 0 and tried > 10
