"""What safetensors files, parts of a checkpoint and their indexes are called. No I/O.

A name may have a variant, the last text between dots of its stem: ``model.fp16.safetensors``.
transformers and diffusers put it elsewhere in the names of parts and indexes:

==============================================  ==========================================
``model.fp16-00001-of-00002.safetensors``       ``model.safetensors.index.fp16.json``
``model-00001-of-00002.fp16.safetensors``       ``model.safetensors.fp16.index.json``
==============================================  ==========================================

The first line has the names that both look for, and headrace writes. The second has those that
older versions of diffusers wrote. huggingface_hub appends ``.index.json`` to any name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = [
    "SUFFIX",
    "index_names_of",
    "is_index_name",
    "is_part_of",
    "is_safetensors_name",
    "part_name",
    "single_name_of",
    "without_part_number",
]

SUFFIX = ".safetensors"

_INDEX = re.compile(r"\.safetensors(?:\.index(\.[^/]+)?|(\.[^/]+)\.index)\.json$")
_NUMBER = r"-\d{5,}-of-\d{5,}"
# With eight more digits where a checkpoint replaces another.
_PART = re.compile(rf"(?:-[0-9a-f]{{8}})?{_NUMBER}\.safetensors")
# Of any format: "pytorch_model-00001-of-00002.bin", "step200-00001-of-00004".
_NUMBERED = re.compile(r"-\d{5,}(-of-\d{5,}(?:\.[^/]*)?)$")


def is_safetensors_name(name: str) -> bool:
    """Return whether an object of this name is a safetensors file, or an index of some."""
    return name.endswith(SUFFIX) or is_index_name(name)


def is_index_name(name: str) -> bool:
    """Return whether an object of this name is an index."""
    return _INDEX.search(name) is not None


def single_name_of(index_name: str) -> str:
    """Return the name that a checkpoint would have as one file, by that of its index."""
    found = _INDEX.search(index_name)
    assert found is not None
    return f"{index_name[: found.start()]}{found[1] or found[2] or ''}{SUFFIX}"


def index_names_of(name: str) -> list[str]:
    """Return the names of all possible indexes of ``NAME.safetensors``, first the one to write."""
    names = [f"{stem}{SUFFIX}.index{variant}.json" for stem, variant in _splits(name)]
    names.insert(1, f"{name}.index.json")
    return names + [f"{stem}{SUFFIX}{variant}.index.json" for stem, variant in _splits(name)]


def part_name(name: str, token: str, number: int, count: int) -> str:
    """Return the name of one of the files of ``NAME.safetensors``."""
    return f"{name.removesuffix(SUFFIX)}{token}-{number:05d}-of-{count:05d}{SUFFIX}"


def is_part_of(name: str, part: str) -> bool:
    """Return whether `part` is called as a file of ``NAME.safetensors`` is.

    The stem of a name may itself end like the digits of a part: ``model-20261125``.
    """
    stem = name.removesuffix(SUFFIX)
    if part.startswith(stem) and _PART.fullmatch(part, len(stem)):
        return True
    return any(
        part.startswith(stem)
        and re.fullmatch(rf"{_NUMBER}{re.escape(variant + SUFFIX)}", part[len(stem) :])
        for stem, variant in _splits(name)
    )


def without_part_number(name: str) -> str | None:
    """Return the name of a part, of any format, without its number; None: it has none."""
    found = _NUMBERED.search(name)
    return None if found is None else f"{name[: found.start()]}{found[1]}"


def _splits(name: str) -> Iterator[tuple[str, str]]:
    """Yield the stem before the variant and the variant, with its dot: at the last dot first."""
    stem = name.removesuffix(SUFFIX)
    begin = stem.rfind("/") + 1
    at = len(stem)
    while (at := stem.rfind(".", begin, at)) > begin:
        if at + 1 < len(stem):
            yield stem[:at], stem[at:]
