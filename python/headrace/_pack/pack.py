"""Packing: many small objects become a few large ones."""

from __future__ import annotations

import functools
import hashlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import CellType, CodeType
from typing import Any, Literal, Unpack

from headrace._base.errors import HeadraceError, with_url
from headrace._base.on_error import OnError, require_on_error
from headrace._base.options import MiB, integer, require, require_bytes, require_count
from headrace._base.progress import ProgressOption, choose_progress
from headrace._engine import ObjectIndex
from headrace._index.shards import ShardSource
from headrace._pack.place import Place, Record
from headrace._pack.shard import TOKEN_TYPES, Encode, Events, Job, Transform
from headrace._pack.source import entries_of, with_folder_labels
from headrace._store.chosen import Chosen, OptionalSuffix
from headrace._store.location import Url, root_at
from headrace._store.settings import StoreOptions
from headrace._store.store import Store

__all__ = ["Executor", "Packed", "pack", "pack_tokens"]

Executor = Literal["threads", "processes", "ray"]

SHARD_BYTES = 256 * MiB
_EXECUTORS = ("threads", "processes", "ray")
_LABEL = "label"
_SEED_END = 1 << 63

_logger = logging.getLogger("headrace")


@dataclass(frozen=True, kw_only=True)
class Packed:
    """What `pack` and `pack_tokens` have made, in this call and in earlier ones that were stopped.

    Examples:
        >>> packed = headrace.pack("gs://bucket/train", "gs://bucket/packed/train")
        >>> packed.shards, packed.written, packed.samples, packed.skipped
        (1, 1, 3, ())
    """

    shards: int
    """How many shards there are."""
    written: int
    """How many of them this call wrote; the others were there already."""
    samples: int
    """Samples, or documents, in all shards."""
    dropped: int
    """Samples for which the transform returned None."""
    skipped: tuple[tuple[str, str], ...]
    """Samples that were left out because of errors (``on_error``): a URL of each, and why."""
    size_bytes: int
    """The size of all shards."""
    source_bytes: int
    """The size of what was packed."""
    tokens: int
    """Tokens in all shards; 0 in tars."""
    index: ObjectIndex | None
    """The index of the members of all shards, as `index_members` returns it; None of tokens."""


