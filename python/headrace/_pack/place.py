"""Where shards are packed to: what is there already, and what is remembered of each shard."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from headrace import _engine
from headrace._base.errors import (
    CorruptDataError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionFailedError,
    with_url,
)
from headrace._base.options import require
from headrace._engine import ObjectIndex, ObjectInfo
from headrace._store.location import folder_without_links
from headrace._store.store import Store

__all__ = ["FOLDER", "Place", "Record"]

FOLDER = "_pack/"
"""What is remembered of shards lies there."""

_DELETED_AT_A_TIME = 16


@dataclass(frozen=True, kw_only=True)
class Record:
    """What is remembered of a shard that is whole."""

    objects: list[tuple[str, int, str]]
    """Its objects: name, size and generation."""
    samples: int
    dropped: int = 0
    """Samples for which the transform returned None."""
    errors: list[tuple[str, str]]
    """Samples that were left out: a URL of each, and why."""
    tokens: int = 0
    members: ObjectIndex | None = None
    packing: str = ""
    """The id of the packing that wrote it: one that was begun anew takes no shard of another."""

    def to_bytes(self) -> bytes:
        """Return what is saved: a line of JSON, and the image of the members."""
        facts = {name: value for name, value in vars(self).items() if name != "members"}
        image = b"" if self.members is None else _engine.index_image(self.members)
        return json.dumps(facts).encode() + b"\n" + image

    @staticmethod
    def from_bytes(data: bytes, url: str) -> Record:
        """Return what was saved."""
        line, _, image = data.partition(b"\n")
        try:
            facts = json.loads(line)
            facts["objects"] = [tuple(each) for each in facts["objects"]]
            facts["errors"] = [tuple(each) for each in facts["errors"]]
            members = _engine.index_from_image(image, url) if image else None
            return Record(**facts, members=members)
        except (ValueError, KeyError, TypeError) as error:
            told = CorruptDataError(
                f"{url}: it does not describe a shard ({error}): delete it, and the shard is "
                "packed again"
            )
            raise with_url(told, url) from None


class Place:
    """The shards of one name below a URL. What is remembered lies in the folder ``_pack``.

    A shard is whole if its record is there and its objects are as the record says. Objects become
    visible whole, and a record is written after them, so that killing a process at any time leaves
    whole shards, and others that are packed again.
    """

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = name
        self._own = re.compile(rf"{re.escape(name)}-\d{{6,}}\.(tar|bin|idx)")
        self._records = re.compile(rf"{FOLDER}{re.escape(name)}-\d{{6,}}\.shard")
        self._packing = uuid.uuid4().hex
        self._there: dict[str, ObjectInfo] = {}

    def shard_name(self, number: int) -> str:
        """Return the name of a shard, without what follows the dot."""
        return f"{self.name}-{number:06d}"

    @property
    def index_name(self) -> str:
        """The name of the saved index of members."""
        return f"{self.name}.index"

    def begin(self, settings: Mapping[str, Any], source: ObjectIndex, *, overwrite: bool) -> None:
        """Find out what is there, and remember the settings.

        Raises:
            InvalidArgumentError: what is there was packed with other settings, or by others; or it
                is among what is to be packed.
        """
        self._there = {
            info.name: info
            for info in self._listed(f"{self.name}-")
            if self._own.fullmatch(info.name)
        }
        self._refuse_own(source)
        if overwrite:
            self._delete_all()
        url = self.store.url_of(self._settings_name)
        try:
            old = json.loads(self.store.read(self._settings_name).bytes())
        except NotFoundError:
            old = None
        except ValueError:
            old = ()
        if old is not None and not isinstance(old, dict):
            raise InvalidArgumentError(
                f"{url}: it does not describe a packing; choose another destination or name, or "
                "overwrite what is there (overwrite=True, --overwrite)"
            )
        if old is None:
            there = [*self._there, *(info.name for info in self._listed(self.index_name))]
            there = [each for each in there if each in self._there or each == self.index_name]
            if there:
                raise InvalidArgumentError(
                    f"{self.store.url_of(min(there))} is there already, and nothing says how "
                    "it was packed; choose another destination or name, or overwrite what is there "
                    "(overwrite=True, --overwrite)"
                )
            data = json.dumps({**settings, "packing": self._packing}, indent=1).encode()
            self.store.write(self._settings_name, data, if_generation="absent")
            return
        self._packing = old.pop("packing", "")
        if old != settings:
            told = "; ".join(
                "the source has other objects, or other bytes in them"
                if name == "source"
                else f"{name} was {_shown(old.get(name))} and is {_shown(settings.get(name))}"
                for name in [*settings, *(old.keys() - settings.keys())]
                if old.get(name) != settings.get(name)
            )
            raise InvalidArgumentError(
                f"{self.store.url}: the shards there were packed otherwise: {told}. Choose another "
                "destination or name, or overwrite them (overwrite=True, --overwrite)"
            )

    def whole_shards(self, count: int) -> dict[int, Record]:
        """Return the records of the shards that are whole."""
        numbers = {self._record_name(number): number for number in range(count)}
        names = [
            info.name for info in self._listed(FOLDER + self.name + "-") if info.name in numbers
        ]
        found = {}
        for sample in self.store.read_many(names) if names else ():
            record = Record.from_bytes(sample.bytes(), sample.url)
            if self._is_whole(record):
                found[numbers[sample.name]] = record
        return found

    def look_again(self, number: int) -> Record | None:
        """Return the record of a shard if it has become whole.

        If it has not, what is there of it is what may be replaced: whoever packed it before is
        gone.
        """
        own = f"{self.shard_name(number)}."
        self._there = {name: info for name, info in self._there.items() if not name.startswith(own)}
        self._there |= {
            info.name: info for info in self._listed(own) if self._own.fullmatch(info.name)
        }
        try:
            sample = self.store.read(self._record_name(number))
        except NotFoundError:
            return None
        record = Record.from_bytes(sample.bytes(), sample.url)
        return record if self._is_whole(record) else None

    def condition(self, name: str) -> str | None:
        """Return the ``if_generation`` with which to write an object: that of what was found.

        So two processes that pack the same do not replace each other's shards unnoticed.
        """
        info = self._there.get(name)
        return "absent" if info is None else info.generation or None

    def remember(self, number: int, record: Record) -> None:
        """Save the record of a shard that is whole."""
        record = replace(record, packing=self._packing)
        self.store.write(self._record_name(number), record.to_bytes())

    def end(self) -> None:
        """Make sure that nobody has begun anew meanwhile.

        Raises:
            PreconditionFailedError: somebody has, and may have deleted shards.
        """
        url = self.store.url_of(self._settings_name)
        try:
            now = json.loads(self.store.read(self._settings_name).bytes()).get("packing")
        except NotFoundError:
            now = None
        if now != self._packing:
            error = PreconditionFailedError(f"{url}: somebody else has begun a packing there anew")
            raise with_url(error, url)

    def _refuse_own(self, source: ObjectIndex) -> None:
        own = [*self._there, self.index_name]
        for root in source.roots:
            folder = self._seen_from(root)
            for name in own if folder is not None else ():
                url = f"{root.rstrip('/')}/{folder}{name}"
                require(
                    url not in source,
                    f"{url} is to be packed, and is where the shards of the name {self.name!r} "
                    "belong: choose another destination or name",
                )

    def _seen_from(self, root: str) -> str | None:
        """Return how names in our folder begin below a root; None if they do not lie there."""
        if not root:
            return None
        here, there = folder_without_links(self.store.url), folder_without_links(root)
        return here[len(there) :] if here.startswith(there) else None

    @property
    def _settings_name(self) -> str:
        return f"{FOLDER}{self.name}.json"

    def _record_name(self, number: int) -> str:
        return f"{FOLDER}{self.shard_name(number)}.shard"

    def _listed(self, prefix: str) -> Iterable[ObjectInfo]:
        try:
            return list(self.store.list(prefix))
        except NotFoundError:  # a folder of this machine that is not there yet
            return []

    def _is_whole(self, record: Record) -> bool:
        found = [
            (info.name, info.size_bytes, info.generation)
            for name, *_ in record.objects
            if (info := self._there.get(name)) is not None
        ]
        return record.packing == self._packing and found == record.objects

    def _delete_all(self) -> None:
        """Delete what earlier packings of this name wrote; first what says that it is whole."""
        records = [
            info.name
            for info in self._listed(FOLDER + self.name + "-")
            if self._records.fullmatch(info.name)
        ]
        with ThreadPoolExecutor(_DELETED_AT_A_TIME, "headrace-pack") as threads:
            for names in ([self.index_name], records, list(self._there), [self._settings_name]):
                for _ in threads.map(lambda name: self.store.delete(name, missing_ok=True), names):
                    pass
        self._there = {}


def _shown(value: Any) -> str:
    return "not set" if value is None else repr(value)
