"""Files of tokens: which there are, of what type their tokens are, and where these lie."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy
import torch

from headrace import _engine
from headrace._base.errors import (
    CorruptDataError,
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
)
from headrace._base.options import require
from headrace._engine import ObjectIndex, ObjectInfo
from headrace._store.chosen import Chosen
from headrace._store.location import bucket_and_name, object_at
from headrace._store.roots import first_of_root
from headrace._store.store import Store

__all__ = ["ITEM_BYTES", "Packing", "TokenFiles", "Tokens", "find_tokens", "type_name"]

Tokens = str | os.PathLike[str] | Store

_logger = logging.getLogger("headrace")

ITEM_BYTES = {
    "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "int64": 8,
}  # fmt: skip
"""The types that tokens may have."""

_SUFFIXES = (".bin", ".npy", ".idx")
# Enough for the header that NumPy writes for an array of one dimension, which has 128 bytes.
_FIRST_BYTES = 256
_NPY_KINDS = {"u": "uint", "i": "int"}
# What the .bin of llm.c begin with: 256 int32, of which these are the first two, and the third is
# the number of tokens.
_LLM_C = {(20240520, 1): "uint16", (20240801, 7): "uint32"}
_LLM_C_BYTES = 1024


class TokenFiles(NamedTuple):
    """What `find_tokens` has found."""

    stores: tuple[Store, ...]
    files: ObjectIndex
    """An entry for each file."""
    begins: Sequence[int]
    """Where its tokens begin ..."""
    ends: Sequence[int]
    """... and end."""
    dtype: str
    """A key of `ITEM_BYTES`."""
    packing: Packing | None = None
    """If sequences are packed in an order of their own: that; the entry is then all of them."""

    @property
    def stream(self) -> ObjectIndex:
        """The entry of packed sequences under a name that no object has.

        Its bytes are not those of the .bin, and who reads by it shall not get them.
        """
        return _stream(self.files.roots[0], f"{self.files.name(0)} packed", self.ends[0])


class Packing:
    """Sequences of Megatron-Core as they are packed in some order. Pickles.

    Args:
        packed: which bytes of the .bin follow each other.
        checksum: that of the .bin, if the store knows it.
    """

    def __init__(self, packed: _engine.PackedSequences, checksum: tuple[str, bytes] | None) -> None:
        self.packed = packed
        hashed = hashlib.sha256(repr(checksum).encode())
        hashed.update(packed.parts())
        self.fingerprint = hashed.hexdigest()[:32]

    def __getstate__(self) -> tuple[bytes, str]:
        return self.packed.parts(), self.fingerprint

    def __setstate__(self, state: tuple[bytes, str]) -> None:
        self.packed = _engine.PackedSequences.from_parts(state[0])
        self.fingerprint = state[1]


class _File(NamedTuple):
    store: Store
    info: ObjectInfo
    megatron: str | None = None
    """The name of its .idx, if it has one."""


class _Span(NamedTuple):
    dtype: str
    begin: int
    end: int


def type_name(dtype: Any) -> str:
    """Return what NumPy calls a type of tokens, which may be one of torch's, or a name.

    Raises:
        InvalidArgumentError: no tokens are of this type.
    """
    name = str(dtype).removeprefix("torch.")
    if not isinstance(dtype, torch.dtype) and name not in ITEM_BYTES:
        with contextlib.suppress(TypeError):
            given = numpy.dtype(dtype)
            name = given.name if given == given.newbyteorder("<") else f"{given} (big-endian)"
    require(
        name in ITEM_BYTES,
        f"dtype is {dtype!r}; it must be one of {', '.join(ITEM_BYTES)}, little-endian",
    )
    return name


def find_tokens(
    source: Tokens | Iterable[Tokens],
    names: Sequence[str] | None,
    dtype: str | None,
    raw_type: str | None,
    sequence_order: Any,
    options: Mapping[str, Any],
    chosen: Chosen,
) -> TokenFiles:
    """Return the files of a source, or of several.

    `dtype` is what all files must be of, and `raw_type` what raw ones are, which do not say it.

    This asks for each file once, or once for the folder that it is in, and reads the beginning of
    each and the .idx of Megatron's.
    """
    files = _files(source, names, dtype, dict(options), chosen)
    stores = _one_of_each(files)
    if sequence_order is not None:
        return _packed(files, dtype, sequence_order)
    spans = _spans(files, dtype, raw_type)
    for file, span in zip(files, spans, strict=True):
        _require_one_type(files[0], spans[0], file, span)
    return TokenFiles(
        stores,
        ObjectIndex.concat(
            ObjectIndex.from_objects([file.info for file in of_store], root=url)
            for url, of_store in itertools.groupby(files, lambda file: file.store.url)
        ),
        [span.begin for span in spans],
        [span.end for span in spans],
        spans[0].dtype,
    )


# ---- which there are


def _files(
    source: Any,
    names: Sequence[str] | None,
    dtype: str | None,
    options: Mapping[str, Any],
    chosen: Chosen,
) -> list[_File]:
    sources = _sources(source, options)
    if names is not None:
        require(
            len(sources) == 1 and not isinstance(names, str) and len(names) > 0,
            "names are those of files below one store or URL, at least one, in a list",
        )
        store = _store_of(sources[0], options)
        return _named([(store, name) for name in names], dtype)
    files: list[_File] = []
    stores: dict[str, Store] = {}
    for are_files, group in itertools.groupby(sources, _is_file):
        if are_files:
            # Those that follow each other are asked for together.
            files += _named([_object_at(each, options, stores) for each in group], dtype)
            continue
        for each in group:
            pair = _pair_of(each, options, stores)
            if pair is not None:
                files += _named([pair], dtype)
            else:
                files += _listed(_store_of(each, options), chosen)
    return files


def _sources(source: Any, options: Mapping[str, Any]) -> list[Any]:
    one = isinstance(source, str | os.PathLike | Store)
    sources = [source] if one else list(source) if isinstance(source, Iterable) else []
    require(
        len(sources) > 0 and all(isinstance(each, str | os.PathLike | Store) for each in sources),
        f"the source is a {type(source).__name__}; it must be a URL, a path or a headrace.Store, "
        "or several of these",
    )
    require(
        not options or not any(isinstance(each, Store) for each in sources),
        f"{', '.join(options)}: options belong to the Store that is given",
    )
    return sources


def _is_file(source: Tokens) -> bool:
    return not isinstance(source, Store) and os.fspath(source).endswith(_SUFFIXES)


def _pair_of(
    source: Tokens, options: Mapping[str, Any], stores: dict[str, Store]
) -> tuple[Store, str] | None:
    """Return the .idx of a pair of Megatron-Core's that is named without a suffix, as it does."""
    if isinstance(source, Store):
        return None
    text = os.fspath(source)
    if text.endswith("/") or not bucket_and_name(text)[1].strip("/") or os.path.isdir(text):
        return None
    store, name = _object_at(f"{text}.idx", options, stores)
    there = store.stat_many([name, _tokens_of(name)], missing_ok=True)
    return (store, name) if all(info is not None for info in there) else None


