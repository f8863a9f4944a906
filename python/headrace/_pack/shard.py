"""One shard, packed: its objects are read ahead, and written as they come."""

from __future__ import annotations

import array
import contextlib
import itertools
import struct
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, NoReturn

from headrace import _engine
from headrace._base.errors import HeadraceError, InvalidArgumentError, add_note, text_of, with_url
from headrace._base.options import MiB, require
from headrace._engine import ObjectIndex, ObjectInfo, ObjectWriter, Sample
from headrace._files.leftovers import tell_left_behind
from headrace._index.shard_samples import lower
from headrace._pack.place import Place, Record
from headrace._store.entry_reads import EntryReads
from headrace._store.store import Store

__all__ = ["TOKEN_TYPES", "Check", "Encode", "Events", "Job", "Transform", "pack_shard"]

Check = Callable[[], object]
"""Raises if the packing is to end."""
Encode = Callable[[bytes], Iterable[int]]
Transform = Callable[[dict[str, Any]], Mapping[str, Any] | None]

PIECE_BYTES = 8 * MiB
"""What is read and written together. Many small objects are one piece, and so is one large one."""
_PIECES_AHEAD = 3
_PARTS_IN_FLIGHT = 4
# A multipart upload has at most 10,000 parts, and 32 objects can be joined at once.
_PARTS_OF_SHARD = 256
_TAR_END = bytes(1024)
_BLOCK_BYTES = 512
_WAIT_S = 0.05

TOKEN_TYPES = {
    "uint8": ("B", 1), "int8": ("b", 2), "int16": ("h", 3), "int32": ("i", 4), "int64": ("q", 5),
    "uint16": ("H", 8), "uint32": ("I", None),
}  # fmt: skip
"""Of each type of tokens, what `array` calls it, and its code in an .idx of Megatron-Core."""


@dataclass(frozen=True)
class Events:
    """What those who have shards packed are to tell. Each function may raise, and ends it so."""

    arrived: Callable[[int], object]
    """So many bytes of the sources more are done."""
    packed: Callable[[int, Record], object]
    """The shard of this number is whole."""
    tick: Callable[[], object]
    """Some time has passed, perhaps without news."""


@dataclass(frozen=True)
class Job:
    """What all shards of a packing have in common. With a number, it is all that packs a shard."""

    index: ObjectIndex
    stores: tuple[Store, ...]
    place: Place
    rules: Mapping[str, Any]
    """The keywords of `PackPlan`, from which every process makes the same plan."""
    skips_errors: bool
    transform: Transform | None = None
    encode: Encode | None = None
    dtype: str = "uint16"
    layout: Literal["megatron", "raw"] = "megatron"

    @cached_property
    def plan(self) -> _engine.PackPlan:
        """What is packed into which shard."""
        return _engine.PackPlan(self.index, **self.rules)

    @property
    def function(self) -> Transform | Encode | None:
        """The user's own."""
        return self.transform if self.encode is None else self.encode

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "plan"}


@dataclass
class _Counts:
    """What became of the samples of a shard."""

    samples: int = 0
    dropped: int = 0
    tokens: int = 0
    errors: list[tuple[str, str]] = field(default_factory=list)


class _Piece(NamedTuple):
    """Some samples, read to where they are in a shard."""

    samples: _engine.PackPiece
    data: memoryview
    entries: memoryview
    places: memoryview
    errors: dict[int, HeadraceError]
    """By the number of the entry in `entries`."""

    def content(self, index: ObjectIndex, at: int) -> memoryview:
        begin = self.places[at]
        return self.data[begin : begin + index.size_bytes(self.entries[at])]


def pack_shard(
    job: Job,
    number: int,
    check: Check = lambda: None,
    arrived: Callable[[int], object] = lambda _: None,
) -> Record:
    """Write a shard, and then its record.

    Args:
        check: ends it early, by an exception.
        arrived: called with how many bytes of the sources more are done.

    Raises:
        HeadraceError: an object could not be read, or the shard not be written.
    """
    pack = _pack_tar if job.encode is None else _pack_tokens
    record = pack(job, number, check, arrived)
    job.place.remember(number, record)
    return record


