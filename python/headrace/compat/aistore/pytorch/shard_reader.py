"""``aistore.pytorch.shard_reader``: the samples of tar shards."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from tarfile import TarError
from typing import Any, Literal

from torch.utils.data._utils import collate as torch_collate

from headrace.compat.aistore._passes import ObjectsIter
from headrace.compat.aistore._progress import shown
from headrace.compat.aistore._shards import Shard, read_shards
from headrace.compat.aistore.pytorch.base_iter_dataset import AISBaseIterDataset
from headrace.torch._arguments import choice, count

__all__ = ["AISShardReader"]

# As WebDataset has it: the folder belongs to the key, and an extension is the longest one.
_WEBDATASET = re.compile(r"((?:.*/|)[^./][^./]*)[.]([^/]*)", re.DOTALL)

KeyRule = Literal["basename", "webdataset"]


class AISShardReader(AISBaseIterDataset):
    """The samples of tar shards: pairs of a key and a dict from extensions to ``bytes``.

    Members with the same key are one sample; samples come in the order in which a shard first
    mentions them. A sample has every extension that this process has seen so far, in its own shard
    or before, with ``b""`` for what is missing; a batch of torch's ``default_collate`` has the
    extensions of all its samples.

    Shards may be compressed (gzip, bzip2, xz; zstd and lz4 with their packages). A shard above
    32 MiB is kept in a temporary file, not in memory.

    Args:
        bucket_list: as `ais_source_list` of `AISBaseIterDataset`.
        prefix_map: the same.
        etl_name: an ETL of the cluster that transforms each shard.
        show_progress: whether to show a bar of tqdm for each shard.
        partition_sources_by_worker: as for `AISBaseIterDataset`.
        keys: ``"basename"`` splits a member's name as the original does: the key is the last part
            of the path up to its first dot, the extension stands behind the last dot.
            ``"webdataset"`` splits at the first dot of the last part: the key has the folder, and
            ``z.seg.png`` is the field ``seg.png`` of ``z``.
        options: the keyword-only arguments of `AISBaseIterDataset`; they are about shards.

    Raises:
        ValueError: there is no source.

    Examples:
        >>> for key, fields in AISShardReader("gs://bucket/shards"):
        ...     print(key, sorted(fields))
        sample_1 ['cls', 'jpg']
    """

    def __init__(
        self,
        bucket_list: Any,
        prefix_map: dict[Any, Any] = {},  # noqa: B006 - the default that users know; only read
        etl_name: str | None = None,
        show_progress: bool = False,
        partition_sources_by_worker: bool = False,
        *,
        keys: KeyRule = "basename",
        **options: Any,
    ) -> None:
        super().__init__(bucket_list, prefix_map, partition_sources_by_worker, **options)
        self._etl_name = etl_name
        self._show_progress = show_progress
        self._observed_keys: set[str] = set()
        self._keys = choice("keys", keys, ("basename", "webdataset"))

    class ZeroDict(dict[str, bytes]):
        """The fields of a sample, and ``b""`` for each other extension of `keys`.

        Args:
            dict: the fields.
            keys: the extensions that it has, in any case.

        Examples:
            >>> AISShardReader.ZeroDict({"cls": b"1"}, ["cls", "jpg"])
            {'cls': b'1', 'jpg': b''}
        """

        def __init__(self, dict: Mapping[str, bytes], keys: Iterable[str] = ()) -> None:
            super().__init__(dict)
            for key in keys:
                self.setdefault(key, b"")

    def __len__(self) -> int:
        """Return how many samples a pass has. All shards are read for that."""
        with self._objects_to_count() as objects:
            _unwatched(objects)
            with closing(self._shards(objects)) as shards:
                return sum(len(self._samples(shard, set())) for _, shard in shards)

    def __iter__(self) -> Iterator[tuple[str, dict[str, bytes]]]:
        """Begin a pass.

        Raises:
            TarError: an object is no tar, or a broken one.
            NotFoundError: a shard was deleted after the listing.
        """
        self._reset_iterator()
        objects, label = self._get_worker_iter_info()
        own = _unwatched(objects)
        with closing(self._shards(objects)) as shards:
            for value, shard in shards:
                # The first shard may be the one in which a loaded state is.
                done = 0 if own is None else own.samples
                samples = [*self._samples(shard, self._observed_keys).items()][done:]
                title, read = f"{value.name}{label}", shard.read
                bar = shown(samples, title, self._show_progress, total=len(samples))
                with closing(bar):
                    for key, fields in bar:
                        content = {name: read(number) for name, number in fields.items()}
                        if own is not None:
                            own.samples += 1
                        yield key, self.ZeroDict(content, self._observed_keys)
                if own is not None:
                    own.advance()

    def state_dict(self) -> dict[str, Any]:
        """Return the place behind the sample that the latest pass has yielded last.

        With workers, each has a place of its own: torchdata's StatefulDataLoader keeps them.

        Raises:
            InvalidArgumentError: as for `AISBaseIterDataset`.

        Examples:
            >>> state = reader.state_dict()
        """
        if self._latest is not None:
            done = self._latest.samples
        else:
            done = self._state["samples"] if self._state and self._loaded() is not None else 0
        return {**super().state_dict(), "samples": done}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next pass continue from a state that `state_dict` returned.

        Args:
            state: the state.

        Raises:
            InvalidArgumentError: this is not a state.

        Examples:
            >>> reader.load_state_dict(state)
        """
        samples = state.get("samples") if isinstance(state, Mapping) else None
        count("the state's samples", samples, minimum=0)
        super().load_state_dict(state)

    def _shards(self, objects: Any) -> Generator[tuple[Any, Shard]]:
        try:
            yield from read_shards(objects, self._etl_name)
        except TarError as error:
            raise TarError(f"<{type(self).__name__}> Error opening tar file: {error}") from error

    def _samples(self, shard: Shard, observed: set[str]) -> dict[str, dict[str, int]]:
        """Return the members of each sample by number, and note the extensions in `observed`."""
        samples: dict[str, dict[str, int]] = {}
        split = self._split
        for number, (name, is_file) in enumerate(zip(shard.names, shard.is_file, strict=True)):
            key, extension = split(name)
            if not extension:
                continue
            observed.add(extension)
            if is_file:
                fields = samples.get(key)
                if fields is None:
                    samples[key] = {extension: number}
                else:
                    fields[extension] = number
        return samples

    def _split(self, name: str) -> tuple[str, str]:
        if self._keys == "basename":  # as get_basename() and get_extension() do
            last = name.rpartition("/")[2]
            key, dot, extension = last.partition(".")
            return key, extension.rpartition(".")[2] if dot else ""
        match = _WEBDATASET.fullmatch(name)
        return (match[1], match[2]) if match else ("", "")


def _unwatched(objects: Any) -> ObjectsIter | None:
    if not isinstance(objects, ObjectsIter):
        return None
    objects.reads_ahead = False
    return objects


def _collate_fields(batch: list[dict[str, bytes]], *, collate_fn_map: Any = None) -> dict[str, Any]:
    """Make a batch that has every field of its samples, whichever sample comes first."""
    names = dict.fromkeys(name for fields in batch for name in fields)
    return {
        name: torch_collate.collate(
            [fields.get(name, b"") for fields in batch], collate_fn_map=collate_fn_map
        )
        for name in names
    }


torch_collate.default_collate_fn_map[AISShardReader.ZeroDict] = _collate_fields