def _store_of(source: Tokens, options: Mapping[str, Any]) -> Store:
    return _checked(source if isinstance(source, Store) else Store(source, **options))


def _object_at(
    source: Any, options: Mapping[str, Any], stores: dict[str, Store]
) -> tuple[Store, str]:
    """Return the store and the name of a file; files of one folder share a store."""
    store, name = object_at(source, **options)
    return stores.setdefault(store.url, _checked(store)), name


def _one_of_each(files: Sequence[_File]) -> tuple[Store, ...]:
    """Return the stores of the files, one of each URL; no file may be read in two ways."""
    stores: dict[str, Store] = {}
    ways: dict[tuple[str, str], str | None] = {}
    for file in files:
        first = first_of_root(stores, file.store.url, file.store)
        way = ways.setdefault((first.url, file.info.name), file.megatron)
        if way != file.megatron:
            raise _about(
                file,
                InvalidArgumentError(
                    f"it comes twice, by itself and by {way or file.megatron}; leave out one"
                ),
            )
    return tuple(stores.values())


def _checked(store: Store) -> Store:
    settings = store._settings
    require(
        settings.content_encoding == "stored" and settings.on_change == "error",
        f"{store.url}: tokens are ranges of one version of a file as it is stored; leave out "
        "content_encoding= and on_change= of the store",
    )
    return store


