"""The header of a safetensors file: eight bytes of length, then JSON that tells what follows it.

The bytes are those that the safetensors library writes. headrace adds its checksums as one more
text of the metadata, `SUMS_KEY`: eight hexadecimal digits for the header itself, with these eight
as zeros, and eight for each tensor, in the order of the file.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from headrace import _engine
from headrace._base.errors import CorruptDataError, InvalidArgumentError
from headrace.checkpoint._safetensors.dtypes import BITS, rank_of

__all__ = [
    "LENGTH_BYTES",
    "MAX_HEADER_BYTES",
    "METADATA_NAME",
    "PART_KEY",
    "SUMS_KEY",
    "Entry",
    "Header",
    "build_header",
    "header_bytes_of",
    "parse_header",
    "sorted_entries",
    "sum_of_header",
]

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000
"""The longest JSON that the safetensors library reads."""
METADATA_NAME = "__metadata__"
SUMS_KEY = "headrace.crc32c"
PART_KEY = "headrace.part"
"""In the metadata of a file that is no checkpoint without its index: ``"1 of 3"``."""

_LENGTH = struct.Struct("<Q")
_MAX_NUMBER = (1 << 63) - 1
_MAX_DIMENSIONS = 64  # torch cannot copy tensors of more
_DIGITS = 8
_SUMS = re.compile(rf"(?:[0-9a-f]{{{_DIGITS}}})+")
# Inside a text a quote has a backslash before it, so this is a key; a tensor's is followed by "{".
_SUMS_BEGIN = f'"{SUMS_KEY}":"'.encode()


@dataclass(frozen=True)
class Entry:
    """One tensor of a file."""

    name: str
    dtype: str
    """As the format calls it: ``"BF16"``."""
    shape: tuple[int, ...]
    begin: int = 0
    """Its bytes are ``[begin, end)`` of the file."""
    end: int = 0
    crc32c: int | None = None
    """The sum that was stored with it, if one was."""

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * BITS[self.dtype] // 8


@dataclass(frozen=True)
class Header:
    """What a header tells; it has been checked."""

    size_bytes: int
    """Where the first tensor begins."""
    entries: dict[str, Entry]
    """In the order of the file, without gaps, to its end."""
    metadata: dict[str, str]
    """The texts of the file, but for headrace's own."""
    crc32c: int | None
    """The sum that was stored with the header; it is right."""
    is_part: bool
    """Whether headrace wrote it as one of several files with an index."""


def header_bytes_of(head: bytes, file_bytes: int) -> int:
    """Return where the header ends, by the first bytes of the file.

    Raises:
        InvalidArgumentError: it is no safetensors file.
        CorruptDataError: the file ends before its header.
    """
    if len(head) < LENGTH_BYTES:
        raise InvalidArgumentError(
            f"it is no safetensors file: it has {len(head)} bytes, and the length of a header "
            f"takes {LENGTH_BYTES}"
        )
    (length,) = _LENGTH.unpack_from(head)
    begins = head[LENGTH_BYTES : LENGTH_BYTES + 1]
    if begins and begins not in b"{ \t\r\n":
        raise InvalidArgumentError(
            "it is no safetensors file: a header of JSON begins with a brace, this one with "
            f"{begins!r}"
        )
    if length > MAX_HEADER_BYTES:
        raise InvalidArgumentError(
            f"its header would have {length:,} bytes, and that of a safetensors file has at most "
            f"{MAX_HEADER_BYTES:,}"
        )
    if LENGTH_BYTES + length > file_bytes:
        raise CorruptDataError(
            f"it is truncated: its header has {length:,} bytes, and the file {file_bytes:,}"
        )
    return int(LENGTH_BYTES + length)


