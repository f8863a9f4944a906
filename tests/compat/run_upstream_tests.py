"""Runs dataflux's own unit tests, unchanged, against headrace.compat.

    python -m tests.compat.run_upstream_tests CHECKOUT [PYTEST-ARGUMENT...]

CHECKOUT is a clone of GoogleCloudPlatform/dataflux-pytorch with its submodule
`dataflux_client_python`.
Nothing of it but its tests is imported. A test that fails must be in `DIFFERENT` below, and each of
those must fail: the table is neither too long nor too short.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

# By the end of a file's name and the name of a test.
DIFFERENT = {
    # They expect a PermissionError for joining that nobody asked for.
    *(
        (file, "test_init_without_perm")
        for file in ("test_dataflux_iterable_dataset", "test_dataflux_mapstyle_dataset")
    ),
    # It expects a client of Google's to be made for reading: none is needed.
    (
        "test_dataflux_mapstyle_dataset",
        "test_init_without_storage_client_constructed_when_needed",
    ),
    # They expect an error for a path without gs://: Lightning's callbacks save to such paths.
    *(
        ("test_dataflux_lightning_checkpoint", f"test_invalid_{kind}_path_{operation}")
        for kind in ("string", "object")
        for operation in ("save", "remove")
    ),
    # Listing has no processes to watch; of single_worker, no calls of the fake client to count.
    *(
        ("test_fast_list", f"test_{name}")
        for name in (
            "check_crashed_processes",
            "check_crashed_processes_follow_retry_timeout",
            "cleanup_processes",
            "manage_tracking_queues",
            "single_worker",
            "terminate_now",
        )
    ),
}
# Every test of it puts mocks in place of private classes of google-cloud-storage.
ALL_DIFFERENT = {"test_multipart"}

_CONFTEST = """
import headrace.compat

headrace.compat.install()

import dataflux_core

dataflux_core.__path__.append({core!r})
"""


# Clients of Google's that are made without credentials, and send nothing anywhere.
_ENVIRONMENT = {"STORAGE_EMULATOR_HOST": "http://127.0.0.1:9", "GOOGLE_CLOUD_PROJECT": "none"}


def lay_out(checkout: Path, folder: Path) -> None:
    """Copy the tests, and only them, to where they find headrace under dataflux's names."""
    core_tests = checkout / "dataflux_client_python" / "dataflux_core" / "tests"
    if not core_tests.is_dir():
        sys.exit(
            f"{checkout} has no dataflux_client_python/dataflux_core: clone its submodule, too"
        )
    shutil.copytree(checkout / "dataflux_pytorch" / "tests", folder / "pytorch_tests")
    shutil.copytree(core_tests, folder / "core" / "tests")
    # The tests of dataflux_pytorch import the fake client by its path in the checkout.
    shutil.copytree(core_tests, folder / "dataflux_client_python" / "dataflux_core" / "tests")
    for package in ("dataflux_client_python", "dataflux_client_python/dataflux_core"):
        (folder / package / "__init__.py").touch()
    (folder / "conftest.py").write_text(_CONFTEST.format(core=str(folder / "core")))


def main() -> int:
    """Run them; 0 if exactly the tests of the table fail."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    checkout, arguments = Path(sys.argv[1]).resolve(), sys.argv[2:]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lay_out(checkout, folder)
        report = folder / "report.xml"
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", name]
            + ["--timeout=600", f"--junitxml={report}", "pytorch_tests", "core/tests", *arguments],
            cwd=folder,
            env={**os.environ, **_ENVIRONMENT},
            check=False,
        )
        cases = list(ElementTree.parse(report).iter("testcase"))
    failed, wrong = 0, []
    for case in cases:
        file = case.get("classname", "").split(".")
        test = case.get("name", "")
        is_failed = case.find("failure") is not None or case.find("error") is not None
        is_different = any(part in ALL_DIFFERENT or (part, test) in DIFFERENT for part in file)
        failed += is_failed
        if is_failed != is_different:
            wrong.append(f"{'.'.join(file)}.{test} {'failed' if is_failed else 'passed'}")
    print(f"{len(cases)} tests of dataflux: {len(cases) - failed} pass, {failed} fail", end="")
    print(", as the table says" if not wrong else ". Not as the table says:")
    print("\n".join(wrong))
    return 1 if wrong or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
