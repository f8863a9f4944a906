"""Runs torch_checkpointing's own tests, unchanged, over headrace's storage of a folder.

    python -m tests.torch_checkpointing.run_upstream_tests SOURCE [TESTS OR PYTEST-ARGUMENT...]

SOURCE is the unpacked source distribution of the installed version, which has the tests; they need
expecttest, which may be on PYTHONPATH. They run twice: with the local storage that they name, and
with `ObjectStorageConfig("/")` in its place. Each test that passes with the first one must pass
with the second, but for those of `DIFFERENT`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

# The names of tests, and what is different: they look into the local storage itself.
_DIRECT = "it replaces the system calls of direct reads, which headrace does not make"
DIFFERENT: dict[str, str] = {
    f"tests.test_local_filesystem::test_direct_io_{name}": _DIRECT
    for name in (
        "fallback_resumes_from_where_the_failed_read_started",
        "refusal_is_remembered_by_the_storage",
        "stream_falls_back_to_buffered_reads_on_einval",
    )
}

_CONFTEST = """
import torch_checkpointing.storage.filesystem as filesystem

from headrace.torch_checkpointing import ObjectStorageConfig


class Config(ObjectStorageConfig):
    def __init__(self, use_direct_io=True):
        super().__init__("/")
        self.use_direct_io = False  # asked by storages that tests derive from the local one


filesystem.LocalFileSystemStorageConfig = Config

import torch_checkpointing
import torch_checkpointing.builder
import torch_checkpointing.checkpoint_manager
import torch_checkpointing.hf.consolidation

for module in (
    torch_checkpointing,
    torch_checkpointing.builder,
    torch_checkpointing.checkpoint_manager,
    torch_checkpointing.hf.consolidation,
):
    if hasattr(module, "LocalFileSystemStorageConfig"):
        module.LocalFileSystemStorageConfig = Config
"""


def run(source: Path, conftest: str, arguments: list[str]) -> dict[str, bool]:
    """Run the tests; return whether each passed, by its name, but for those that were skipped."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["cp", "-r", source / "tests", folder / "tests"], check=True)
        (folder / "conftest.py").write_text(conftest)
        report = folder / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"]
        command += [f"--junit-xml={report}", "--rootdir", name, *(arguments or ["tests"])]
        path = os.pathsep.join(filter(None, [name, os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path}
        subprocess.run(command, cwd=folder, env=environment, check=False, timeout=1800)
        cases = ElementTree.parse(report).iter("testcase")
        return {
            f"{case.get('classname')}::{case.get('name')}": case.find("failure") is None
            and case.find("error") is None
            for case in cases
            if case.find("skipped") is None
        }


def main() -> int:
    """Run them twice; 0 if what passes locally passes with headrace."""
    source, arguments = Path(sys.argv[1]).resolve(), sys.argv[2:]
    theirs = run(source, "", arguments)
    ours = run(source, _CONFTEST, arguments)
    passed = {name for name, good in theirs.items() if good}
    lost = sorted(name for name in passed if not ours.get(name, False))
    print(f"{len(passed)} of {len(theirs)} pass with the local storage")
    print(f"{sum(ours.values())} of {len(ours)} pass with headrace's")
    for name in lost:
        print(f"  {name}: {DIFFERENT.get(name, 'UNEXPECTED')}")
    return int(set(lost) != set(DIFFERENT) & passed)


if __name__ == "__main__":
    sys.exit(main())
