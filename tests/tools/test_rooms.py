"""The rooms of the Python package: an import that goes up, or round a room's owner, is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_an_import_where_none_may_be_is_named(tmp_path: Path) -> None:
    package = tmp_path / "headrace"
    shutil.copytree(
        ROOT / "python/headrace",
        package,
        ignore=shutil.ignore_patterns("*.so", "*.pyi", "__pycache__"),
    )
    for module, mistake in {
        "_base/errors.py": "from headrace._store.store import Store",
        "_store/store.py": "from headrace import ListPage",
        "megatron.py": "from headrace._pack.pack import pack",
    }.items():
        with (package / module).open("a") as file:
            file.write(f"\n{mistake}\n")

    found = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), ROOT / ".importlinter", "--no-cache"],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'tools'}:{tmp_path}", "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )

    assert found.returncode == 1, found.stdout + found.stderr
    assert "0 kept, 3 broken" in found.stdout
    assert "headrace._base.errors -> headrace._store.store" in found.stdout
    assert "headrace._store.store:" in found.stdout
    assert "headrace.megatron -> headrace._pack.pack" in found.stdout
