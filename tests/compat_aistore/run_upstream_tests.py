"""Runs the own tests of AIStore's plugin for PyTorch, unchanged, against headrace.compat.

    python -m tests.compat_aistore.run_upstream_tests REPOSITORY [--revision TAG] [--endpoint URL]
        [PYTEST-ARGUMENT...]

REPOSITORY is a clone of NVIDIA/aistore, bare or not. Without an endpoint only the unit tests run;
with one (`http://127.0.0.1:8080`, the proxy of a cluster that may be written to) the integration
tests, too. The SDK must be installed: 2.0.0 for v1.5.0, the default; 1.8.0 for v1.3.24. Nothing but
the tests is taken out of the repository.

A test that fails must be in `DIFFERENT` below, which docs/guide/aistore_plugin.md explains, and
each of those must fail: the table is neither too long nor too short.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

# By revision, and the names of a test's class and of the test.
DIFFERENT: dict[str, set[tuple[str, str]]] = {
    # Of the datapipes, which are left out.
    "v1.3.24": {
        ("TestDataPipes", "test_source_lister"),
        ("TestPytorchPlugin", "test_filelister_with_prefix_variations"),
        ("TestPytorchPlugin", "test_incorrect_inputs"),
        ("TestPytorchPlugin", "test_torch_library"),
    },
}

_CONFTEST = """
import sys
import types

import headrace.compat

headrace.compat.install()

import aistore.pytorch

assert aistore.pytorch.__name__ == "headrace.compat.aistore.pytorch"

# What tests of the datapipes import beside what is tested here.
for name in ("torchdata.datapipes", "torchdata.datapipes.iter", "aistore.pytorch.aisio"):
    sys.modules[name] = types.ModuleType(name)
for module in (aistore.pytorch, sys.modules["aistore.pytorch.aisio"]):
    for name in ("AISFileLister", "AISFileLoader", "AISSourceLister"):
        setattr(module, name, None)
"""


def lay_out(repository: Path, revision: str, folder: Path) -> None:
    """Copy the tests, and only them, out of the repository."""
    done = subprocess.run(
        ["git", "-C", repository, "archive", revision, "python/tests"],
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{repository} has no python/tests in {revision}: {done.stderr.decode()}")
    subprocess.run(["tar", "-x", "-C", folder], input=done.stdout, check=True)
    (folder / "python" / "conftest.py").write_text(_CONFTEST)


def main() -> int:
    """Run them; 0 if exactly the tests that the guide names fail."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("repository", type=Path)
    parser.add_argument("--revision", default="v1.5.0")
    parser.add_argument("--endpoint")
    options, arguments = parser.parse_known_args()
    kinds = ["unit", "integration"] if options.endpoint else ["unit"]
    environment = {**os.environ, **({"AIS_ENDPOINT": options.endpoint} if options.endpoint else {})}
    with tempfile.TemporaryDirectory() as name:
        lay_out(options.repository.resolve(), options.revision, Path(name))
        root, report = Path(name) / "python", Path(name) / "report.xml"
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", root]
            + ["--timeout=120", f"--junitxml={report}", "--continue-on-collection-errors"]
            + [f"tests/{kind}/pytorch" for kind in kinds]
            + arguments,
            cwd=root,
            env=environment,
            check=False,
        )
        cases = list(ElementTree.parse(report).iter("testcase"))
    ran = {case.get("name", "") for case in cases}
    expected = {each for each in DIFFERENT.get(options.revision, set()) if each[1] in ran}
    failed, wrong = 0, []
    for case in cases:
        test = (case.get("classname", "").rpartition(".")[2], case.get("name", ""))
        is_failed = case.find("failure") is not None or case.find("error") is not None
        failed += is_failed
        if is_failed != (test in expected):
            wrong.append(f"{'.'.join(test)} {'failed' if is_failed else 'passed'}")
    print(
        f"{len(cases)} tests of aistore.pytorch: {len(cases) - failed} pass, {failed} fail", end=""
    )
    print(", as docs/guide/aistore_plugin.md says" if not wrong else ". Not as the guide says:")
    print("\n".join(wrong))
    return 1 if wrong or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