# ---- reading


def _pieces(
    job: Job, number: int, check: Check, arrived: Callable[[int], object]
) -> Generator[_Piece, None, None]:
    """Yield the pieces of a shard, in order; each is valid until the next one is asked for."""
    begin, end = job.plan.shard(number)
    engines = [store._open() for store in job.stores]
    reader = _engine.IndexReader(job.index, [handle for _, handle in engines])
    ahead: deque[tuple[_Piece, EntryReads]] = deque()

    def start() -> None:
        nonlocal begin
        samples = job.plan.piece(begin, end, PIECE_BYTES)
        memory = engines[0][0].batch_memory(max(samples.size_bytes, 1))
        data = memoryview(memory)[: samples.size_bytes]
        entries, places = samples.lay_out(data)
        batch = reader.start(entries, into=memory, places=places)
        reads = EntryReads(batch, job.index, entries)
        ahead.append((_Piece(samples, data, entries, places, {}), reads))
        begin = samples.end

    try:
        while begin < end or ahead:
            while begin < end and len(ahead) < _PIECES_AHEAD:
                start()
            piece, reads = ahead[0]
            while not reads.poll(_WAIT_S):
                check()
            check()
            if job.skips_errors or job.plan.has_given_ranges:
                # Ranges that are shorter than the index says are errors, too.
                found = reads.take(return_errors=job.skips_errors)
                failed = {
                    i: each for i, each in enumerate(found) if isinstance(each, HeadraceError)
                }
                piece.errors.update(failed)
                del found  # they refer to the memory, which is used again
            else:
                reads.wait()
            yield piece
            arrived(job.plan.source_bytes(piece.samples.begin, piece.samples.end))
            piece.data.release()
            ahead.popleft()
            del piece, reads
    finally:
        for _, reads in ahead:
            reads.cancel()
        for _, reads in ahead:
            reads.drain()


