"""What the engine counts and what Python tells are one list."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import headrace
from headrace._process.process import current_engine


def test_python_has_every_counter_of_current_engine(tmp_path: Path) -> None:
    headrace.Store(tmp_path).write("a", b"1")
    counted = set(current_engine().metrics())
    assert counted == {field.name for field in dataclasses.fields(headrace.Metrics)}
