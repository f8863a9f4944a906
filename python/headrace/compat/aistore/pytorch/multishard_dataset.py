"""``aistore.pytorch.multishard_dataset``: rows of several streams of shards."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from tarfile import TarError
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from headrace import Store
from headrace.compat.aistore._clients import bucket_url
from headrace.compat.aistore._reading import read_slowly
from headrace.compat.aistore._shards import Shard, read_shards
from headrace.compat.aistore._sources import (
    Selection,
    is_listed_by_engine,
    list_selections,
    object_list,
    warn_of_folders,
)

__all__ = ["AISMultiShardStream", "DataShard"]

_logger = logging.getLogger("headrace")

_ARCHIVES = (".tar", ".tgz", ".tar.gz", ".zip", ".tar.lz4")


@dataclass
class DataShard:
    """Shards of one bucket, like the SDK's class of this name, without the SDK.

    Args:
        client_url: the cluster's endpoint.
        bucket_name: the bucket.
        provider: whose bucket it is.
        prefix: the beginning of the shards' names.
        etl_name: an ETL of the cluster that transforms each member.

    Examples:
        >>> shards = DataShard("http://127.0.0.1:8080", "bucket", prefix="train-")
    """

    client_url: str
    bucket_name: str
    provider: Any = "ais"
    prefix: str = ""
    etl_name: str | None = None

    def __post_init__(self) -> None:
        provider = getattr(self.provider, "value", self.provider)
        url = bucket_url(provider, "", self.bucket_name)
        if url is None:
            raise ValueError(f"headrace has no buckets of the provider {provider!r}")
        self.bucket = Store(url, endpoint=self.client_url, on_change="reread")


class AISMultiShardStream(IterableDataset[Any]):
    """Rows of several streams: tuples with one member of each, as ``bytes``.

    A stream is the shards of a `DataShard` by name, and of each the members by name. A link has the
    content of the member it leads to, and a pipe or a device has none. The rows end with the
    shortest stream. Each shard is read whole, once. DataLoader workers share the rows:
    worker *i* of *n* yields the rows *i*, *i + n* and so on, and reads all shards for that.

    Args:
        data_sources: the streams: `DataShard`, of headrace or of the SDK.

    Examples:
        >>> streams = [DataShard(endpoint, "images"), DataShard(endpoint, "labels")]
        >>> for image, label in AISMultiShardStream(streams):  # doctest: +SKIP
        ...     train(image, label)
    """

    def __init__(self, data_sources: list[Any]) -> None:
        self._data_sources = data_sources
        self._warned = False  # of a prefix that is a folder's name

    def __iter__(self) -> Iterator[tuple[bytes, ...]]:
        """Begin a pass.

        Raises:
            TarError: a shard is broken, or a link in it leads to no member.
            NotFoundError: a shard was deleted after the listing.
        """
        streams = [
            self._get_shard_objects_iterator(each.bucket, each.prefix, each.etl_name)
            for each in self._data_sources
        ]
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        return islice(zip(*streams, strict=False), worker, None, workers)

    def _get_shard_objects_iterator(
        self, bucket: Any, prefix: str = "", etl_name: Any = ""
    ) -> Iterable[bytes]:
        """Yield the members of all shards whose names begin with `prefix`."""
        if etl_name or not is_listed_by_engine(bucket):
            yield from _members_of_foreign(bucket, prefix, etl_name)
            return
        chosen = [Selection(bucket, prefix)]
        listed = list_selections(chosen)
        self._warned = self._warned or warn_of_folders(chosen, listed, type(self).__name__)
        shards = _archives(object_list(chosen, listed))
        try:
            with closing(read_shards(shards, None)) as found:
                for value, shard in found:
                    yield from _members_of(value, shard)
        except TarError as error:
            raise TarError(f"<{type(self).__name__}> Error opening tar file: {error}") from error


def _members_of(value: Any, shard: Shard) -> Iterator[bytes]:
    names = [name.encode(errors="surrogateescape") for name in shard.names]
    for number in sorted(range(len(names)), key=names.__getitem__):
        if shard.is_folder[number]:
            continue
        # Links, pipes and devices have rows, too: without one, all behind it would be shifted.
        try:
            yield shard.read(number)
        except TarError as error:
            raise TarError(f"{value.name}: {error}") from error


def _archives(objects: Iterable[Any]) -> Iterator[Any]:
    for value in objects:
        if value.name.lower().endswith(_ARCHIVES):
            yield value
        else:
            _logger.warning(
                "%s is left out of the stream: its name is none of an archive (%s)",
                value.name, ", ".join(_ARCHIVES),
            )  # fmt: skip


def _members_of_foreign(bucket: Any, prefix: str, etl_name: Any) -> Iterator[bytes]:
    """Yield the members one by one, as only the SDK can read them."""
    import importlib

    sdk = importlib.import_module("aistore.sdk")
    flags = [sdk.ListObjectFlag.ARCH_DIR]
    for shard in bucket.list_objects_iter(prefix=prefix, props="name"):
        inside = f"{shard.name}/"
        for entry in bucket.list_objects_iter(prefix=shard.name, props="name", flags=flags):
            if entry.name.startswith(inside):
                config = sdk.ArchiveConfig(archpath=entry.name[len(inside) :])
                yield read_slowly(bucket.object(shard.name), etl_name, archive_config=config)
