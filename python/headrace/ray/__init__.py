"""Datasets of Ray Data, and checkpoints of Ray Train. Needs ``pip install 'headrace[ray]'``.

The engine reads many objects at a time into one Arrow block, verifies them, and repeats requests
that fail. Ray divides the blocks among its tasks.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from headrace import MiB, ObjectIndex, _engine
from headrace._base.face import belong_to
from headrace._base.on_error import require_on_error
from headrace._base.options import require, require_bytes
from headrace._index.shard_samples import FIELDS, field_names, is_indexed, samples_of
from headrace._index.shards import members_of, shards_of
from headrace._pack.object_source import Stores, objects_of
from headrace._store.chosen import Chosen, OptionalSuffix
from headrace._store.entry_reads import EntryReads
from headrace.ray._train import ranks, report, restore
from headrace.types import OnError, ShardSource, StoreOptions

try:
    import pyarrow
    import ray.data
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask
except ImportError as error:
    raise ImportError("headrace.ray needs Ray Data: pip install 'headrace[ray]'") from error

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["ranks", "read_objects", "read_shards", "report", "restore"]

belong_to(__name__, __all__, globals())

BLOCK_BYTES = 32 * MiB
_LEAST_BLOCK_BYTES = 1 * MiB
_LEAST_TASKS_OF_CPU, _MOST_TASKS_OF_CPU = 2, 4
_MOST_TASKS = 4096
_BLOCKS_OF_TASK = 2  # one is read while one is handed over; Ray joins them in its store
_URL, _BYTES = "url", "bytes"
_TYPES = {bool: pyarrow.bool_(), int: pyarrow.int64(), float: pyarrow.float64(),
          str: pyarrow.string(), bytes: pyarrow.binary()}  # fmt: skip


def read_objects(
    source: ShardSource | Iterable[ShardSource],
    *,
    suffix: OptionalSuffix = None,
    hidden: bool = False,
    block_bytes: int = BLOCK_BYTES,
    override_num_blocks: int | None = None,
    concurrency: int | None = None,
    ray_remote_args: dict[str, Any] | None = None,
    **options: Unpack[StoreOptions],
) -> Any:
    """Return a dataset of Ray Data with a row for each object: its URL, and its bytes.

    The columns of an index, such as labels, become columns. Objects are listed now and read by the
    tasks of Ray, each pinned to the version that was listed and compared with its checksum. If the
    process of a task is lost, Ray repeats it, and each row still comes once.

    Args:
        source: the URL or path of a folder; a pattern with braces or wildcards; a `headrace.Store`;
            a `headrace.ObjectIndex`, such as the ``objects`` of a dataset; or several of these.
        suffix: what the names of objects end with, or several of these.
        hidden: whether hidden objects are read, too; as for `headrace.pack`.
        block_bytes: the size of the blocks that are read, at most; one object always fits. A task
            has two of them in memory, one that is read and one that is handed over.
        override_num_blocks: how many read tasks there are, at most. Default: four for each CPU
            that they may use, or two where the blocks would be smaller than 1 MiB; or more, up to
            4,096, so that none has more than two blocks. Ray decides if its
            ``DataContext.read_op_min_num_blocks`` was changed.
        concurrency: how many of them run at a time. Default: as many as Ray has CPUs for.
        ray_remote_args: what Ray needs for each of them, such as ``{"num_cpus": 0.5}``.
        options: options of `headrace.Store`, for all URLs that are given: ``endpoint=...``. Each
            machine needs credentials of its own, unless they are given here.

    Returns:
        A ``ray.data.Dataset`` with the columns ``url`` and ``bytes``.

    Raises:
        NotFoundError: there is no object.
        InvalidArgumentError: an argument cannot work.

    Examples:
        >>> dataset = headrace.ray.read_objects("gs://bucket/train/")  # doctest: +SKIP
        >>> for batch in dataset.map(decode).iter_torch_batches(batch_size=256):  # doctest: +SKIP
        ...     train(batch)
    """
    block_bytes = require_bytes("block_bytes", block_bytes, minimum=1)
    index, stores = objects_of(source, options, Chosen(suffix, hidden=hidden))
    taken = {_URL, _BYTES} & set(index.columns)
    require(
        not taken,
        f"the index has a column {min(taken, default='')!r}, which is what the dataset calls the "
        "object's: rename it",
    )
    read = _Entries(index, stores, block_bytes, None)
    return _dataset(read, override_num_blocks, concurrency, ray_remote_args)


def read_shards(
    source: ShardSource | Iterable[ShardSource],
    *,
    fields: Sequence[str] | None = None,
    hidden: bool = False,
    on_error: OnError = "raise",
    block_bytes: int = BLOCK_BYTES,
    override_num_blocks: int | None = None,
    concurrency: int | None = None,
    ray_remote_args: dict[str, Any] | None = None,
    **options: Unpack[StoreOptions],
) -> Any:
    """Return a dataset of Ray Data with a row for each sample in tar shards.

    What is a sample, `headrace.torch.ShardDataset` says. The headers of the shards are read now,
    unless an index is given; samples are read by the tasks of Ray, one request for each.

    Args:
        source: the shards, as for `headrace.index_members`, or the index that it returned.
        fields: the names of the fields that are wanted. Each sample must have them. Default: all.
        hidden: as for `headrace.index_members`.
        on_error: what to do about shards whose headers cannot be read, as for
            `headrace.index_members`.
        block_bytes: as for `read_objects`.
        override_num_blocks: as for `read_objects`.
        concurrency: as for `read_objects`.
        ray_remote_args: as for `read_objects`.
        options: as for `read_objects`.

    Returns:
        A ``ray.data.Dataset`` with the columns ``__key__``, ``__url__`` (the shard's), and one for
        each field, of bytes; null where a sample does not have it.

    Raises:
        NotFoundError: there is no such shard.
        CorruptDataError: a shard is no tar, or is cut.
        InvalidArgumentError: a shard is compressed, or a sample lacks a field.

    Examples:
        >>> dataset = headrace.ray.read_shards("gs://bucket/shards/")  # doctest: +SKIP
        >>> dataset.schema().names  # doctest: +SKIP
        ['__key__', '__url__', 'cls', 'jpg']
    """
    block_bytes = require_bytes("block_bytes", block_bytes, minimum=1)
    wanted = None if fields is None else field_names(fields)
    require_on_error(on_error)
    if isinstance(source, ObjectIndex) and is_indexed(source):
        index, (samples, stores) = source, objects_of(source, options, Chosen())
        samples = samples_of(index, wanted, on_error)
    else:
        shards, stores = shards_of(source, None, options, Chosen(hidden=hidden))
        members, lost = members_of(shards, stores, on_error, False)
        samples = samples_of(members, wanted, on_error, lost, len(shards))
        of_root = dict(zip(shards.roots, stores, strict=True))
        stores = tuple(of_root[root] for root in samples.roots)
    names = sorted({name for text in samples.column(FIELDS) for name in str(text).split("/")})
    read = _Entries(samples, tuple(stores), block_bytes, tuple(names))
    return _dataset(read, override_num_blocks, concurrency, ray_remote_args)


def _dataset(
    read: _Entries,
    override_num_blocks: int | None,
    concurrency: int | None,
    ray_remote_args: dict[str, Any] | None,
) -> Any:
    if override_num_blocks is None and _is_rays_default("read_op_min_num_blocks"):
        # Ray's own default is two hundred tasks, or more. It copies the blocks of fewer to pieces,
        # and each block costs its scheduler some milliseconds.
        override_num_blocks = read.cut(_cpus(concurrency))
    return ray.data.read_datasource(
        read,
        override_num_blocks=override_num_blocks,
        concurrency=concurrency,
        ray_remote_args=ray_remote_args,
    )


def _is_rays_default(name: str) -> bool:
    context = ray.data.DataContext
    return bool(getattr(context.get_current(), name) == getattr(context(), name))


def _cpus(concurrency: int | None) -> int:
    """Return how many CPUs read tasks may use at a time."""
    if not ray.is_initialized():
        ray.init()
    group = ray.util.get_current_placement_group()
    if group is None:
        cpus = ray.cluster_resources().get("CPU", 1)  # type: ignore[no-untyped-call]
    else:
        cpus = sum(bundle.get("CPU", 0) for bundle in group.bundle_specs)
    if concurrency is not None:
        cpus = min(cpus, concurrency)
    return max(int(cpus), 1)  # Ray itself refuses a concurrency below 1


class _Entries(Datasource):
    """The entries of an index as rows."""

    def __init__(
        self, index: ObjectIndex, stores: Stores, block_bytes: int, fields: tuple[str, ...] | None
    ) -> None:
        self._index, self._stores, self._fields = index, stores, fields
        self._block_bytes = block_bytes
        self._ends = _cut(index, block_bytes)

    def cut(self, cpus: int) -> int:
        """Cut the blocks so that so many CPUs have some; return the number of tasks for that."""
        most = self._index.total_size_bytes // _LEAST_BLOCK_BYTES
        wanted = max(min(_MOST_TASKS_OF_CPU * cpus, most), _LEAST_TASKS_OF_CPU * cpus)
        self._cut_for(wanted)
        count = len(self._ends)
        return min(count, max(wanted, min(-(-count // _BLOCKS_OF_TASK), _MOST_TASKS)))

    def _cut_for(self, tasks: int) -> None:
        """Have a block for each of so many tasks."""
        share_bytes = self._index.total_size_bytes // tasks
        if len(self._ends) < tasks and share_bytes < self._block_bytes:
            self._ends = _cut(self._index, max(share_bytes, 1))

    def get_name(self) -> str:
        """What Ray calls the tasks."""
        return "Objects" if self._fields is None else "Shards"

    def estimate_inmemory_data_size(self) -> int | None:
        """The bytes of all entries."""
        return self._index.total_size_bytes

    def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[Any]:
        """Give each task some of the blocks that follow each other."""
        of_root = dict(zip(self._index.roots, self._stores, strict=True))
        self._cut_for(parallelism)
        tasks: list[Any] = []
        count, begin = len(self._ends), 0
        for ends in _shares(self._ends, max(1, min(parallelism, count))):
            part = self._index[begin : ends[-1]]
            stores = tuple(of_root[root] for root in part.roots)
            run = _Run(part, stores, tuple(end - begin for end in ends), self._fields)
            metadata = BlockMetadata(
                num_rows=len(part),
                size_bytes=part.total_size_bytes,
                input_files=None,
                exec_stats=None,
            )
            tasks.append(ReadTask(run, metadata, schema=run.schema()))
            begin = ends[-1]
        return tasks


def _cut(index: ObjectIndex, block_bytes: int) -> list[int]:
    """Return where blocks end that hold so many bytes at most, or one entry."""
    ends: list[int] = []
    held_bytes = 0
    for i in range(len(index)):
        size_bytes = index.size_bytes(i)
        if i > (ends[-1] if ends else 0) and held_bytes + size_bytes > block_bytes:
            ends.append(i)
            held_bytes = 0
        held_bytes += size_bytes
    return [*ends, len(index)]


def _shares(ends: Sequence[int], count: int) -> Iterator[Sequence[int]]:
    for i in range(count):
        yield ends[len(ends) * i // count : len(ends) * (i + 1) // count]


@dataclass(frozen=True)
class _Run:
    """Entries that one task reads, block after block. It pickles."""

    index: ObjectIndex
    stores: Stores
    ends: tuple[int, ...]
    fields: tuple[str, ...] | None

    def __call__(self) -> Iterator[Any]:
        """Yield the blocks; the next one is read while one is handed over."""
        engines = [store._open() for store in self.stores]
        reader = _engine.IndexReader(self.index, [handle for _, handle in engines])
        ahead: list[_Block] = []
        try:
            for begin, end in itertools.pairwise((0, *self.ends)):
                ahead.append(_Block(self, reader, engines[0][0], range(begin, end)))
                if len(ahead) == 2:
                    yield ahead.pop(0).table()
            for block in ahead:
                yield block.table()
        finally:
            for block in ahead:
                block.drain()

    def schema(self) -> Any:
        """Return the names and types of the columns."""
        if self.fields is not None:
            names = [("__key__", pyarrow.string()), ("__url__", pyarrow.string())]
            return pyarrow.schema(names + [(each, pyarrow.large_binary()) for each in self.fields])
        own = [(name, _TYPES[type(self.index.column(name, [0])[0])]) for name in self.index.columns]
        return pyarrow.schema([(_URL, pyarrow.string()), (_BYTES, pyarrow.large_binary()), *own])


class _Block:
    """Some entries that are being read."""

    def __init__(self, run: _Run, reader: Any, engine: Any, entries: range) -> None:
        self._run, self._entries = run, entries
        sizes = [run.index.size_bytes(i) for i in entries]
        self._offsets = array("q", itertools.accumulate(sizes, initial=0))
        size_bytes = self._offsets[-1]
        if run.fields is None:
            # Where a block lay that Ray has put into its store, this one has no pages to ask for.
            self._memory = engine.batch_memory(max(size_bytes, 1))
            self._hand_over = self._memory.give_away
            batch = reader.start(entries, into=self._memory, places=self._offsets[:-1])
        else:
            self._hand_over = engine.charge(size_bytes).release
            batch = reader.start(entries)
        self._reads = EntryReads(batch, run.index, entries)

    def table(self) -> Any:
        """Wait, and return the rows."""
        index, entries, schema = self._run.index, self._entries, self._run.schema()
        try:
            if self._run.fields is not None:
                samples = [
                    _engine.split_sample(each) for each in self._reads.take(return_errors=False)
                ]
                keys, urls = (
                    pyarrow.array([sample[name] for sample in samples], pyarrow.string())
                    for name in schema.names[:2]
                )
                contents = (
                    _content([sample.get(name) for sample in samples]) for name in schema.names[2:]
                )
                columns = [keys, urls, *contents]
                return pyarrow.Table.from_arrays(columns, schema=schema)
            self._reads.take(return_errors=False)
            content = pyarrow.LargeBinaryArray.from_buffers(
                pyarrow.large_binary(), len(entries),
                [None, pyarrow.py_buffer(self._offsets), pyarrow.py_buffer(self._memory)],
            )  # fmt: skip
            own = [pyarrow.array(index.column(name, entries)) for name in index.columns]
            urls = pyarrow.array([index.url(i) for i in entries], pyarrow.string())
            return pyarrow.Table.from_arrays([urls, content, *own], schema=schema)
        finally:
            self._hand_over()

    def drain(self) -> None:
        """Give it up."""
        self._reads.cancel()
        self._reads.drain()
        self._hand_over()


def _content(values: Sequence[Buffer | None]) -> Any:
    """Return a column with the bytes of each value; null for None.

    `pyarrow.array` would never let go of the memory of a sample: of all but ``bytes`` it keeps a
    view (seen with pyarrow 26).
    """
    held = [b"" if value is None else value for value in values]
    data = b"".join(held)
    sizes = (memoryview(each).nbytes for each in held)
    offsets = array("q", itertools.accumulate(sizes, initial=0))
    there = None
    if any(value is None for value in values):
        there = pyarrow.array([value is not None for value in values]).buffers()[1]
    return pyarrow.LargeBinaryArray.from_buffers(
        pyarrow.large_binary(), len(values),
        [there, pyarrow.py_buffer(offsets), pyarrow.py_buffer(data)],
    )  # fmt: skip


def __dir__() -> list[str]:
    return __all__  # not what it imports
