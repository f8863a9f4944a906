"""`headrace pack`: many small objects become a few large ones."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace import HeadraceError, InvalidArgumentError, ObjectIndex, Packed, pack, pack_tokens
from headrace._cli.location import Connection, Location
from headrace._cli.progress import progress
from headrace._cli.report import Report, binary_size, counted, shown, with_notes

__all__ = ["Table", "function_at", "pack_command", "size_of"]

_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 10**3, "MB": 10**6,
          "GB": 10**9}  # fmt: skip

# Tasks are cancelled, and then a cluster that was started for them ends, which takes seconds.
_RAY_STOP_S = 15.0


@dataclass(frozen=True, kw_only=True)
class Table:
    """The columns of a table that names what is to be packed."""

    url: str = "url"
    begin: str = ""
    end: str = ""
    root: str = ""
    """What names in the column `url` are relative to; they are whole URLs without it."""

    def index(
        self, file: str, label: str | None, connection: Connection
    ) -> tuple[ObjectIndex, dict[str, Any]]:
        """Ask about each object in the table, and return them all, and the options of stores."""
        from headrace._index.table import columns_of_table, index_of_table

        if bool(self.begin) != bool(self.end):
            raise InvalidArgumentError("give both --begin-column and --end-column, or none")
        columns = columns_of_table(file, self.url, label, connection.options_of(file))
        # Those of the objects, which the table need not lie beside.
        first = self.root or next(iter(columns.get(self.url, ())), None)
        options = connection.options_of(first) if isinstance(first, str) and first else {}
        ranges = (self.begin, self.end) if self.begin else None
        root = self.root or None
        index, _ = index_of_table(columns, self.url, label, ranges, root, True, options)
        return index, options


def pack_command(
    source: str,
    destination: Location,
    connection: Connection,
    report: Report,
    *,
    from_index: bool,
    table: Table | None,
    ray_address: str,
    tokens: str,
    transform: str,
    skip_errors: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Pack what is at `source`, show how far it is, and tell what was made."""
    begin_s = time.monotonic()
    shown_progress = progress(report)
    done_bytes, has_begun = 0, False

    def tell(done: int, total: int) -> None:
        nonlocal done_bytes, has_begun
        report.check()
        if not has_begun:
            shown_progress.found(total)
            shown_progress.found_all()
            has_begun = True
        shown_progress.arrived(done - done_bytes)
        done_bytes = done

    if settings["executor"] == "ray":
        report.stop_s = _RAY_STOP_S
    if ray_address:
        os.environ["RAY_ADDRESS"] = ray_address
    options = connection.options_of(source)
    given: str | ObjectIndex = source
    if from_index:
        given = ObjectIndex.load(source, **options)
    elif table is not None:
        given, options = table.index(source, settings.get("label"), connection)
    store = connection.patient_store(destination.url)
    common: dict[str, Any] = {
        **settings, "on_error": "skip" if skip_errors else "raise", "progress": tell,
    }  # fmt: skip
    try:
        if tokens:
            packed = pack_tokens(given, store, function_at("--tokens", tokens), **common, **options)
        else:
            function = function_at("--transform", transform) if transform else None
            packed = pack(given, store, transform=function, **common, **options)
    except (HeadraceError, OSError):
        raise
    except Exception as error:  # of the user's function
        report.check()
        raise HeadraceError(f"{type(error).__name__}: {with_notes(error)}") from error
    finally:
        shown_progress.close()
    _tell(packed, destination, report, time.monotonic() - begin_s, as_json=as_json)
    for url, text in packed.skipped:
        left_out = HeadraceError("left out: " + (text if url in text else f"{url}: {text}"))
        left_out.url = url
        report.error(left_out)


def function_at(option: str, text: str) -> Callable[..., Any]:
    """Return what ``module:function`` names; modules are also looked for where we are."""
    module, colon, name = text.partition(":")
    if not colon or not module or not name:
        raise InvalidArgumentError(f"{option} is {text!r}; it must be module:function")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InvalidArgumentError(f"{option} {text}: {error}") from error
    except (Exception, SystemExit) as error:  # a script that begins to work when it is imported
        told = f"{type(error).__name__}: {error}"
        raise InvalidArgumentError(
            f"{option} {text}: the module cannot be imported: {told}"
        ) from error
    if not callable(found):
        raise InvalidArgumentError(f"{option} {text}: it is no function")
    return found  # type: ignore[no-any-return]


def size_of(text: str) -> int:
    """Return the bytes of a size such as ``256MiB``."""
    number = text.rstrip("kKMGiB ")
    unit = text[len(number) :].strip()
    if unit not in _UNITS or not number.isdecimal() or not int(number):
        raise InvalidArgumentError(
            f"--shard-bytes is {text!r}; it must be a number of bytes, such as 256MiB or 1GB"
        )
    return int(number) * _UNITS[unit]


def _tell(
    packed: Packed, destination: Location, report: Report, duration_s: float, *, as_json: bool
) -> None:
    if as_json:
        facts = {
            "type": "packed",
            "url": destination.url,
            "shards": packed.shards,
            "written": packed.written,
            "samples": packed.samples,
            "dropped": packed.dropped,
            "skipped": len(packed.skipped),
            "tokens": packed.tokens,
            "size_bytes": packed.size_bytes,
            "source_bytes": packed.source_bytes,
            "duration_s": round(duration_s, 6),
        }
        print(json.dumps(facts), flush=True)
        return
    rate = binary_size(packed.source_bytes / max(duration_s, 1e-9))
    there = packed.shards - packed.written
    what = "sample" if packed.index is not None else "document"
    report.note(
        f"{shown(destination.url)}: {counted(packed.shards, 'shard')} of "
        f"{counted(packed.samples, what)}, {binary_size(packed.size_bytes)}"
        + (f", {counted(packed.tokens, 'token')}" if packed.tokens else "")
        + (
            f"; {there} of them were there already"
            if there
            else f"; {binary_size(packed.source_bytes)} in {duration_s:.1f} s ({rate}/s)"
        )
        + (f"; {packed.dropped} dropped" if packed.dropped else "")
        + (f"; {len(packed.skipped)} left out" if packed.skipped else "")
    )