def _named(named: Sequence[tuple[Store, str]], dtype: str | None) -> list[_File]:
    """Ask the stores about the files that have been named, in their order."""
    by_store: dict[int, tuple[Store, list[int]]] = {}
    for at, (store, _) in enumerate(named):
        by_store.setdefault(id(store), (store, []))[1].append(at)
    found: dict[int, _File] = {}
    for store, places in by_store.values():
        files = _named_of(store, [named[at][1] for at in places], dtype)
        found.update(zip(places, files, strict=True))
    return [found[at] for at in range(len(named))]


def _named_of(store: Store, names: Sequence[str], dtype: str | None) -> list[_File]:
    for name in names:
        require(
            name.endswith(_SUFFIXES),
            f"{store.url_of(name)}: a file of tokens is a .bin or a .npy; the .idx of "
            "Megatron-Core stands for the .bin beside it",
        )
    # A .bin that has an .idx is hardly meant to be read without it, unless its type is given.
    beside = [name for name in names if name.endswith(".bin")] if dtype is None else []
    infos = store.stat_many(
        [_tokens_of(name) for name in names] + [_index_name(name) for name in beside],
        missing_ok=True,
    )
    indexed = {
        name for name, info in zip(beside, infos[len(names) :], strict=True) if info is not None
    }
    files = []
    for name, info in zip(names, infos, strict=False):
        if info is None:
            info = store.stat(_tokens_of(name))  # which raises, and says what is missing
        files.append(_File(store, info, name if name.endswith(".idx") else None))
        if name in indexed:
            raise _about(
                files[-1],
                InvalidArgumentError(
                    f"{_index_name(name)} is beside it, so it is a .bin of Megatron-Core: name "
                    "the .idx instead, or give dtype= to read the .bin without it"
                ),
            )
    return files


def _tokens_of(name: str) -> str:
    return name.removesuffix(".idx") + ".bin" if name.endswith(".idx") else name


def _index_name(name: str) -> str:
    return name.removesuffix(".bin") + ".idx"


def _listed(store: Store, chosen: Chosen) -> list[_File]:
    index = chosen.of(store.index().filter(suffix=_SUFFIXES), store.url)
    infos = {info.name: info for info in index}
    files = []
    for name, info in infos.items():
        if name.endswith(".idx"):
            if _tokens_of(name) not in infos:
                raise _about(
                    _File(store, ObjectInfo(name)),
                    NotFoundError(
                        f"{_tokens_of(name)} is not beside it: put it there, or give the names= of "
                        "the files that are to be read"
                    ),
                )
            continue
        has_index = name.endswith(".bin") and _index_name(name) in infos
        files.append(_File(store, info, _index_name(name) if has_index else None))
    if not files:
        error = NotFoundError(
            f"{store.url}: no .bin or .npy is below this folder{chosen.hint} "
            "(headrace.Store(...).list() shows what is there)"
        )
        error.url = store.url
        raise error
    return files


# ---- what is in them


def _spans(files: Sequence[_File], dtype: str | None, raw_type: str | None) -> list[_Span]:
    beginnings = iter(_headers([file for file in files if file.megatron is None]))
    spans = []
    for file in files:
        try:
            if file.megatron is not None:
                spans.append(_span_of_megatron(file))
            elif file.info.name.endswith(".npy"):
                spans.append(_span_of_npy(next(beginnings), file.info.size_bytes))
            else:
                spans.append(_span_of_bin(next(beginnings), raw_type, file.info.size_bytes))
        except HeadraceError as error:
            if error.url:
                raise
            raise _about(file, error) from None
        _require_type(file, spans[-1], dtype)
    return spans