def pack(
    source: ShardSource | Iterable[ShardSource],
    destination: Url | Store,
    *,
    shard_bytes: int = SHARD_BYTES,
    shard_samples: int | None = None,
    shuffle: bool = False,
    seed: int = 0,
    label: str | None = None,
    transform: Transform | None = None,
    name: str = "train",
    executor: Executor = "threads",
    workers: int | None = None,
    suffix: OptionalSuffix = None,
    hidden: bool = False,
    overwrite: bool = False,
    on_error: OnError = "raise",
    progress: ProgressOption = False,
    **options: Unpack[StoreOptions],
) -> Packed:
    """Pack objects into tar shards, as WebDataset has them, and save an index of their members.

    Objects whose names have the same key (up to the first dot after the last slash) are a sample,
    and stay together. The shards are ``train-000000.tar`` and so on; ``train.index`` has their
    members, so that `headrace.torch.ShardDataset` need not read headers.

    Which sample goes into which shard follows from the sources and the arguments alone. If it is
    stopped or killed, the same call goes on: shards that are whole are left as they are. What it
    remembers of them lies in the folder ``_pack`` of the destination.

    Each object is read once, many at a time, and compared with the checksum that its store has. In
    memory are at most 64 MiB for each of the `workers`. A sample is in memory as a whole, so that
    it is three samples and 40 MiB if samples are larger than 8 MiB.

    Args:
        source: the URL or path of a folder; a pattern with braces or wildcards; a `headrace.Store`;
            a `headrace.ObjectIndex`, such as the ``objects`` of a dataset; or several of these. If
            it is tar shards, their samples are packed anew.
        destination: the URL, path or store of a folder.
        shard_bytes: a shard ends before the sample that would make it larger. With a transform,
            this counts the samples before it.
        shard_samples: so many samples a shard, at most.
        shuffle: pack in the order of an epoch instead of that of the source.
        seed: of that order, and of the samples' own seeds; any integer from 0 to 2^63 - 1.
        label: gives each sample a field ``cls``: ``"folder"``: the number of its first folder,
            counted in alphabetical order; else a column of the index, of integers or texts.
        transform: a function of a dict with ``__key__``, ``__url__`` and a `headrace.Sample` for
            each field. It returns the fields to be packed, as bytes, texts or integers; None leaves
            the sample out. It should return the same for the same sample. Several threads call it,
            or other processes do (`executor`).
        name: how the names of the shards begin.
        executor: what packs shards. ``"threads"`` of this process are enough unless a transform in
            Python holds the lock of the interpreter. ``"processes"`` of this machine each have
            their own: the transform must be a function of a module, and a script calls this below
            ``if __name__ == "__main__":``. ``"ray"``: tasks on the cluster that ``ray.init`` has
            connected to, that ``RAY_ADDRESS`` names, or that runs on this machine, else (or if
            it is ``local``) on one that is started for this call; a task whose process or machine
            is lost is repeated. All of them write the same bytes, and each continues what another
            has begun.
        workers: shards that are packed at a time. Default: one for each core, of threads at most 4;
            with Ray, as many as the cluster has CPUs.
        suffix: what the names of samples end with, or several of these.
        hidden: whether hidden objects are packed, too: those whose names have a part that begins
            with ``.`` below the folder, or ``__MACOSX``. Folder markers never are.
        overwrite: delete what an earlier packing of this name wrote, and begin anew.
        on_error: ``"raise"``: what cannot be read or transformed ends it. ``"skip"``: its sample is
            left out, and the log says so. A function: the same, and the function is called with
            the error.
        progress: shows how much is done: True shows a tqdm bar; a function is called with the bytes
            of the source that are packed and all bytes.
        options: options of `headrace.Store`, for all URLs that are given: ``endpoint=...``.

    Raises:
        NotFoundError: there is nothing to pack.
        InvalidArgumentError: what is at the destination was packed otherwise; a sample has a field
            twice; two samples of a shard have the same key.
        PreconditionFailedError: an object has changed since it was listed, or somebody else writes
            to the destination.
        HeadraceError: something could not be read or written; a process was killed; Ray is not
            installed.

    Examples:
        >>> packed = headrace.pack("gs://bucket/train", "gs://bucket/shards-of-1", shard_samples=1)
        >>> packed.shards, packed.samples, packed.index.column("member")
        (3, 3, ['cat/001.jpg', 'cat/002.jpg', 'dog/001.jpg'])
    """
    chosen = Chosen(suffix, hidden=hidden)
    require(
        transform is None or callable(transform),
        f"transform is {transform!r}; it must be a function of a dict of fields",
    )
    require(
        label is None or isinstance(label, str),
        f"label is {label!r}; it must be 'folder', or the name of a column of the index",
    )
    packing = _Packing(
        destination, name, shard_bytes, shard_samples, shuffle, seed, executor, on_error, options
    )
    index, stores = entries_of(
        source, packing.place.store, on_error, packing.source_options, chosen
    )
    classes = None
    if label == "folder":
        index, classes = with_folder_labels(index, _LABEL)
    settings = {"label": label, "classes": classes, "transform": _name_of(transform)}
    column = _LABEL if classes is not None else label
    packing.prepare(
        index, stores, "tar", settings, column, overwrite=overwrite, transform=transform
    )
    packed = packing.run(workers, progress)
    assert packed.index is not None
    packed.index.save(packing.place.index_name, store=packing.place.store)
    return packed


