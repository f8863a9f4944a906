"""Removes the results from notebooks. usage: tools/strip_notebooks.py FILE..."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat

for file in map(Path, sys.argv[1:]):
    notebook = nbformat.read(file, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        cell.metadata = {}
    text = nbformat.writes(notebook) + "\n"
    if text != file.read_text():
        file.write_text(text)