def _require_type(file: _File, span: _Span, dtype: str | None) -> None:
    if dtype is not None and span.dtype != dtype:
        raise _about(
            file, InvalidArgumentError(f"its tokens are {span.dtype}, and dtype is {dtype}")
        )


def _about(file: _File, error: HeadraceError) -> HeadraceError:
    url = file.store.url_of(file.info.name)
    told = type(error)(f"{url}: {error}")
    told.url = url
    return told


def _require_one_type(first: _File, expected: _Span, file: _File, span: _Span) -> None:
    if span.dtype != expected.dtype:
        raise _about(
            file,
            InvalidArgumentError(
                f"its tokens are {span.dtype}, and those of {first.store.url_of(first.info.name)} "
                f"are {expected.dtype}; make a dataset of each, and torch's ConcatDataset of them"
            ),
        )


def _span_of_bin(beginning: Any, dtype: str | None, size_bytes: int) -> _Span:
    told = bytes(memoryview(beginning)[:12]).ljust(12, b"\0")
    magic, version, count = (int.from_bytes(told[at : at + 4], "little") for at in (0, 4, 8))
    if magic in (known for known, _ in _LLM_C):
        return _span_of_llm_c(magic, version, count, size_bytes)
    if dtype is None:
        raise InvalidArgumentError(
            "it has raw tokens, whose type it does not say: give dtype= (such as 'uint16', which "
            "nanoGPT writes), or vocab_size=, from which uint16 or uint32 follows"
        )
    require(
        size_bytes % ITEM_BYTES[dtype] == 0,
        f"it has {size_bytes} bytes, which are no whole number of {dtype}: is dtype= right, or was "
        "it cut?",
    )
    return _Span(dtype, 0, size_bytes)


def _span_of_llm_c(magic: int, version: int, count: int, size_bytes: int) -> _Span:
    dtype = _LLM_C.get((magic, version))
    if dtype is None:
        raise InvalidArgumentError(
            f"it begins as a .bin of llm.c does, with {magic}, but its version is {version}, which "
            "headrace does not know"
        )
    end = _LLM_C_BYTES + count * ITEM_BYTES[dtype]
    if end != size_bytes:
        raise CorruptDataError(
            f"it has {size_bytes} bytes, and its header, which is one of llm.c, says that its "
            f"{count} tokens end at byte {end}: it was cut, or does not belong to the header"
        )
    return _Span(dtype, _LLM_C_BYTES, end)


def _headers(files: Sequence[_File]) -> list[Any]:
    """Return the beginning of each file, long enough for its header."""
    beginnings = _beginnings(files, [_FIRST_BYTES] * len(files))
    sizes = []
    for file, data in zip(files, beginnings, strict=True):
        try:
            is_npy = file.info.name.endswith(".npy")
            sizes.append(_engine.npy_header_bytes(data) if is_npy else 0)
        except HeadraceError as error:
            raise _about(file, error) from None
    longer = [at for at, size in enumerate(sizes) if size > _FIRST_BYTES]
    again = _beginnings([files[at] for at in longer], [sizes[at] for at in longer])
    for at, data in zip(longer, again, strict=True):
        beginnings[at] = data
    return beginnings


def _beginnings(files: Sequence[_File], sizes: Sequence[int]) -> list[Any]:
    by_store: dict[str, list[int]] = {}
    for at, file in enumerate(files):
        by_store.setdefault(file.store.url, []).append(at)
    found: list[Any] = [None] * len(files)
    for places in by_store.values():
        handle = files[places[0]].store._handle()
        batch = handle.start(
            [files[at].info for at in places],
            ranges=[(0, min(sizes[at], files[at].info.size_bytes)) for at in places],
        )
        for at, sample in zip(places, batch.take(return_errors=False), strict=True):
            found[at] = sample
    return found