def pack_tokens(
    source: ShardSource | Iterable[ShardSource],
    destination: Url | Store,
    encode: Encode,
    *,
    dtype: str = "uint16",
    layout: Literal["megatron", "raw"] = "megatron",
    shard_bytes: int = SHARD_BYTES,
    shard_samples: int | None = None,
    shuffle: bool = False,
    seed: int = 0,
    name: str = "train",
    executor: Executor = "threads",
    workers: int | None = None,
    suffix: OptionalSuffix = None,
    hidden: bool = False,
    overwrite: bool = False,
    on_error: OnError = "raise",
    progress: ProgressOption = False,
    **options: Unpack[StoreOptions],
) -> Packed:
    """Make files of tokens, one document of each object, as `headrace.torch.TokenDataset` reads.

    It goes on where it was stopped, and keeps to its memory, as `pack` does.

    Args:
        source: as for `pack`. Each object is a document, and of tar shards each member.
        destination: the URL, path or store of a folder.
        encode: a function of the bytes of a document, which returns its tokens: a list, an array or
            another iterable of integers, with the token that ends a document if there is to be one.
            Several threads call it, or other processes do (`executor`).
        dtype: the type of tokens: ``"uint16"``, ``"int32"`` and so on. A token that it cannot hold
            is an error.
        layout: ``"megatron"``: ``train-000000.bin`` and so on with an ``.idx`` of Megatron-Core
            each, which has the documents. ``"raw"``: the ``.bin`` alone.
        shard_bytes: a file ends before the document with which more than so many bytes of the
            source would be in it.
        shard_samples: so many documents a file, at most.
        shuffle: pack documents in the order of an epoch instead of that of the source.
        seed: of that order; any integer from 0 to 2^63 - 1.
        name: how the names of the files begin.
        executor: as for `pack`.
        workers: as for `pack`.
        suffix: as for `pack`.
        hidden: as for `pack`.
        overwrite: as for `pack`.
        on_error: as for `pack`; what is left out is a document.
        progress: as for `pack`.
        options: as for `pack`.

    Raises:
        NotFoundError: there is nothing to pack.
        InvalidArgumentError: what is at the destination was packed otherwise; `encode` returns
            what is no integer, or one that `dtype` cannot hold.
        HeadraceError: something could not be read or written.

    Examples:
        >>> packed = headrace.pack_tokens("gs://bucket/train", "gs://bucket/tokens", list)
        >>> packed.samples, packed.tokens == packed.source_bytes
        (3, True)
    """
    chosen = Chosen(suffix, hidden=hidden)
    require(callable(encode), f"encode is {encode!r}; it must be a function of bytes")
    require(dtype in TOKEN_TYPES, f"dtype is {dtype!r}; it must be one of {', '.join(TOKEN_TYPES)}")
    require(layout in ("megatron", "raw"), f"layout is {layout!r}; it must be 'megatron' or 'raw'")
    require(
        layout == "raw" or TOKEN_TYPES[dtype][1] is not None,
        f"dtype is {dtype}, which an .idx of Megatron-Core cannot have: take int32, or "
        "layout='raw'",
    )
    packing = _Packing(
        destination, name, shard_bytes, shard_samples, shuffle, seed, executor, on_error, options
    )
    index, stores = entries_of(
        source, packing.place.store, on_error, packing.source_options, chosen
    )
    settings = {"encode": _name_of(encode), "dtype": dtype, "layout": layout}
    packing.prepare(
        index, stores, "tokens", settings, None, overwrite=overwrite,
        encode=encode, dtype=dtype, layout=layout,
    )  # fmt: skip
    return packing.run(workers, progress)