def parse_header(data: bytes, file_bytes: int, *, verify: bool = True) -> Header:
    """Return what a header tells.

    Args:
        data: the first bytes of the file, as many as `header_bytes_of` returns.
        file_bytes: of the whole file.
        verify: compare the header with its own sum, if it has one.

    Raises:
        CorruptDataError: it is not JSON of this form, or its tensors overlap, leave gaps, end
            before the file or behind it, or have another size than their shape.
        InvalidArgumentError: it has a dtype that nobody here knows.
    """
    header_bytes = header_bytes_of(data, file_bytes)
    try:
        found = json.loads(
            data[LENGTH_BYTES:header_bytes].decode(),
            object_pairs_hook=_object,
            parse_int=_number,
            parse_float=_no_number,
            parse_constant=_no_number,
        )
    except CorruptDataError:
        raise
    except (ValueError, RecursionError) as error:
        raise _malformed(str(error)) from None
    if not isinstance(found, dict):
        raise _malformed("it is not an object")
    metadata = _metadata(found.pop(METADATA_NAME, None))
    entries = [_entry(name, value, header_bytes) for name, value in found.items()]
    entries.sort(key=lambda each: (each.begin, each.end))
    _require_dense(entries, header_bytes, file_bytes)
    stored = metadata.pop(SUMS_KEY, None)
    is_part = metadata.pop(PART_KEY, None) is not None
    if stored is None or not verify:
        return Header(header_bytes, {each.name: each for each in entries}, metadata, None, is_part)
    crc, sums = _sums(stored, data[:header_bytes], len(entries))
    summed = {
        each.name: Entry(each.name, each.dtype, each.shape, each.begin, each.end, each_crc)
        for each, each_crc in zip(entries, sums, strict=True)
    }
    return Header(header_bytes, summed, metadata, crc, is_part)


def sorted_entries(entries: Iterable[Entry]) -> list[Entry]:
    """Return entries in the order in which the safetensors library writes them."""
    return sorted(entries, key=lambda each: (rank_of(each.dtype), each.name))


def build_header(
    entries: Iterable[Entry], metadata: Mapping[str, str] | None, sums: Iterable[int] | None
) -> bytes:
    """Return the bytes before the first tensor.

    Args:
        entries: the tensors, in the order of the file; where they lie follows from their sizes.
        metadata: the texts; None: none.
        sums: of each tensor, to be stored; None: store none.

    Raises:
        InvalidArgumentError: the header would be too long for any reader.
    """
    described: dict[str, Any] = {}
    if sums is not None:
        metadata = {**(metadata or {}), SUMS_KEY: "0" * _DIGITS + "".join(map(_hex, sums))}
    if metadata is not None:
        described[METADATA_NAME] = dict(metadata)
    begin = 0
    for each in entries:
        end = begin + each.size_bytes
        described[each.name] = {
            "dtype": each.dtype,
            "shape": list(each.shape),
            "data_offsets": [begin, end],
        }
        begin = end
    text = json.dumps(described, ensure_ascii=False, separators=(",", ":")).encode()
    # The library keeps the tensors at multiples of eight bytes.
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES:
        raise InvalidArgumentError(
            f"the header would have {len(text):,} bytes, and readers take {MAX_HEADER_BYTES:,} at "
            "most: save fewer tensors in one file (max_shard_bytes=...)"
        )
    data = _LENGTH.pack(len(text)) + text
    if sums is None:
        return data
    at = data.index(_SUMS_BEGIN) + len(_SUMS_BEGIN)
    return data[:at] + _hex(_engine.crc32c(data)).encode() + data[at + _DIGITS :]


def sum_of_header(data: bytes) -> int:
    """Return the sum that `build_header` has stored in a header."""
    at = data.index(_SUMS_BEGIN) + len(_SUMS_BEGIN)
    return int(data[at : at + _DIGITS], 16)


def _hex(crc: int) -> str:
    return f"{crc:0{_DIGITS}x}"


