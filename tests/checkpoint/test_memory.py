"""Nothing is staged whole: the most memory that a process has while it loads and saves."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import headrace
from headrace.checkpoint._outline import Outline
from tests.checkpoint.states import file_of

MIB = 1 << 20

LOAD = """
    state = headrace.checkpoint.load(sys.argv[1])
    limit = 256 + 128
"""
# The C library does not give back what this process has used before.
MOVE_ON = """
    state = [torch.full((16 << 20,), i, dtype=torch.uint8) for i in range(32)]
    headrace.checkpoint.save(state, sys.argv[1])
    del state
    before = status("VmRSS")
    pathlib.Path("/proc/self/clear_refs").write_text("5")

    def move(storage, _):
        return torch.UntypedStorage(storage.nbytes(), device="meta")

    headrace.checkpoint.load(sys.argv[1], map_location=move)
    limit = 3 * 64 + 128
"""
SAVE = """
    headrace.checkpoint.save(state, sys.argv[1])
    limit = 256
"""

CHILD = """
import pathlib, sys
import torch
import headrace, headrace.checkpoint

def status(field):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) >> 10

state = [torch.full((16 << 20,), i, dtype=torch.uint8) for i in range(16)] if {filled} else None
before = status("VmRSS")
# 5: the high-water mark begins anew from here.
pathlib.Path("/proc/self/clear_refs").write_text("5")
if True:
{work}
print(status("VmHWM") - before, limit)
assert status("VmHWM") - before <= limit, (status("VmHWM"), before, limit)
"""


def run(work: str, filled: bool, path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(work=work, filled=filled), str(path)],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_load_holds_the_tensors_and_little_more(tmp_path: Path) -> None:
    # Large and small tensors, 256 MiB together.
    state = [torch.zeros(16 * MIB, dtype=torch.uint8) for _ in range(12)]
    state += [torch.zeros(MIB, dtype=torch.uint8) for _ in range(64)]
    headrace.Store(tmp_path).write("a.pt", file_of(state))
    run(LOAD, False, tmp_path / "a.pt")


def test_a_load_to_another_device_holds_some_groups_on_the_host(tmp_path: Path) -> None:
    run(MOVE_ON, False, tmp_path / "a.pt")


def test_a_load_lets_go_of_the_outline_before_torch_makes_the_tensors(tmp_path: Path) -> None:
    state = {f"layer{i}": torch.zeros(3) + i for i in range(4)}
    headrace.checkpoint.save(state, tmp_path / "a.pt")
    outlines: list[int] = []

    def look(storage: Any, _: str) -> Any:
        outlines.append(sum(type(each) is Outline for each in gc.get_objects()))
        return storage

    loaded = headrace.checkpoint.load(tmp_path / "a.pt", map_location=look)
    assert outlines == [0, 0, 0, 0]
    assert all(torch.equal(loaded[name], state[name]) for name in state)
