"""Writes page and picture of a run of `published` again: published_page.py RESULTS.json [FOLDER]

The run itself has written both beside its JSON; this is for when their layout changes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench import comparison
from bench.groups.published import TABLES


def main() -> None:
    """Write both."""
    results = Path(sys.argv[1])
    file = Path(sys.argv[2], results.name) if len(sys.argv) > 2 else results
    comparison.write(TABLES, json.loads(results.read_text()), file)


if __name__ == "__main__":
    main()