def _span_of_npy(beginning: Any, size_bytes: int) -> _Span:
    descr, is_fortran, shape, begin = _engine.npy_header(beginning)
    require(
        len(shape) == 1 and not (is_fortran and len(shape) > 1),
        f"its array has the shape {shape}; tokens are in one dimension (numpy.ravel makes one)",
    )
    order, kind, width = descr[:1], descr[1:2], descr[2:]
    require(
        order != ">" or width == "1",
        f"its items are big-endian ({descr}); numpy's astype('<{kind}{width}') makes little-endian "
        "ones",
    )
    bits = 8 * int(width) if width.isdecimal() and len(width) < 3 else 0
    dtype = f"{_NPY_KINDS.get(kind, kind)}{bits}"
    require(
        dtype in ITEM_BYTES and order in "<|>=",
        f"its items are {descr}; tokens are {', '.join(ITEM_BYTES)}",
    )
    end = begin + shape[0] * ITEM_BYTES[dtype]
    if end > size_bytes:
        raise CorruptDataError(
            f"it has {size_bytes} bytes, and its header says that its {shape[0]} tokens end at "
            f"byte {end}: it was cut"
        )
    return _Span(dtype, begin, end)


def _span_of_megatron(file: _File) -> _Span:
    assert file.megatron is not None
    return _index_of(file, file.store.read(file.megatron), in_order=True)[0]


def _index_of(file: _File, data: Any, *, in_order: bool) -> tuple[_Span, int]:
    """Return what an .idx says of its .bin, and the number of sequences."""
    assert file.megatron is not None
    size_bytes = file.info.size_bytes
    try:
        dtype, count, end, is_contiguous = _engine.megatron_index(data)
        require(dtype in ITEM_BYTES, f"its items are {dtype}; tokens are {', '.join(ITEM_BYTES)}")
        require(
            is_contiguous or not in_order,
            "its sequences do not follow each other without a gap, as Megatron-Core writes them: "
            "sequence_order=range(...) says in which order they are to be read",
        )
        if end != size_bytes:
            raise CorruptDataError(
                f"its sequences end at byte {end}, and {file.info.name} has {size_bytes} bytes: "
                "one of the two was cut, or belongs to another"
            )
    except HeadraceError as error:
        raise _about(file._replace(info=ObjectInfo(file.megatron)), error) from None
    return _Span(dtype, 0, end), count


def _packed(files: Sequence[_File], dtype: str | None, sequence_order: Any) -> TokenFiles:
    file = files[0]
    require(
        len(files) == 1 and file.megatron is not None,
        "sequence_order is of one dataset of Megatron-Core: name its .idx as the source, and join "
        "several by torch's ConcatDataset",
    )
    assert file.megatron is not None
    data = file.store.read(file.megatron).bytes()
    span, sequence_count = _index_of(file, data, in_order=False)
    _require_type(file, span, dtype)
    order = _order_of(sequence_order, sequence_count)
    packed = _engine.PackedSequences.pack(data, order)
    size_bytes = packed.size_bytes
    stream = _stream(file.store.url, file.info.name, size_bytes, file.info.generation)
    packing = Packing(packed, file.info.checksum)
    return TokenFiles((file.store,), stream, [0], [size_bytes], span.dtype, packing)


def _stream(root: str, name: str, size_bytes: int, generation: str = "") -> ObjectIndex:
    """Return all sequences as they are packed. They may be more bytes than the file has."""
    return ObjectIndex.from_names(
        [name], root=root, generations=[generation or None], begins=[0], ends=[size_bytes]
    )


def _order_of(sequence_order: Any, sequence_count: int) -> Any:
    """Return an array of int64 of our own."""
    try:
        if isinstance(sequence_order, torch.Tensor):
            sequence_order = sequence_order.detach().cpu().numpy()
        order = numpy.asarray(
            sequence_order if hasattr(sequence_order, "dtype") else list(sequence_order)
        )
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidArgumentError(f"sequence_order has no numbers of sequences: {error}") from None
    require(
        order.ndim == 1 and len(order) > 0 and order.dtype.kind in "iu",
        f"sequence_order is of the shape {order.shape} and of {order.dtype}; it must be the "
        "numbers of sequences, at least one",
    )
    least, most = int(order.min()), int(order.max())
    require(
        least >= 0 and most < sequence_count,
        f"sequence_order has the number {least if least < 0 else most}, and there are "
        f"{sequence_count} sequences",
    )
    return numpy.array(order, "int64", order="C")
