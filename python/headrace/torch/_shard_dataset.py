"""A dataset of samples in tar shards, by number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Unpack

from headrace import _engine
from headrace._base.errors import add_note
from headrace._base.on_error import OnError, require_on_error
from headrace._base.options import require
from headrace._base.progress import CountOption
from headrace._engine import ObjectIndex, Sample
from headrace._index.shard_samples import FIELDS, KEY, field_names, is_indexed, samples_of
from headrace._index.shards import ShardSource, members_of, shards_of
from headrace._store.chosen import Chosen
from headrace._store.keywords import OF_LOADERS, refuse_options
from headrace._store.settings import StoreOptions
from headrace.torch._arguments import function
from headrace.torch._by_number import ByNumber
from headrace.torch._signatures import Fields, Item, Made, ShardKeywords, overload

__all__ = ["ShardDataset", "tensors_of"]


class ShardDataset(ByNumber[Item]):
    """Samples in tar shards by number, in any order, for `Loader` and for torch's DataLoader.

    Members of a shard that follow each other and have the same key are a sample, as WebDataset has
    it: the key is the member's name up to the first dot after the last slash, and the rest, with
    A to Z in lower case, is the name of the field. ``train/0001.seg.png`` is the field ``seg.png``
    of the sample ``train/0001``. A sample is read by one request, the range from its first field to
    its last, and taken apart without a copy. All that `MapDataset` and `Loader` do with objects,
    they do with samples: shuffling over all shards, ranks, exact resume.

    A sample is a dict: ``"__key__"``, ``"__url__"`` (the shard's), and each field. With a
    transform, the fields are `headrace.Sample`, buffers with ``.bytes()``, ``.tensor()``,
    ``.numpy()`` and ``.rng()``; the generators of all fields of one sample begin alike. Without a
    transform, they are ``uint8`` tensors, which share the memory of the sample.

    Members that belong to no sample are left out, and the log says how many: a name without a dot,
    one that begins with a dot, and WebDataset's own (``__name__``). Keys are texts, and nothing is
    written to where they may lead (``../x``). A key that a shard has in two places and a field that
    a sample has twice are errors. A shard that is given several times has its samples as often.

    Stores keep checksums of whole objects, and none of ranges, so that the bytes of a sample are
    compared with none. Each read is pinned to the version of the shard that was indexed.

    Examples:
        >>> def decode(sample):
        ...     return sample["jpg"].tensor(), int(sample["cls"])
        >>> dataset = ShardDataset("gs://bucket/shards/train-{000..001}.tar", decode)
        >>> image, label = dataset[0]
        >>> for images, labels in Loader(dataset, batch_size=256, shuffle=True):
        ...     train(images, labels)

    Args:
        source: the shards, as for `headrace.index_members`, which then reads their headers. Or the
            index that it returned, so that no header is read now; or the ``objects`` of another
            dataset of shards.
        transform: a function of a dict of fields.
        index: the index, if `source` is the `headrace.Store` or URL that its shards are in.
        fields: the names of the fields that are wanted, in the order in which a sample has them.
            Only the range that holds these is read. Each sample must have them. Default: all.
        hidden: as for `headrace.index_members`.
        on_error: as for `headrace.index_members`. A shard with samples that cannot be, such as one
            key in two places, is also left out whole. Of an index of members, too. What is done
            about a sample that cannot be read or transformed later says `Loader`.
        seed: of the samples' own seeds after `set_epoch`; any integer from 0 to 2^63 - 1.
        progress: as for `headrace.index_members`.
        options: options of `headrace.Store`, if a URL is given: ``endpoint=...``.

    Raises:
        NotFoundError: there is no such shard.
        CorruptDataError: a shard is no tar, or is cut.
        InvalidArgumentError: a shard is compressed, has a key in two places, or a sample lacks a
            field; there is no sample.
        TypeError: there is no such argument.
    """

    @overload
    def __init__(
        self: ShardDataset[Fields],
        source: ShardSource | Iterable[ShardSource],
        transform: None = None,
        **keywords: Unpack[ShardKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: ShardDataset[Made],
        source: ShardSource | Iterable[ShardSource],
        transform: Callable[[dict[str, Any]], Made],
        **keywords: Unpack[ShardKeywords],
    ) -> None: ...
    def __init__(
        self,
        source: ShardSource | Iterable[ShardSource],
        transform: Callable[[Any], Any] | None = None,
        *,
        index: ObjectIndex | None = None,
        fields: Sequence[str] | None = None,
        hidden: bool = False,
        on_error: OnError = "raise",
        seed: int = 0,
        progress: CountOption = False,
        **options: Unpack[StoreOptions],
    ) -> None:
        refuse_options(type(self).__name__, options, ShardDataset, OF_LOADERS)
        wanted = None if fields is None else field_names(fields)
        require_on_error(on_error)
        function("transform", transform)
        given: Any = source
        chosen = Chosen(hidden=hidden)
        if index is not None:
            require(
                is_indexed(index),
                "index has neither members nor samples; headrace.index_members makes one of shards",
            )
            samples = samples_of(index, wanted, on_error)
        elif isinstance(source, ObjectIndex) and is_indexed(source):
            given = samples = samples_of(source, wanted, on_error)
        else:
            shards, stores = shards_of(source, None, options, chosen)
            members, lost = members_of(shards, stores, on_error, progress)
            samples = samples_of(members, wanted, on_error, lost, len(shards))
            # A shard without samples may have been the only one of its store.
            of_root = dict(zip(shards.roots, stores, strict=True))
            given, options = [of_root[root] for root in samples.roots], {}
        own = None if given is samples else samples
        super().__init__(given, None, own, None, None, seed, False, options)
        self._chosen = chosen
        self._transform = transform  # of fields, while that of other datasets is of a Sample

    def key(self, index: int) -> str:
        """Return the key of a sample, without reading it.

        Examples:
            >>> dataset = ShardDataset("gs://bucket/shards/", decode)
            >>> dataset.key(0)
            '000000'

        Raises:
            IndexError: the index is out of range.
        """
        [key] = self._objects.column(KEY, [index])
        return str(key)

    def field_names(self, index: int) -> tuple[str, ...]:
        """Return the names of the fields of a sample, without reading it.

        Examples:
            >>> dataset = ShardDataset("gs://bucket/shards/", decode)
            >>> dataset.field_names(0)
            ('jpg', 'cls')

        Raises:
            IndexError: the index is out of range.
        """
        [names] = self._objects.column(FIELDS, [index])
        return tuple(str(names).split("/"))

    def _member(self, index: int) -> str | None:
        return self.key(index)

    @property
    def _makes(self) -> bool:
        return True

    @property
    def _maker(self) -> Callable[[Sample], Any]:
        make: Callable[[Any], Any] = self._transform or tensors_of

        def made(sample: Sample) -> Any:
            fields = _engine.split_sample(sample)
            key = fields["__key__"]
            try:
                return make(fields)
            except Exception as error:
                add_note(error, f"in the sample {key!r}")
                raise

        return made


def tensors_of(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.tensor() if isinstance(value, Sample) else value
        for name, value in fields.items()
    }
