"""Bars for people who wait: what they are about, how far they are, and how long it will take."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

import headrace.checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

STATE = {"a": torch.arange(1 << 20, dtype=torch.int32), "b": torch.ones(1 << 18)}  # 5 MiB


def save(url: str) -> None:
    headrace.checkpoint.save(STATE, url, progress=True)


def load(url: str) -> None:
    headrace.checkpoint.save(STATE, url)
    headrace.checkpoint.load(url, progress=True)


def save_distributed(url: str) -> None:
    writer = headrace.checkpoint.DistributedWriter(url, progress=True)
    dcp.save(STATE, storage_writer=writer, no_dist=True)


def load_distributed(url: str) -> None:
    writer = headrace.checkpoint.DistributedWriter(url)
    dcp.save(STATE, storage_writer=writer, no_dist=True)
    state = {name: torch.zeros_like(tensor) for name, tensor in STATE.items()}
    reader = headrace.checkpoint.DistributedReader(url, progress=True)
    dcp.load(state, storage_reader=reader, no_dist=True)


@pytest.mark.parametrize("act", [save, load, save_distributed, load_distributed])
def test_a_bar_names_the_checkpoint_and_tells_bytes_and_the_time_that_is_left(
    act: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    act(str(tmp_path / "step100"))
    bars = capsys.readouterr().err.split("\r")
    assert str(tmp_path / "step100") in bars[-1]
    assert "100%" in bars[-1]
    assert re.search(r"5\.0\dM/5\.0\dM \[\d\d:\d\d<\d\d:\d\d, .*B/s\]", bars[-1])
