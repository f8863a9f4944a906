"""The commands in docs/guide/command_line.md run, as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from testing.faultserver.client import FaultServer


def commands_of(repository: Path) -> list[str]:
    text = (repository / "docs" / "guide" / "command_line.md").read_text()
    block = re.search(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    return [line.partition("  #")[0].rstrip() for line in block[1].splitlines()]


def test_the_guide_shows_every_command(repository: Path) -> None:
    from headrace._cli.app import app

    known = {command.callback.__name__ for command in app.registered_commands if command.callback}
    assert {line.split()[1] for line in commands_of(repository)} == known


@pytest.mark.timeout(480)
def test_the_commands_of_the_guide_run(
    server: FaultServer, repository: Path, tmp_path: Path
) -> None:
    for name in ("a.txt", "train/1.png", "train/2.png"):
        server.put("bucket", name, name.encode())
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "b.txt").write_text("b")
    environment = os.environ | {"PATH": f"{repository}/.venv/bin:{os.environ['PATH']}"}
    for line in commands_of(repository):
        if line == "headrace demo":  # it has tests of its own, and takes its time
            continue
        if line.startswith("headrace bench"):
            line += " --seconds 0"
        if shutil.which("jq") is None:
            line = line.partition(" | jq ")[0]
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (line, done.stderr)
    packed = [
        "shards/_pack/train-000000.shard", "shards/_pack/train.json", "shards/train-000000.tar",
        "shards/train.index",
    ]  # fmt: skip
    assert server.names("bucket") == ["a.txt", "old/b.txt", *packed, "train/1.png", "train/2.png"]
    found = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert found == ["data/b.txt", "train.index", "train/1.png", "train/2.png"]