class _Packing:
    """One packing in progress."""

    def __init__(
        self,
        destination: Url | Store,
        name: str,
        shard_bytes: int,
        shard_samples: int | None,
        shuffle: bool,
        seed: int,
        executor: Executor,
        on_error: OnError,
        options: Mapping[str, Any],
    ) -> None:
        shard_bytes = require_bytes("shard_bytes", shard_bytes, minimum=1)
        if shard_samples is not None:
            shard_samples = require_count("shard_samples", shard_samples, minimum=1)
        seed = integer("seed", seed, minimum=0, end=_SEED_END)
        require(
            isinstance(name, str) and name != "" and "/" not in name,
            f"name is {name!r}; it must be how the names of shards begin, without a '/'",
        )
        require(
            executor in _EXECUTORS,
            f"executor is {executor!r}; it must be one of {', '.join(map(repr, _EXECUTORS))}",
        )
        require_on_error(on_error)
        # Only where it is asked for: multiprocessing and Ray take their time to be imported.
        self._executor = import_module(f"headrace._pack.on_{executor}")
        store = destination if isinstance(destination, Store) else root_at(destination, **options)
        self.place = Place(store, name)
        self.source_options = options
        self._settings: dict[str, Any] = {
            "shard_bytes": shard_bytes, "shard_samples": shard_samples, "shuffle": bool(shuffle),
            "seed": seed,
        }  # fmt: skip
        self._on_error = on_error
        self._lock = threading.Lock()

    def prepare(
        self,
        index: ObjectIndex,
        stores: tuple[Store, ...],
        kind: str,
        settings: Mapping[str, Any],
        label: str | None,
        *,
        overwrite: bool,
        **how: Any,
    ) -> None:
        """Make the plan, and agree with what is at the destination."""
        own = self._settings
        rules = {
            "max_shard_bytes": own["shard_bytes"],
            "max_shard_samples": own["shard_samples"],
            "shuffle": own["shuffle"],
            "seed": own["seed"],
            "label": label,
            "documents": kind == "tokens",
        }
        self._function = settings.get("transform") or settings.get("encode")
        self._job = Job(index, stores, self.place, rules, self._on_error != "raise", **how)
        self._executor.require_usable(self._job)
        self._plan = self._job.plan
        left_out = self._plan.left_out_count
        if left_out:
            _logger.warning(
                "%s %s left out, since the names have no key before a dot: %s%s",
                left_out,
                "object is" if left_out == 1 else "objects are",
                self._plan.first_left_out,
                "" if left_out == 1 else ", ...",
            )
        require(
            self._plan.sample_count > 0,
            "there is no sample to pack: none of the names has a key before a dot",
        )
        self._total_bytes = self._plan.source_bytes(0, self._plan.sample_count)
        self.place.begin(
            {
                "version": 1,
                "kind": kind,
                "source": index.fingerprint,
                "samples": self._plan.sample_count,
                "shards": self._plan.shard_count,
                **own,
                **settings,
            },
            index,
            overwrite=overwrite,
        )

    def run(self, workers: int | None, progress: ProgressOption) -> Packed:
        """Pack the shards that are not whole yet."""
        if workers is not None:
            workers = require_count("workers", workers, minimum=1)
        records = self.place.whole_shards(self._plan.shard_count)
        missing = [i for i in range(self._plan.shard_count) if i not in records]
        with choose_progress(progress, "packing", self._total_bytes) as shown:

            def arrived(size_bytes: int) -> None:
                with self._lock:
                    shown.add(size_bytes)

            def packed(number: int, record: Record) -> None:
                with self._lock:
                    records[number] = record
                    self._tell(record)

            for number in records:
                arrived(self._plan.source_bytes(*self._plan.shard(number)))
            if missing:
                events = Events(arrived, packed, shown.tick)
                self._executor.pack_shards(self._job, missing, workers, events)
        self.place.end()
        if not missing and self._function:
            _logger.info(
                "all %d shards of %s are there already; whether the code of %s has changed is not "
                "known, and overwrite=True packs anew",
                len(records), self.place.store.url, self._function,
            )  # fmt: skip
        return self._packed([records[i] for i in range(len(records))], len(missing))

    def _tell(self, record: Record) -> None:
        for url, text in record.errors:
            if callable(self._on_error):
                about = HeadraceError(text if url in text else f"{url}: {text}")
                self._on_error(with_url(about, url))
            else:
                _logger.warning("left out of the shards: %s: %s", url, text)

    def _packed(self, records: list[Record], written: int) -> Packed:
        members = [record.members for record in records if record.members is not None]
        return Packed(
            shards=len(records),
            written=written,
            samples=sum(record.samples for record in records),
            dropped=sum(record.dropped for record in records),
            skipped=tuple(each for record in records for each in record.errors),
            size_bytes=sum(size for record in records for _, size, _ in record.objects),
            source_bytes=self._total_bytes,
            tokens=sum(record.tokens for record in records),
            index=ObjectIndex.concat(members) if members else None,
        )


def _name_of(function: Callable[..., Any] | None) -> str | None:
    """Return ``module:function``, by which another run knows whether it is the same.

    Of a lambda, what it does counts, too: a hash of its code, which another Python may have. So
    does what a `functools.partial` gives to a function. Neither is written itself: it may be
    secret.
    """
    if function is None:
        return None
    if isinstance(function, functools.partial):
        given = repr([_told(function.args), _told(function.keywords)])
        return f"{_name_of(function.func)}({hashlib.sha256(given.encode()).hexdigest()[:16]})"
    kind = type(function)
    module = getattr(function, "__module__", None) or kind.__module__
    name = f"{module}:{getattr(function, '__qualname__', kind.__qualname__)}"
    code = getattr(function, "__code__", None)
    if code is None or not name.endswith("<lambda>"):
        return name
    # Its name says nothing: what it does, and what it has from around it, tells it from others.
    cells = [_told(_content(cell)) for cell in function.__closure__ or ()]
    what = [_told(function.__defaults__), _told(function.__kwdefaults__), cells, _text_of(code)]
    return f"{name}({hashlib.sha256(repr(what).encode()).hexdigest()[:16]})"


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None


def _text_of(code: CodeType) -> str:
    """Return what code does, wherever it stands."""
    inner = [
        _text_of(each) if isinstance(each, CodeType) else _told(each) for each in code.co_consts
    ]
    return repr([code.co_code, code.co_names, inner])


def _told(value: Any) -> str:
    """Return a text that is the same in another run: of objects, the type alone."""
    if value is None or isinstance(value, str | bytes | int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_told, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{_told(k)}: {_told(v)}' for k, v in value.items()))}}}"
    if callable(value):
        return str(_name_of(value))
    return type(value).__qualname__
