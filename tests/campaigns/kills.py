"""Saves whose process is killed in the middle, and what is there afterwards."""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.campaigns.campaign import NEW, OLD, Campaign, Outcome, save
from tests.campaigns.ranks import World
from tests.campaigns.ways import WAYS, Way

# When the process is killed: while a request waits to be carried out, while it has been and nobody
# has heard of it, or at any time of the save.
MOMENTS = ("before a request is done", "before its answer", "at any time")


@dataclass(frozen=True)
class Kill:
    """One save that is killed. Its name, ``save/kill/17``, is all that the rest follows from."""

    way: str
    seed: int

    def __str__(self) -> str:
        return f"{self.way}/kill/{self.seed}"

    @staticmethod
    def named(name: str) -> Kill:
        """The kill of that name."""
        way, _, seed = name.split("/")
        return Kill(way, int(seed))


def run_kill(campaign: Campaign, kill: Kill) -> Outcome:
    """Kill a save, and judge. Raises `BrokenPromiseError` where a promise was not kept."""
    way = WAYS[kill.way]
    server = campaign.server(way)
    rng = random.Random(f"{kill.seed} {kill.way}")
    moment = rng.choice(MOMENTS)
    count = max(way.ranks, 1)
    victim = rng.randrange(count)
    victim_is_helper = way.saves_in_helper and rng.random() < 0.5
    requests, clean_s = campaign.clean_run(way)
    place = campaign.place_with_old(way)
    with World(count, in_group=way.ranks > 0) as world:
        # Whatever is made once, such as torch's process that saves, is there already.
        world.begin(save, way.name, place, OLD, ranks=count)
        if (error := world.answers(count)[0]) is not None:
            raise AssertionError(f"the save before: {error}")
        campaign.forget(way, keep_buckets=True)
        helpers = _helpers(world)
        position = rng.randint(1, requests)
        if moment != MOMENTS[2]:
            action = {"stall_head": True, "perform": moment == MOMENTS[1]}
            server.faults([{"match": {}, "from": position, "count": 1, "action": action}])
        world.begin(save, way.name, place, NEW, ranks=count)
        if moment == MOMENTS[2]:
            world.is_done(within_s=rng.uniform(0, clean_s))
        else:
            while not server.fault_counts()[0]["fired"] and not world.is_done(within_s=0.001):
                pass
        pid = helpers[0] if victim_is_helper else world.processes[victim].pid
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        server.faults([])
        server.release()
        answers = world.end(victim)
    for helper in helpers:
        _wait_for_end(helper)
    server.close_connections("rst")  # what the dead had sent, and the server had not read yet
    told = None if None in answers else "; ".join(filter(None, answers))
    return campaign.judge(
        way, place, str(kill), told, must_be_saved=False, fired=True, was_killed=True
    )


def kills(way: Way, count: int, seed: int) -> Iterator[Kill]:
    """So many kills of a way."""
    rng = random.Random(f"{seed} {way.name}")
    for _ in range(count):
        yield Kill(way.name, rng.randrange(1 << 30))


def _helpers(world: World) -> list[int]:
    """The processes that torch has started to save in."""
    found = []
    for process in world.processes:
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended
                for child in (task / "children").read_text().split():
                    if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                        found.append(int(child))
    return found


def _wait_for_end(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if not select.select([descriptor], [], [], 60)[0]:
            raise TimeoutError(f"process {pid} goes on after its parent was killed")
    finally:
        os.close(descriptor)
