"""Members of shards that the server takes out of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace._base.errors import HeadraceError, NotFoundError, add_note
from headrace._base.options import provider_of, require
from headrace._engine import Sample

if TYPE_CHECKING:
    from headrace._store.store import Store


def read_members(
    store: Store, members: Iterable[tuple[str, str]], *, return_errors: bool
) -> list[Sample | HeadraceError]:
    """Read members, each named by its shard and itself; see `Store.read_members`."""
    pairs = _pairs(members)
    require(
        provider_of(store.url.partition(":")[0]) == "ais",
        f"{store.url}: only AIStore (ais://) takes members out of shards on the server; elsewhere, "
        "read ranges of the shards by an index of their members",
    )
    found: list[Any] = store._handle().start_members(pairs).take(return_errors=True)
    missing = [i for i, each in enumerate(found) if isinstance(each, NotFoundError)]
    if missing:
        # Both have the status 404, and the servers' texts differ from version to version.
        with contextlib.suppress(HeadraceError):
            names = sorted({pairs[i][0] for i in missing})
            there = dict(zip(names, store.stat_many(names, missing_ok=True), strict=True))
            for i in missing:
                shard, member = pairs[i]
                found[i] = _told(found[i], store.url_of(shard), member, there[shard] is not None)
    if not return_errors:
        _raise_first(found)
    return found


def _pairs(members: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    given: Any = members
    if isinstance(given, str):
        raise TypeError("pairs of the names of a shard and of a member are needed, not one str")
    pairs = list(given)
    for each in pairs:
        if not (
            isinstance(each, tuple | list)
            and len(each) == 2
            and all(isinstance(name, str) for name in each)
        ):
            raise TypeError(
                f"pairs of the names of a shard and of a member are needed, not {each!r}"
            )
        require(
            each[0] != "" and each[1] != "",
            f"{each!r}: the names of a shard and of a member must not be empty",
        )
    return [(shard, member) for shard, member in pairs]


def _told(error: HeadraceError, shard_url: str, member: str, is_there: bool) -> NotFoundError:
    """Return the error that says which of the two is missing."""
    url = f"{shard_url}/{member}" if is_there else shard_url
    text = f"the shard has no member {member!r}" if is_there else "there is no such shard"
    told = NotFoundError(f"{url}: {text} ({error})")
    told.url = url
    told.http_status, told.request_id = error.http_status, error.request_id
    told.attempts = error.attempts
    return told


def _raise_first(found: list[Any]) -> None:
    errors = [each for each in found if isinstance(each, HeadraceError)]
    if not errors:
        return
    if len(errors) > 1:
        others = "1 other member" if len(errors) == 2 else f"{len(errors) - 1} other members"
        add_note(errors[0], f"{others} of the {len(found)} that were read together failed, too")
    raise errors[0]
