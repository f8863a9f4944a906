"""The notebook runs from its first cell to its last, and lies here without its results."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testing.servers import FakeGcsServer

# Some ten seconds on two cores; a kernel and torch must start.
pytestmark = pytest.mark.timeout(960)

NOTEBOOK = Path(__file__).resolve().parent.parent.parent / "examples" / "walkthrough.ipynb"
# As a program of its own: here a warning is an error, and what is under it has some.
EXECUTE = "from nbclient.cli import main; main()"


@pytest.mark.parametrize("place", [pytest.param("folder", marks=pytest.mark.soak), "server"])
def test_it_runs_from_an_empty_place(place: str, tmp_path: Path, fake_gcs: FakeGcsServer) -> None:
    copy = Path(shutil.copy(NOTEBOOK, tmp_path))
    (tmp_path / "bucket").mkdir()
    bucket = f"walkthrough-{os.getpid()}"
    environment = {"WALKTHROUGH_URL": str(tmp_path / "bucket")}
    if place == "server":
        fake_gcs.make_bucket(bucket)
        environment = {
            "WALKTHROUGH_URL": f"gs://{bucket}",
            "STORAGE_EMULATOR_HOST": fake_gcs.url,
        }
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, "--timeout=480", "--startup_timeout=480"]
        + ["--inplace", str(copy)],
        env={**os.environ, **environment, "JUPYTER_PLATFORM_DIRS": "1", "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.dumps([c.get("outputs") for c in json.loads(copy.read_text())["cells"]])
    assert "each object exactly once" in results
    assert "image/png" in results
    if place == "server":
        assert fake_gcs.names(bucket) == []


def test_it_is_kept_without_results() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert [cell for cell in code if cell["outputs"] or cell["execution_count"]] == []
