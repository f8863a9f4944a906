"""Which object, or which root, of which store a URL means: the one place that decides it."""

from __future__ import annotations

import itertools
import math
import os
import posixpath
import re
from collections.abc import Mapping
from itertools import pairwise
from string import ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING, Any, Unpack

from headrace import _engine
from headrace._base.errors import InvalidArgumentError
from headrace._base.options import provider_of, require
from headrace._store.settings import StoreOptions

if TYPE_CHECKING:
    from headrace._store.store import Store

__all__ = [
    "Url",
    "after_scheme",
    "before_wildcards",
    "bucket_and_name",
    "bucket_of",
    "directory_of",
    "expand_braces",
    "folder_and_name",
    "folder_without_links",
    "has_wildcard",
    "is_local",
    "is_url",
    "is_whole",
    "object_at",
    "require_no_options_beside",
    "root_at",
    "scheme_of",
]

Url = str | os.PathLike[str]

_SCHEMES = ("gs", "gcs", "s3", "ais", "file")

# What a pattern with braces may become; more is a slip of the pen.
_MOST_NAMES = 1_000_000
_MOST_DEPTH = 100  # of braces in braces
_NUMBERS = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?")
# A letter in the order of this; braceexpand, and so WebDataset, has capitals first, too.
_ALPHABET = ascii_uppercase + ascii_lowercase
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.(-?\d+))?")


def object_at(
    url: Url, store: Store | None = None, **options: Unpack[StoreOptions]
) -> tuple[Store, str]:
    """Return the store of the object at `url`, and the object's name there.

    Without `store`, the store is the bucket, or the folder that holds the file. Nothing is asked of
    the service, and nothing of the file system.

    Args:
        url: of an object; with `store` its name there, or its whole URL, which must lie below the
            store's.
        store: where the object is.
        options: of `Store`, if `store` is not given.

    Raises:
        InvalidArgumentError: the URL names no object, or the object lies in another store.
    """
    text = _text_of(url)
    require_no_options_beside(store, options)
    if store is not None:
        name = _name_below(text, store)
        _require_object(text, name, is_file=is_local(store.url))
        return store, name
    return _split_object(text, options)


def root_at(url: Url = "", store: Store | None = None, **options: Unpack[StoreOptions]) -> Store:
    """Return the store whose root is `url`.

    Args:
        url: of a bucket, of a folder in it, or of a directory. With `store`: the name of a folder
            there, or a whole URL below the store's; ``""`` is the store itself.
        store: the store that `url` lies in; what is returned has its options.
        options: of `Store`, if `store` is not given.

    Raises:
        InvalidArgumentError: no store has such a URL, or it lies in another store.
    """
    from headrace._store.store import Store

    require_no_options_beside(store, options)
    if store is None:
        return Store(_text_of(url), **options)
    name = _name_below(os.fspath(url), store).strip("/")
    return store._derived(posixpath.join(store.url, name)) if name else store


def bucket_and_name(url: Url) -> tuple[str, str]:
    """Return the URL of a bucket, or of the machine's root directory, and the name of `url` there.

    The name is ``""`` for the whole bucket, and ends with ``/`` if only what lies below can be
    meant. It may be the beginning of names.

    Raises:
        InvalidArgumentError: no URL has this form.
    """
    scheme, bucket, name, _ = _engine.split_url(_text_of(url))
    if scheme != "file":
        return f"{scheme}://{bucket}", name
    is_folder = name.endswith(("/", "/.")) or name in (".", "..")
    path = _absolute(name).lstrip("/")
    return "file:///", f"{path}/" if is_folder and path else path


def bucket_of(store: Store) -> tuple[Store, str]:
    """Return the store of the whole bucket, and the name that the root of `store` has there.

    The name is ``""`` if it is the bucket itself. A directory is a bucket of its own.
    """
    scheme, bucket, name, _ = _engine.split_url(store.url)
    if scheme == "file" or not name:
        return store, ""
    return store._derived(f"{scheme}://{bucket}"), name


def directory_of(store: Store) -> str | None:
    """Return the path of the directory that `store` is; None if it is in a bucket."""
    scheme, _, path, _ = _engine.split_url(store.url)
    return path if scheme == "file" else None


def is_local(url: Url) -> bool:
    """Return whether `url` is of a file or a directory of this machine.

    Raises:
        InvalidArgumentError: no URL has this form.
    """
    return _engine.split_url(_text_of(url))[0] == "file"