def _open_writer(job: Job, name: str, planned_bytes: int, content_type: str) -> ObjectWriter:
    return job.place.store.open_writer(
        name,
        if_generation=job.place.condition(name),
        content_type=content_type,
        part_bytes=max(PIECE_BYTES, planned_bytes // _PARTS_OF_SHARD),
        max_parts_in_flight=_PARTS_IN_FLIGHT,
    )


def _closed(writer: ObjectWriter) -> ObjectInfo:
    info = writer.close()
    tell_left_behind(writer, writer.url, is_saved=True)
    return info


# ---- tars


def _pack_tar(job: Job, number: int, check: Check, arrived: Callable[[int], object]) -> Record:
    name = f"{job.place.shard_name(number)}.tar"
    begin, end = job.plan.shard(number)
    files = _engine.PackedFiles()
    counts = _Counts()
    planned_bytes = job.plan.source_bytes(begin, end)
    with _open_writer(job, name, planned_bytes, "application/x-tar") as writer:
        with closing(_pieces(job, number, check, arrived)) as pieces:
            for piece in pieces:
                if job.transform is None and not piece.errors:
                    files.add_planned(piece.samples, writer.size_bytes)
                    writer.write(piece.data)
                    counts.samples += piece.samples.end - piece.samples.begin
                else:
                    _write_samples(job, piece, writer, files, counts, check)
        writer.write(_TAR_END)
        info = _closed(writer)
    shard = ObjectIndex.from_objects([info], root=job.place.store.url)
    return Record(
        objects=[(info.name, info.size_bytes, info.generation)],
        samples=counts.samples,
        dropped=counts.dropped,
        errors=counts.errors,
        members=files.index(shard),
    )


def _write_samples(
    job: Job,
    piece: _Piece,
    writer: ObjectWriter,
    files: _engine.PackedFiles,
    counts: _Counts,
    check: Check,
) -> None:
    """Write the samples of a piece one by one: some are missing, or become others."""
    at = 0
    described = piece.samples.describe()
    for position, (key, fields, label) in enumerate(described, piece.samples.begin):
        check()
        first, at = at, at + len(fields)
        failed = next((piece.errors[i] for i in range(first, at) if i in piece.errors), None)
        if failed is not None:
            counts.errors.append((failed.url or "", str(failed)))
            continue
        if job.transform is None:
            contents = [piece.content(job.index, i) for i in range(first, at)]
            made: list[tuple[str, Any]] = list(zip(fields, contents, strict=True))
            if label is not None:
                made.append(("cls", label.encode()))
        else:
            transformed = _transformed(job, piece, position, key, fields, label, first, counts)
            if transformed is None:
                continue
            made = transformed
        for field_name, data in made:
            header = _engine.tar_header(f"{key}.{field_name}", len(data))
            begin = writer.size_bytes + len(header)
            files.add(f"{key}.{field_name}", begin, begin + len(data))
            writer.write(header)
            writer.write(data)
            writer.write(bytes(-len(data) % _BLOCK_BYTES))
        counts.samples += 1


def _transformed(
    job: Job,
    piece: _Piece,
    position: int,
    key: str,
    fields: Sequence[str],
    label: str | None,
    first: int,
    counts: _Counts,
) -> list[tuple[str, Any]] | None:
    """Return the fields that the transform makes of a sample; None if it is left out."""
    assert job.transform is not None
    url = job.index.url(piece.entries[first])
    [seed] = _engine.sample_seeds(job.rules["seed"], 0, position, position + 1)
    sample: dict[str, Any] = {"__key__": key, "__url__": url}
    for i, field_name in enumerate(fields, first):
        entry = piece.entries[i]
        sample[lower(field_name)] = Sample(
            piece.content(job.index, i), job.index.url(entry), name=job.index.name(entry), seed=seed
        )
    if label is not None:
        sample["cls"] = Sample(label.encode(), url, seed=seed)
    try:
        made = job.transform(sample)
        if made is None:
            counts.dropped += 1
            return None
        made_fields = _checked_fields(made)
        for field_name, data in made_fields:  # a name that no tar can have is an error of theirs
            _engine.tar_header(f"{key}.{field_name}", len(data))
        return made_fields
    except (Exception, SystemExit) as error:
        _failed(job, error, f"the sample {key!r}", url, counts)
        return None


def _failed(job: Job, error: Exception | SystemExit, what: str, url: str, counts: _Counts) -> None:
    """Raise what the user's function raised, or note it if `what` is then to be left out."""
    function = "transform" if job.encode is None else "encode"
    if isinstance(error, SystemExit):  # it would end a thread and say nothing, or a process
        error = _about(url, f"{function} called sys.exit({error.code!r})", HeadraceError)
    if job.skips_errors:
        counts.errors.append((url, f"{type(error).__name__}: {text_of(error)}"))
        return
    if url not in text_of(error):
        add_note(error, f"in {what}, {url}")
    if isinstance(error, HeadraceError) and not error.url:
        with contextlib.suppress(Exception):  # of a class that refuses it
            error.url = url
    raise error


def _checked_fields(made: Any) -> list[tuple[str, Any]]:
    require(
        isinstance(made, Mapping),
        f"transform returned a {type(made).__name__}; it must return a dict of fields, or None to "
        "leave the sample out",
    )
    fields = []
    names = set()
    for name, value in made.items():
        if isinstance(name, str) and name in ("__key__", "__url__"):
            continue
        require(
            isinstance(name, str) and name != "" and "/" not in name and "\0" not in name,
            f"transform returned the field {name!r}; names are texts such as 'jpg', without a '/'",
        )
        require(lower(name) not in names, f"transform returned the field {lower(name)!r} twice")
        names.add(lower(name))
        fields.append((name, _content(name, value)))
    require(bool(fields), "transform returned no field; None leaves the sample out")
    return fields


def _content(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value).encode()
    require(
        isinstance(value, bytes | bytearray | memoryview | Sample),
        f"transform returned a {type(value).__name__} as the field {name!r}; encode it to bytes "
        "(texts and integers are written as such)",
    )
    return memoryview(value).cast("B")


# ---- tokens


def _pack_tokens(job: Job, number: int, check: Check, arrived: Callable[[int], object]) -> Record:
    base = job.place.shard_name(number)
    begin, end = job.plan.shard(number)
    lengths: list[int] = []
    counts = _Counts()
    item_bytes = array.array(TOKEN_TYPES[job.dtype][0]).itemsize
    planned_bytes = job.plan.source_bytes(begin, end)
    with _open_writer(job, f"{base}.bin", planned_bytes, "application/octet-stream") as writer:
        with closing(_pieces(job, number, check, arrived)) as pieces:
            for piece in pieces:
                for at, entry in enumerate(piece.entries):
                    check()
                    tokens = _tokens(job, piece, at, entry, counts)
                    if tokens is not None:
                        writer.write(tokens)
                        lengths.append(len(tokens) // item_bytes)
        infos = [_closed(writer)]
    if job.layout == "megatron":
        name = f"{base}.idx"
        infos.append(
            job.place.store.write(
                name, _megatron_index(lengths, job.dtype), if_generation=job.place.condition(name)
            )
        )
    return Record(
        objects=[(info.name, info.size_bytes, info.generation) for info in infos],
        samples=len(lengths),
        errors=counts.errors,
        tokens=sum(lengths),
    )


def _tokens(job: Job, piece: _Piece, at: int, entry: int, counts: _Counts) -> bytes | None:
    """Return the tokens of a document; None if it is left out."""
    assert job.encode is not None
    url = job.index.url(entry)
    if at in piece.errors:
        counts.errors.append((url, str(piece.errors[at])))
        return None
    try:
        return _as_items(job.encode(bytes(piece.content(job.index, at))), job.dtype, url)
    except (Exception, SystemExit) as error:
        _failed(job, error, "the document", url, counts)
        return None


def _as_items(tokens: Any, dtype: str, url: str) -> bytes:
    if hasattr(tokens, "__array__"):  # of NumPy, torch and the like
        import numpy

        given = numpy.asarray(tokens)
        if given.shape == (0,):  # of whatever type: that of numpy.array([]) is float64
            return b""
        if given.dtype.kind not in "iu" or given.ndim != 1:
            _refuse(url, f"an array of {given.dtype} with {given.ndim} dimensions")
        limits = numpy.iinfo(dtype)
        odd = given[(given < limits.min) | (given > limits.max)]
        if len(odd):
            _refuse_id(url, odd[0], dtype)
        return bytes(given.astype(numpy.dtype(dtype).newbyteorder("<")).tobytes())
    if isinstance(tokens, str | bytes) or not isinstance(tokens, Iterable):
        _refuse(url, f"a {type(tokens).__name__}")
    code, _ = TOKEN_TYPES[dtype]
    ids = tokens if isinstance(tokens, list | tuple) else list(tokens)
    try:
        return array.array(code, ids).tobytes()
    except OverflowError:
        bits = 8 * array.array(code).itemsize - (not dtype.startswith("u"))
        least = 0 if dtype.startswith("u") else -(1 << bits)
        _refuse_id(url, next(each for each in ids if not least <= each < 1 << bits), dtype)
    except TypeError:
        other = next((each for each in ids if not isinstance(each, int)), None)
        _refuse(url, f"{other!r}, a {type(other).__name__}, among its tokens")


def _refuse(url: str, what: str) -> NoReturn:
    raise _about(url, f"encode returned {what}; it must return integers")


def _refuse_id(url: str, token: Any, dtype: str) -> NoReturn:
    raise _about(url, f"encode returned the token {token}, which {dtype} cannot hold; give dtype=")


def _about(url: str, text: str, kind: type[HeadraceError] = InvalidArgumentError) -> HeadraceError:
    return with_url(kind(f"{url}: {text}"), url)


def _megatron_index(lengths: Sequence[int], dtype: str) -> bytes:
    """Return the .idx: each document is one sequence."""
    code, item_code = TOKEN_TYPES[dtype]
    item_bytes = array.array(code).itemsize
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, item_code, len(lengths), len(lengths) + 1)
    begins = itertools.accumulate((length * item_bytes for length in lengths[:-1]), initial=0)
    return b"".join(
        [
            head,
            array.array("i", lengths).tobytes(),
            array.array("q", begins if lengths else []).tobytes(),
            array.array("q", range(len(lengths) + 1)).tobytes(),
        ]
    )
