"""Whole campaigns: every fault at every request of every way, kills, and flipped bits.

    .venv/bin/python -m tests.campaigns --json counts.json
    .venv/bin/python -m tests.campaigns --case "save/7/reset/once"

It ends with 1 if a promise was not kept, and says which case it was.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testing.circumstances import circumstances, versions_of
from tests.campaigns.campaign import BrokenPromiseError, Campaign, Outcome
from tests.campaigns.cases import Case, all_cases, sample, seed_of_today
from tests.campaigns.flips import flip_folder
from tests.campaigns.kills import Kill, kills, run_kill
from tests.campaigns.ways import WAYS
from tests.checkpoint.flips import Campaign as FileFlips
from tests.checkpoint.flips import flips, load_all, load_by_name
from tests.checkpoint.states import file_of, filled, stock_file_of

# Seconds; a case takes a few at most.
_PATIENCE_S = 300.0


def run_way(name: str, fault_cases: int, kill_count: int, seed: int) -> dict[str, Any]:
    """All cases of a way (or so many), and kills; what became of them, and what was broken."""
    way, broken = WAYS[name], []
    began = time.monotonic()
    faults: list[Outcome] = []
    killed: list[Outcome] = []
    with Campaign() as campaign:
        requests, _ = campaign.clean_run(way)
        if fault_cases < 0:
            cases = list(all_cases(name, requests))
        else:
            cases = sample(name, requests, fault_cases, seed)
        for case in cases:
            try:
                with _expected_to_end(str(case)):
                    faults.append(campaign.run_one(case))
            except BrokenPromiseError as error:
                broken.append(f"{case}: {error}")
        for kill in kills(way, kill_count, seed):
            try:
                with _expected_to_end(str(kill)):
                    killed.append(run_kill(campaign, kill))
            except BrokenPromiseError as error:
                broken.append(f"{kill}: {error}")
    return {
        "requests": requests,
        "faults": {"cases": len(cases), **_counted(faults), "by_fault": _by_fault(faults)},
        "kills": {"cases": kill_count, **_counted(killed)},
        "broken": broken,
        "elapsed_s": round(time.monotonic() - began, 1),
    }


@contextmanager
def _expected_to_end(name: str) -> Iterator[None]:
    """End the process, and say where it is, when a case does not end."""

    def give_up() -> None:
        print(f"{name} does not end", file=sys.stderr, flush=True)
        faulthandler.dump_traceback()
        os._exit(2)

    timer = threading.Timer(_PATIENCE_S, give_up)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _counted(outcomes: list[Outcome]) -> dict[str, Any]:
    return {
        "outcomes": dict(collections.Counter(each.word for each in outcomes)),
        "temporaries_cleaned": sum(each.temporaries for each in outcomes),
    }


def _by_fault(outcomes: list[Outcome]) -> dict[str, dict[str, int]]:
    found: Any = collections.defaultdict(collections.Counter)
    for each in outcomes:
        _, _, fault, how_long = each.name.split("/")
        found[f"{fault}, {how_long}"][each.word] += 1
    return {fault: dict(words) for fault, words in found.items()}


def run_flips(count: int, seed: int) -> dict[str, dict[str, int]]:
    """Flipped bits in files and folders; how many were detected, and how many did no harm."""
    import torch

    state = {
        "weight": filled(torch.float32, 40, 30),
        "bias": filled(torch.bfloat16, 7, seed=1),
        "empty": torch.zeros(0),
        "large": filled(torch.float32, 20_000, seed=2),
    }
    found = {}
    files = [("a file of save", file_of), ("a file of torch.save", stock_file_of)]
    reads = [("all of it", load_all), ("tensor by tensor", load_by_name)]
    for number, (file_name, write) in enumerate(files):
        data = write(state)
        for read_name, read in reads:
            with tempfile.TemporaryDirectory() as folder:
                campaign = FileFlips(Path(folder), data, state)
                campaign.run(flips(data, count, seed + number), read)
            found[f"{file_name}, {read_name}"] = {
                "detected": campaign.detected,
                "harmless": campaign.harmless,
            }
    for partial in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            detected, harmless = flip_folder(Path(folder), count, seed, partial=partial)
        read_name = "one tensor" if partial else "all of it"
        found[f"a folder of DistributedWriter, {read_name}"] = {
            "detected": detected,
            "harmless": harmless,
        }
    return found


def run_named(name: str) -> None:
    """One case or kill, by its name; prints what became of it."""
    with Campaign() as campaign:
        kill = name.split("/")[1] == "kill"
        outcome = (
            run_kill(campaign, Kill.named(name)) if kill else campaign.run_one(Case.named(name))
        )
    print(f"{name}: {outcome.word}; {outcome.error or 'no error'}")


def run_ways(names: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """Some ways, one after the other."""
    found = {}
    for name in names:
        way = run_way(name, arguments.faults, arguments.kills, arguments.seed)
        found[name] = way
        print(f"{name}: {way['faults']['outcomes']}, {way['kills']['outcomes']}", flush=True)
    return found


def _run_apart(names: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """The same in a process of its own."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [sys.executable, "-m", "tests.campaigns", "--json", file.name, "--flips", "0"]
        command += [part for name in names for part in ("--way", name)]
        command += ["--faults", str(arguments.faults), "--kills", str(arguments.kills)]
        command += ["--seed", str(arguments.seed)]
        done = subprocess.run(command, check=False)
        if done.returncode not in (0, 1) or not os.path.getsize(file.name):
            raise SystemExit(f"the campaign of {names} itself ended with {done.returncode}")
        found: dict[str, Any] = json.load(file)["ways"]
    return found


def main() -> int:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.campaigns")
    parser.add_argument("--case", action="append", help="one case, by its name; nothing else runs")
    parser.add_argument("--way", action="append", choices=WAYS, metavar="WAY", help="default: all")
    parser.add_argument("--faults", type=int, default=-1, help="cases of each way; default: all")
    parser.add_argument("--kills", type=int, default=50, help="of each way")
    parser.add_argument("--flips", type=int, default=10_000, help="of each kind of file")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the ways")
    parser.add_argument("--seed", type=int, default=seed_of_today())
    parser.add_argument("--json", type=Path, help="where the counts go")
    arguments = parser.parse_args()
    # What torch and we say of saves that go wrong: there are thousands.
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    if arguments.case:
        for name in arguments.case:
            run_named(name)
        return 0
    command = "python -m tests.campaigns " + " ".join(sys.argv[1:])
    versions = versions_of("headrace", "torch", "lightning", "numpy")
    found: dict[str, Any] = {**circumstances(command, versions), "seed": arguments.seed, "ways": {}}
    names = arguments.way or list(WAYS)
    if arguments.jobs == 1:
        found["ways"] = run_ways(names, arguments)
    else:
        # Neighbours are of a kind, and take about as long.
        hands = [names[first :: arguments.jobs] for first in range(arguments.jobs)]
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for ways in pool.map(lambda hand: _run_apart(hand, arguments), filter(None, hands)):
                found["ways"] |= ways
        found["ways"] = {name: found["ways"][name] for name in names}
    if arguments.flips:
        found["flips"] = run_flips(arguments.flips, arguments.seed)
        print(json.dumps(found["flips"]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    broken = [line for way in found["ways"].values() for line in way["broken"]]
    print(*broken, sep="\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
