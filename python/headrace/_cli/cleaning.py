"""`headrace clean`."""

from __future__ import annotations

import json
import re
import sys

from headrace import InvalidArgumentError, ObjectInfo
from headrace import clean as clean_store
from headrace._cli.listing import facts_of
from headrace._cli.location import Connection, Location, url_of
from headrace._cli.report import Report, binary_size, counted, shown
from headrace._store.location import scheme_of

__all__ = ["clean", "seconds_of"]

_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_of(age: str) -> float:
    """Return how many seconds `age` is: ``90s``, ``30m``, ``12h``, ``7d``, ``0``.

    Raises:
        InvalidArgumentError: it has no such form.
    """
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd]?)", age)
    if found is None or not (found[2] or float(found[1]) == 0):
        raise InvalidArgumentError(
            f"--older-than is {age!r}; it must be a number with s, m, h or d behind it, such as 12h"
        )
    return float(found[1]) * _UNITS_S[found[2]]


def clean(
    location: Location,
    connection: Connection,
    report: Report,
    *,
    older_than_s: float,
    checkpoints: bool,
    uploads: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Delete what killed processes left in a bucket or directory, and say what that was.

    Raises:
        InvalidArgumentError: `location` is a prefix, and nothing is looked for below prefixes.
    """
    if location.is_file:
        store = connection.store(f"file:///{location.name}")
    elif not location.name:
        store = location.store
    elif checkpoints or scheme_of(location.store.url) == "s3":
        store = connection.store(f"{location.store.url_of('')}{location.below}")
    else:
        raise InvalidArgumentError(
            f"{location.url}: temporary objects belong to the bucket as a whole: "
            f"headrace clean {location.store.url} (--checkpoints looks below a prefix)"
        )
    done = "would_delete" if dry_run else "deleted"
    named = store if location.is_file else location.store  # names are those inside the bucket

    def tell(info: ObjectInfo) -> None:
        report.check()
        line = (
            json.dumps(facts_of(named, info) | {"type": done})
            if as_json
            else f"{done.replace('_', ' ')} {shown(url_of(named, info.name))}"
        )
        sys.stdout.write(f"{line}\n")

    cleaned = clean_store(
        store,
        older_than_s=older_than_s,
        checkpoints=checkpoints,
        uploads=uploads,
        dry_run=dry_run,
        on_deleted=tell,
    )
    for upload in cleaned.unfinished:
        began = upload.began.isoformat() if upload.began is not None else None
        if as_json:
            told = {"name": upload.name, "upload_id": upload.upload_id, "began": began}
            print(json.dumps({"type": "unfinished_upload", **told}))
        else:
            url = shown(url_of(named, upload.name))
            print(f"unfinished upload of {url}, begun {began or 'nobody knows when'}")
    for _, error in cleaned.failed:
        report.error(error)
    deleted_bytes = sum(info.size_bytes for info in cleaned.deleted)
    if as_json:
        facts = {
            "type": "summary",
            done: len(cleaned.deleted),
            f"{done}_bytes": deleted_bytes,
            "younger": len(cleaned.younger),
            "failed": len(cleaned.failed),
            "dataflux": len(cleaned.dataflux),
            "uploads": len(cleaned.uploads),
            "unfinished_uploads": len(cleaned.unfinished),
        }
        print(json.dumps(facts))
        return
    print(
        f"TOTAL: {done.replace('_', ' ')} {counted(len(cleaned.deleted), 'object')}, "
        f"{deleted_bytes} bytes ({binary_size(deleted_bytes)})"
    )
    if cleaned.uploads:
        verb = "would abort" if dry_run else "aborted"
        print(f"{verb} {counted(len(cleaned.uploads), 'unfinished upload')}")
    if cleaned.unfinished:
        print(
            f"left alone: {counted(len(cleaned.unfinished), 'unfinished upload')}, which anybody "
            "may have begun: --uploads aborts all that are older than --older-than"
        )
    if cleaned.younger:
        print(
            f"left alone: {counted(len(cleaned.younger), 'object')}, younger than --older-than or "
            "in use"
        )
    if cleaned.dataflux:
        print(
            f"left alone: {counted(len(cleaned.dataflux), 'object')} of gs-torch-dataflux. If no "
            "job of it reads this bucket now: "
            f"gcloud storage rm '{location.store.url}/dataflux-composed-objects/????????-????-*'"
        )
