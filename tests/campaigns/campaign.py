"""Runs cases and judges what is there afterwards."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

import headrace
import headrace.checkpoint
from headrace._checkpoints.cleaning import clean
from testing.faultserver.client import FaultServer
from tests.campaigns.cases import FAULTS, Case
from tests.campaigns.ranks import World
from tests.campaigns.ways import WAYS, Place, Way, in_miniature
from tests.keys import S3_KEYS

OLD, NEW = 100, 200
"""Values of the checkpoint that was there, of the one of the case, and of the one after it."""

WORLD_SIZE = 4


@dataclass
class Outcome:
    """What became of one save."""

    name: str
    saved: bool
    """Whether the save said so."""
    error: str
    found: int
    """The value of the checkpoint that is there."""
    fired: bool
    """Whether the request that was to fail was made."""
    temporaries: int
    """Objects and uploads that `clean` removed."""
    was_killed: bool

    @property
    def word(self) -> str:
        if not self.fired:
            return "not reached"
        if self.saved:
            return "saved"
        how = "killed" if self.was_killed else "failed"
        return f"{how}, the {'previous' if self.found == OLD else 'new'} one is there"


class BrokenPromiseError(AssertionError):
    """A promise was not kept."""


@dataclass
class Campaign:
    """Saves of any way, each in a bucket of its own, on one server for each kind of store."""

    _servers: dict[str, FaultServer] = field(default_factory=dict)
    _worlds: dict[str, World] = field(default_factory=dict)
    _clean_runs: dict[str, tuple[int, float]] = field(default_factory=dict)
    _count: Any = field(default_factory=itertools.count)

    def __enter__(self) -> Campaign:
        # Threads that wait for each other's cores take longer than the little that is computed.
        self._thread_count = torch.get_num_threads()
        torch.set_num_threads(1)
        self._miniature = in_miniature()
        self._miniature.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._miniature.__exit__(None, None, None)
        torch.set_num_threads(self._thread_count)
        for world in self._worlds.values():
            world.__exit__()
        headrace.shutdown()
        for server in self._servers.values():
            server.stop()

    def server(self, way: Way) -> FaultServer:
        """The server that a way saves to."""
        if way.scheme not in self._servers:
            kind: dict[str, Any] = {
                "gs": {"dialect": "gcs"},
                "s3": {"dialect": "s3"},
                "ais": {"dialect": "ais", "targets": 1, "personality": "B"},
            }[way.scheme]
            self._servers[way.scheme] = FaultServer(**kind).start()
        return self._servers[way.scheme]

    # ---- cases

    def clean_run(self, way: Way) -> tuple[int, float]:
        """A save that replaces a checkpoint, with nothing wrong: its requests, and its seconds."""
        if way.name not in self._clean_runs:
            place = self.place_with_old(way)
            begin = time.monotonic()
            error = self._save(way, place, NEW)
            elapsed_s = time.monotonic() - begin
            if error is not None:
                raise BrokenPromiseError(f"{way.name}: without any fault: {error}")
            requests = len(self.server(way).log())
            self.judge(way, place, f"{way.name}, no fault", None, must_be_saved=True, fired=True)
            self._clean_runs[way.name] = requests, elapsed_s
        return self._clean_runs[way.name]

    def run(self, cases: Iterable[Case]) -> list[Outcome]:
        """Run them. Raises, with the names of all that failed, when all are run."""
        broken, done = [], []
        for case in cases:
            try:
                done.append(self.run_one(case))
            except BrokenPromiseError as error:
                broken.append(f"{case}: {error}")
        if broken:
            raise BrokenPromiseError(
                "\n".join([f"{len(broken)} of {len(broken) + len(done)} cases", *broken])
            )
        return done

    def run_one(self, case: Case) -> Outcome:
        """Run one. Raises `BrokenPromiseError` where a promise was not kept."""
        way, fault = WAYS[case.way], FAULTS[case.fault]
        server = self.server(way)
        place = self.place_with_old(way, impatient=case.needs_short_timeouts)
        server.faults(case.rules())
        error = self._save(way, place, NEW)
        fired = server.fault_counts()[0]["fired"] > 0
        # With short time-outs a slow machine can do to a save what the fault does not.
        must_be_saved = not case.needs_short_timeouts and (
            not fired or (not case.lasting and fault.curable)
        )
        return self.judge(
            way, place.patient, str(case), error, must_be_saved=must_be_saved, fired=fired
        )

    # ---- steps

    def place_with_old(self, way: Way, *, impatient: bool = False) -> Place:
        """A bucket of its own with a checkpoint in it, on a server that has seen nothing else."""
        server = self.server(way)
        self.forget(way)
        server.min_part_bytes(1)
        bucket = f"case-{next(self._count)}"
        server.bucket(bucket)
        place = Place(server.url, bucket, impatient, way.scheme)
        error = self._save(way, place.patient, OLD)
        if error is not None:
            raise BrokenPromiseError(f"the save before: {error}")
        self.forget(way, keep_buckets=True)
        return place

    def forget(self, way: Way, *, keep_buckets: bool = False) -> None:
        """Have the server of a way forget what it has seen, and whether it is to misbehave."""
        server = self.server(way)
        server.reset(keep_buckets=keep_buckets)
        if way.scheme == "s3":
            key, secret = S3_KEYS.access_key_id, S3_KEYS.secret_access_key
            server.keys({"access_key": key, "secret_key": secret})

    def world(self, size: int) -> World:
        """The ranks that save together; they stay for the next case."""
        key = "alone" if size == 1 else "many"
        if key not in self._worlds:
            self._worlds[key] = World(1 if size == 1 else WORLD_SIZE)
        return self._worlds[key]

    def _save(self, way: Way, place: Place, value: int) -> str | None:
        """Return what it raised, or None."""
        if not way.ranks:
            try:
                save(way.name, place, value)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # CheckpointException is none of Exception's
                return f"{type(error).__name__}: {error}"
            return None
        world = self.world(way.ranks)
        world.begin(save, way.name, place, value, ranks=way.ranks)
        answers = world.answers(way.ranks)
        if len({answer is None for answer in answers}) > 1:
            raise BrokenPromiseError(f"some ranks say that it is saved, and some do not: {answers}")
        return answers[0]

    def judge(
        self,
        way: Way,
        place: Place,
        name: str,
        error: str | None,
        *,
        must_be_saved: bool,
        fired: bool,
        was_killed: bool = False,
    ) -> Outcome:
        """Look at what is there after a save that raised `error`, or returned.

        Raises:
            BrokenPromiseError: something is there, or is not, that must not be so.
        """
        server = self.server(way)
        # Only then nobody can tell the saver whether it is there.
        open_end = was_killed or any(
            entry["fault"] == 0 and _is_commit(entry) for entry in server.log()
        )
        server.faults([])
        server.release()
        headrace.shutdown()
        found = self._found(way, place)
        if error is None and found != NEW:
            raise BrokenPromiseError(
                "false success: the save returned, and its checkpoint is not there"
            )
        if error is not None and found == NEW and not open_end:
            raise BrokenPromiseError(f"it is there, but the save said: {error}")
        if error is not None and must_be_saved:
            raise BrokenPromiseError(f"what comes once should be cured: {error}")
        cleaned = clean(place.store, older_than_s=0, checkpoints=True, uploads=True)
        left = [n for n in server.names(place.bucket) if not way.is_needed(place, n)]
        if left or cleaned.failed:
            raise BrokenPromiseError(f"`headrace clean` leaves {left}, {cleaned.failed}")
        # AIStore lists no unfinished uploads, so nobody can abort those of a process that is gone.
        if way.scheme != "ais" and (uploads := server.uploads()["multipart"]):
            raise BrokenPromiseError(f"`headrace clean` leaves uploads: {uploads}")
        removed = len(cleaned.deleted) + len(cleaned.uploads)
        if removed and self._found(way, place) != found:
            raise BrokenPromiseError("`headrace clean` has changed the checkpoint")
        return Outcome(
            name,
            error is None,
            error or "",
            found,
            fired,
            removed,
            was_killed,
        )

    def _found(self, way: Way, place: Place) -> int:
        try:
            found = way.read(place)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            raise BrokenPromiseError(
                f"neither checkpoint loads: {type(error).__name__}: {error}"
            ) from error
        if found not in (OLD, NEW):
            raise BrokenPromiseError(f"a checkpoint of nobody: {found}")
        newest = headrace.checkpoint.latest("run/", store=place.store)
        if newest != (place.url if way.has_latest else None):
            raise BrokenPromiseError(f"latest() gives {newest}")
        return found


def save(way_name: str, place: Place, value: int) -> None:
    """Save in this process, with an engine that has seen nothing yet."""
    headrace.shutdown()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what could not be removed: that is judged
            WAYS[way_name].run(place, value)
    finally:
        headrace.shutdown()  # nothing of it goes on behind the judge's back


def _is_commit(entry: dict[str, Any]) -> bool:
    """Whether a request makes a checkpoint visible, where there was one before."""
    target, kind = entry["target"], entry["kind"]
    if kind in ("compose", "multipart_complete"):
        return "headrace-uploads" not in target and ".distcp" not in target
    # What must not be there yet is a part, or a data file.
    is_new = "ifGenerationMatch=0&" in target or "if-none-match" in entry["headers"]
    return kind in ("upload", "resumable_put") and not is_new