def folder_without_links(url: str) -> str:
    """Return the URL of a folder, or the path of a directory without links; with a slash behind."""
    scheme, _, path, _ = _engine.split_url(url)
    return (os.path.realpath(path) if scheme == "file" else url).rstrip("/") + "/"


def scheme_of(url: str) -> str:
    """Return ``"gs"``, ``"s3"`` and so on; ``""`` of a path."""
    scheme, separator, _ = url.partition("://")
    return scheme.lower() if separator else ""


def after_scheme(url: str) -> str:
    """Return what follows the scheme of a URL: ``"bucket/a"``; all of a path."""
    before, separator, after = url.partition("://")
    return after if separator else before


def is_url(text: str) -> bool:
    """Return whether `text` is a URL of a scheme that headrace reads."""
    scheme = scheme_of(text)
    return bool(scheme) and provider_of(scheme) in _SCHEMES


def is_whole(text: str, store: Store | None = None) -> bool:
    """Return whether `text` is a URL or an absolute path, rather than a name below some root.

    Any scheme will do, so that one that nobody knows is an error and no name. In a `store`, only a
    scheme of ours makes a URL, since names of crawled pages begin with ``https://``, for one; and
    in a bucket a name may begin with a slash.
    """
    scheme, separator, _ = text.partition("://")
    if store is None:
        return bool(separator) or text.startswith("/")
    if separator and provider_of(scheme.lower()) in _SCHEMES:
        return True
    return text.startswith("/") and is_local(store.url)


def has_wildcard(text: str) -> bool:
    """Return whether `text` is a pattern, as `ObjectIndex.filter` knows them."""
    return before_wildcards(text) != text


def before_wildcards(pattern: str) -> str:
    """Return what all matches of a pattern begin with."""
    return re.split(r"[*?[]", pattern, maxsplit=1)[0]


def folder_and_name(text: str, *, before_wildcard: bool = False) -> tuple[str, str]:
    """Return the URL of a folder, and the name of `text`, a URL or a name, in it.

    Args:
        text: of an object. The folder of a name without a slash is ``""``.
        before_wildcard: it is a pattern. The folder is that in which all matches lie, and the name
            is the rest of the pattern.

    Raises:
        InvalidArgumentError: it is a bucket.

    Examples:
        >>> folder_and_name("gs://bucket/train/*/a.tar", before_wildcard=True)
        ('gs://bucket/train', '*/a.tar')
    """
    fixed = before_wildcards(text) if before_wildcard else text
    folder, slash, _ = fixed.rpartition("/")
    name = text[len(folder) + len(slash) :]
    if folder.endswith("/"):
        require(folder == "file://", f"{text}: a bucket is no pattern, and no shard")
        folder = "file:///"
    return folder or slash, name


def expand_braces(pattern: str) -> list[str]:
    """Return the texts that a pattern with braces stands for, in its order, as a shell has them.

    ``{a,b}`` is each of these; ``{000..099}`` each number, with as many digits; ``{a..e}`` each
    letter; a third number is the step. Braces may be nested. A pair without a comma or two dots
    stands for itself.

    Raises:
        InvalidArgumentError: a brace is not closed, or was not opened; braces are in braces more
            than a hundred deep; there are more than a million texts.

    Examples:
        >>> expand_braces("{train,val}-{8..10}.tar")[:2]
        ['train-8.tar', 'train-9.tar']
    """
    depth = deepest = 0
    for each in pattern:
        depth += (each == "{") - (each == "}")
        deepest = max(depth, deepest)
    require(
        deepest <= _MOST_DEPTH,
        f"{_shown(pattern)} has braces in braces {deepest} deep; {_MOST_DEPTH} is the most",
    )
    return _expanded(pattern, pattern)


def _expanded(pattern: str, whole: str) -> list[str]:
    # Texts, one of each of these in turn.
    parts: list[list[str]] = []
    at = 0
    while (begin := pattern.find("{", at)) >= 0:
        _require_no_end(pattern[at:begin], whole)
        end, commas = _closing(pattern, begin, whole)
        parts += [[pattern[at:begin]], _alternatives(pattern, begin, end, commas, whole)]
        at = end + 1
    _require_no_end(pattern[at:], whole)
    parts.append([pattern[at:]])
    _require_few(math.prod(map(len, parts)), whole)
    return ["".join(texts) for texts in itertools.product(*parts)]


def _closing(pattern: str, begin: int, whole: str) -> tuple[int, list[int]]:
    """Return where the brace that opens at `begin` is closed, and its own commas."""
    depth, commas = 0, []
    for end in range(begin, len(pattern)):
        depth += (pattern[end] == "{") - (pattern[end] == "}")
        if depth == 1 and pattern[end] == ",":
            commas.append(end)
        if depth == 0:
            return end, commas
    raise InvalidArgumentError(
        f"{_shown(whole)}: a brace is not closed; a store's own listing finds names with braces "
        "(headrace.Store.index)"
    )


