"""Every code block that AIStore's documents print runs unchanged, on a real cluster."""

from __future__ import annotations

import textwrap

import pytest

from testing.servers import AistoreCluster
from tests.compat_aistore.printed import ARTICLES, BLOG, NOTEBOOKS, README, STALE
from tests.scripts import Document, RunScript

COMPAT = ("-m", "headrace.compat")


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(README, "samples: 6 1-2", id="readme"),
        pytest.param(BLOG, "samples: 20 4 [2]", id="blog"),
        pytest.param(ARTICLES, f"sums: {9 * 16 + 9 * 8} {36 + 4 * 36}", id="articles"),
        pytest.param(NOTEBOOKS, "notebooks: 20 20 24 6 5", id="notebooks"),
    ],
)
def test_the_blocks_of_the_documents_run(
    ais_cluster: AistoreCluster,
    ais_bucket: str,
    run_script: RunScript,
    document: Document,
    expected: str,
) -> None:
    printed = run_script(
        document.script(ENDPOINT=ais_cluster.url, BUCKET=ais_bucket),
        AIS_ENDPOINT=ais_cluster.url,
        PYTHONWARNINGS="ignore",
    )
    document.require_ran(printed)
    assert expected in printed


def test_the_blocks_that_the_guide_names_fail_as_they_do_with_the_original(
    run_script: RunScript,
) -> None:
    script = """
        for block in BLOCKS:
            try:
                exec(block, {})
            except Exception as error:
                print(type(error).__name__)
            else:
                print("ran")
    """
    script = f"BLOCKS = {[*STALE.values()]!r}\n" + textwrap.dedent(script)
    original, ours = (run_script(script, command=how).split() for how in ((), COMPAT))
    assert original == ours == ["ModuleNotFoundError", "TypeError", "ImportError", "ImportError"]