def _sums(stored: str, data: bytes, count: int) -> tuple[int, list[int]]:
    """Return the sums of the header and of its tensors, if the header's own one is right."""
    at = data.find(_SUMS_BEGIN) + len(_SUMS_BEGIN)
    zeroed = data[:at] + b"0" * _DIGITS + data[at + _DIGITS :]
    is_right = (
        at >= len(_SUMS_BEGIN)
        and len(stored) == _DIGITS * (1 + count)
        and _SUMS.fullmatch(stored) is not None
        and _engine.crc32c(zeroed) == int(stored[:_DIGITS], 16)
    )
    if not is_right:
        raise CorruptDataError(
            "its header is not the one that its CRC-32C was stored with: it is damaged, or another "
            f"program has written it and kept the text {SUMS_KEY!r} of the metadata; verify=False "
            "reads it without checks"
        )
    crc, *sums = (int(stored[i : i + _DIGITS], 16) for i in range(0, len(stored), _DIGITS))
    return crc, sums


def _malformed(reason: str) -> CorruptDataError:
    return CorruptDataError(f"its header is damaged, or not one of safetensors: {reason}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise _malformed(f"{_shown(twice)} is there twice")
    return made


def _number(text: str) -> int:
    # More digits would take Python long, and no size has them.
    if text.startswith("-") or len(text) > 19 or int(text) > _MAX_NUMBER:
        raise _malformed(f"{_shown(text)} is no size")
    return int(text)


def _no_number(text: str) -> NoReturn:
    raise _malformed(f"{_shown(text)} is no size")


def _shown(text: object) -> str:
    shown = ascii(text)
    return shown if len(shown) <= 200 else f"{shown[:200]}..."


def _require_text(text: object) -> None:
    if not isinstance(text, str):
        raise _malformed(f"{_shown(text)} of the metadata is no text")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _malformed(f"{_shown(text)} has a half of a character") from None


def _metadata(found: object) -> dict[str, str]:
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise _malformed(f"{METADATA_NAME} is no object")
    for name, value in found.items():
        _require_text(name)
        _require_text(value)
    return found


def _entry(name: str, value: object, header_bytes: int) -> Entry:
    _require_text(name)
    wrong = f"the tensor {_shown(name)}"
    if not isinstance(value, dict):
        raise _malformed(f"{wrong} is no object")
    dtype: Any = value.get("dtype")
    shape: Any = value.get("shape")
    offsets: Any = value.get("data_offsets")
    if not _are_numbers(shape):
        raise _malformed(f"{wrong} has no shape of sizes")
    if len(shape) > _MAX_DIMENSIONS:
        raise _malformed(f"{wrong} has {len(shape):,} dimensions")
    if not _are_numbers(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _malformed(f"{wrong} has no place that begins before it ends")
    if not isinstance(dtype, str):
        raise _malformed(f"{wrong} has no dtype")
    if dtype not in BITS:
        raise InvalidArgumentError(
            f"{wrong} has the dtype {_shown(dtype)}, which this version of headrace does not know"
        )
    # Zeros aside, so that the size of the other dimensions is one that torch can compute.
    if math.prod(filter(None, shape)) * BITS[dtype] // 8 > _MAX_NUMBER:
        raise _malformed(f"{wrong} has a shape of more bytes than there are")
    begin, end = offsets
    bits = math.prod(shape) * BITS[dtype]
    if bits % 8 or bits // 8 != end - begin:
        raise _malformed(
            f"{wrong} has {end - begin:,} bytes, and its shape {shape} of {dtype} takes "
            f"{bits / 8:,.15g}"
        )
    return Entry(name, dtype, tuple(shape), header_bytes + begin, header_bytes + end)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is int for each in value)


def _require_dense(entries: list[Entry], begin: int, file_bytes: int) -> None:
    """Raise unless the tensors follow each other from the header to the end of the file."""
    before = "the header"
    for each in entries:
        if each.begin != begin:
            what = "overlaps" if each.begin < begin else "leaves a gap behind"
            raise _malformed(f"the tensor {_shown(each.name)} {what} {before}")
        begin, before = each.end, f"the tensor {_shown(each.name)}"
    if begin != file_bytes:
        raise CorruptDataError(
            f"its tensors end at byte {begin:,}, and the file has {file_bytes:,} bytes: it is "
            f"{'truncated' if begin > file_bytes else 'damaged'}"
        )