def _alternatives(pattern: str, begin: int, end: int, commas: list[int], whole: str) -> list[str]:
    inside = pattern[begin + 1 : end]
    if not commas:
        return _sequence(inside, whole) or [f"{{{each}}}" for each in _expanded(inside, whole)]
    texts: list[str] = []
    for a, b in pairwise([begin, *commas, end]):
        texts += _expanded(pattern[a + 1 : b], whole)
        _require_few(len(texts), whole)
    return texts


def _require_no_end(text: str, whole: str) -> None:
    require(
        "}" not in text,
        f"{_shown(whole)}: a brace is closed that was not opened; a store's own listing finds "
        "names with braces (headrace.Store.index)",
    )


def _require_few(count: int, whole: str) -> None:
    require(count <= _MOST_NAMES, f"{_shown(whole)} stands for more than {_MOST_NAMES:,} names")


def _shown(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 200 else f"{pattern[:200]}...")


def _sequence(text: str, whole: str) -> list[str]:
    """Return what ``8..10`` or ``a..e`` stands for; nothing if it is neither."""
    found = _NUMBERS.fullmatch(text) or _LETTERS.fullmatch(text)
    if found is None:
        return []
    first, last = found[1], found[2]
    letters = found.re is _LETTERS
    index = _ALPHABET.index if letters else int
    begin, end = index(first), index(last)
    step = max(abs(int(found[3] or 1)), 1)
    _require_few(abs(end - begin) // step + 1, whole)
    numbers = range(begin, end + 1, step) if begin <= end else range(begin, end - 1, -step)
    if letters:
        return [_ALPHABET[number] for number in numbers]
    padded = any(re.match(r"-?0\d", each) for each in (first, last))
    width = max(len(first), len(last)) if padded else 0
    return [str(number).zfill(width) for number in numbers]


def require_no_options_beside(store: Store | None, options: Mapping[str, Any]) -> None:
    """Refuse what is no store, and options of `Store` where there is a store already.

    Raises:
        InvalidArgumentError: there are both, or `store` is something else.
    """
    from headrace._store.store import Store

    require(
        store is None or isinstance(store, Store),
        f"store is {store!r}; it must be a headrace.Store, such as headrace.Store(url)",
    )
    if store is not None and options:
        given = ", ".join(f"{name}=" for name in options)
        raise InvalidArgumentError(f"{given} belongs to the store, and store= brings its own")


def _split_object(text: str, options: Mapping[str, Any]) -> tuple[Store, str]:
    from headrace._store.store import Store

    scheme, bucket, name, normal = _engine.split_url(text)
    _require_object(normal, name, is_file=scheme == "file")
    if scheme != "file":
        # The bucket, so that the engine shares one store among all its objects.
        return Store(f"{scheme}://{bucket}", **options), name
    folder, _, name = _absolute(name).rpartition("/")
    return Store(f"file://{folder or '/'}", **options), name


def _name_below(text: str, store: Store) -> str:
    """Return the name that `text`, a name or a whole URL, has in `store`."""
    if not is_whole(text, store):
        return text
    _, _, _, normal = _engine.split_url(text)
    root = store.url_of("")
    if normal.startswith(root):
        return normal[len(root) :]
    if normal == root.rstrip("/"):
        return ""
    raise InvalidArgumentError(
        f"{normal} lies outside of {store.url}: leave out store=, or pass a store that holds it"
    )


def _absolute(path: str) -> str:
    # Two dots go up from where a symbolic link leads to, as the system sees it.
    return os.path.realpath(path) if ".." in path.split("/") else os.path.abspath(path)


def _text_of(url: Url) -> str:
    if url is None:
        raise TypeError("there is no URL: None is what checkpoint.latest says if there is none yet")
    text = os.fspath(url)
    if not isinstance(text, str):
        raise TypeError(f"a URL is a str or a path of one, not {text!r}")
    require(bool(text), "the URL is empty")
    return text


def _require_object(text: str, name: str, *, is_file: bool) -> None:
    is_folder = not name or name.endswith("/")
    if is_file:
        is_folder = is_folder or name.rpartition("/")[2] in (".", "..")
    require(
        not is_folder,
        f"{text} names {'a directory' if is_file else 'a bucket or a folder'}, not an object; "
        "headrace.Store lists what is in it",
    )
