"""A store under test, with what it cannot do, and a way past headrace to what it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import headrace


def but_for_time(info: headrace.ObjectInfo) -> list[object]:
    """Everything that is public, but `updated`."""
    fields = [name for name in dir(info) if not name.startswith("_") and name != "updated"]
    assert "content_type" in fields
    return [getattr(info, name) for name in fields]


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """What a store can do. The suite asserts both answers; nothing is skipped."""

    flat_names: bool
    """Any text is a name. Otherwise names are relative paths: their components are neither empty,
    nor "." or "..", nor longer than 255 bytes."""
    keeps_checksums: bool
    """A listing tells the CRC-32C."""
    keeps_metadata: bool
    """The content type and the content encoding come back."""
    answers_by_http: bool
    """Errors have an HTTP status and count their attempts."""
    makes_buckets: bool
    """The first write to a bucket that does not exist makes it."""
    pages_count_prefixes: bool
    """`max_results` bounds objects and common prefixes together. Otherwise only the objects, and
    the first page has all prefixes."""
    conditional_delete: bool
    """A delete with `if_generation` is refused when the generation is another."""
    conditional_copy: bool
    """A copy with `if_generation` is refused when the target's generation is another."""
    composes: bool
    """Objects can be composed on the server."""
    conditional_large_write: bool
    """A large write with `if_generation` is refused when the target's generation is another."""
    writes_tell_types: bool = True
    """Objects written in parts keep their content type, too."""
    joins_forget_types: bool = True
    """An object that is composed of parts has none of the type of the one that it replaces."""
    listings_tell_types: bool = True
    """A listing has the content type."""
    tells_times: bool = True
    """It is known when an object was written."""
    writes_tell_times: bool = True
    """The answer to a write tells it, too, where it is known."""
    redirects: bool = False
    """An answer may take several attempts, without any failure."""
    conditions_have_status: bool = True
    """A condition that is not met is refused with an HTTP status."""
    nested_names: bool | Literal["sometimes"] | None = True
    """"a" and "a/b" may exist at once. None: they may, and listings do not tell the second."""
    refused_characters: str = ""
    """No name may have these."""
    refused_endings: tuple[str, ...] = ()
    """No folder in a name may end with these."""
    control_characters: bool = True
    """Names may have control characters."""
    component_bytes: int = 255
    """The longest that what lies between two slashes of a name may be."""
    odd_names: frozenset[str] = frozenset()
    """If not `flat_names`: the names that are no paths and are taken all the same."""
    part_bytes: int = 64 << 10
    """The smallest part of a large write."""
    uploads: tuple[str, ...] = ("parts", "multipart", "resumable")
    """The ways in which large objects are written."""


@dataclass(frozen=True)
class Subject:
    """One empty root: a bucket, a folder in a bucket, or a directory."""

    abilities: Abilities
    url: str
    bucket_url: str
    """Of the bucket that the root is in; of a directory, the same."""
    open: Callable[..., headrace.Store]
    """A store for a URL, the root's own by default, with options."""
    missing_url: str
    """A bucket that does not exist."""
    put: Callable[[str, bytes], Any]
    """Stores an object by its name below the root, without headrace."""
    get: Callable[[str], bytes]
    """Gives an object's bytes without headrace."""
