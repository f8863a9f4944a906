"""``aistore.pytorch.shard_reader``: the samples of tar shards."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from tarfile import TarError
from typing import Any

from torch.utils.data._utils import collate as torch_collate

from headrace.compat.aistore._progress import shown
from headrace.compat.aistore._shards import Shard, read_shards
from headrace.compat.aistore.pytorch.base_iter_dataset import AISBaseIterDataset

__all__ = ["AISShardReader"]


class AISShardReader(AISBaseIterDataset):
    """The samples of tar shards: pairs of a key and a dict from extensions to ``bytes``.

    Members with the same key are one sample; samples come in the order in which a shard first
    mentions them. A sample has every extension that this process has seen so far, in its own shard
    or before, with ``b""`` for what is missing; a batch of torch's ``default_collate`` has the
    extensions of all its samples.

    A shard above 32 MiB is kept in a temporary file, not in memory.

    Args:
        bucket_list: as `ais_source_list` of `AISBaseIterDataset`.
        prefix_map: the same.
        etl_name: an ETL of the cluster that transforms each shard.
        show_progress: whether to show a bar of tqdm for each shard.
        partition_sources_by_worker: as for `AISBaseIterDataset`.

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
    ) -> None:
        super().__init__(bucket_list, prefix_map, partition_sources_by_worker)
        self._etl_name = etl_name
        self._show_progress = show_progress
        self._observed_keys: set[str] = set()

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
        with closing(self._shards(self._create_objects_iter())) as shards:
            return sum(len(self._samples(shard, set())) for _, shard in shards)

    def __iter__(self) -> Iterator[tuple[str, dict[str, bytes]]]:
        """Begin a pass.

        Raises:
            TarError: an object is no tar, or a broken one.
            NotFoundError: a shard was deleted after the listing.
        """
        self._reset_iterator()
        objects, label = self._get_worker_iter_info()
        with closing(self._shards(objects)) as shards:
            for value, shard in shards:
                samples = self._samples(shard, self._observed_keys)
                bar = shown(
                    samples.items(), f"{value.name}{label}", self._show_progress,
                    total=len(samples),
                )  # fmt: skip
                with closing(bar):
                    for key, fields in bar:
                        content = {name: shard.read(number) for name, number in fields.items()}
                        yield key, self.ZeroDict(content, self._observed_keys)

    def _shards(self, objects: Any) -> Generator[tuple[Any, Shard]]:
        try:
            yield from read_shards(objects, self._etl_name)
        except TarError as error:
            raise TarError(f"<{type(self).__name__}> Error opening tar file: {error}") from error

    def _samples(self, shard: Shard, observed: set[str]) -> dict[str, dict[str, int]]:
        """Return the members of each sample by number, and note the extensions in `observed`."""
        samples: dict[str, dict[str, int]] = {}
        for number, (name, is_file) in enumerate(zip(shard.names, shard.is_file, strict=True)):
            # As get_basename() and get_extension() do; nothing here is called as often.
            key, _, rest = name.rpartition("/")[2].partition(".")
            extension = rest.rpartition(".")[2]
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
