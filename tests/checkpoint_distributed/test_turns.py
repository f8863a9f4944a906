"""Of the saves to one folder that were reported as saved, the newest is the one that is there."""

from __future__ import annotations

import contextlib
import pickle
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp

import headrace
from headrace.checkpoint import DistributedReader, DistributedWriter
from headrace.checkpoint._distributed.ordering import commit, take_turn
from tests.campaigns.cases import seed_of_today
from tests.checkpoint_distributed.conftest import Place
from tests.checkpoint_distributed.planners import SavesAfter, raising

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

# Where a save may stop for a while, or fail, in this order.
POINTS = ("staged", "set up", "planned", "writing", "finishing", "committing")


class InjectedError(Exception):
    """The failure that a history asked for."""


class Steps:
    """Stops a save before each point until it may pass; one save of a history runs at a time."""

    def __init__(self, failing: str | None) -> None:
        self._failing = failing
        self._may_pass = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self.is_done = False

    def reach(self, point: str) -> None:
        self._stopped.release()
        assert self._may_pass.acquire(timeout=120)
        if point == self._failing:
            raise InjectedError(point)

    def end(self) -> None:
        self.is_done = True
        self._stopped.release()

    def wait_for_stop(self) -> None:
        assert self._stopped.acquire(timeout=120)

    def step(self) -> None:
        """Let the save go on until its next point, or its end."""
        self._may_pass.release()
        self.wait_for_stop()


def planner_of(steps: Steps) -> SavesAfter:
    return SavesAfter(
        set_up_planner=lambda: steps.reach("set up"),
        create_local_plan=lambda: steps.reach("planned"),
        resolve_data=lambda _: steps.reach("writing"),
    )


class SteppedWriter(DistributedWriter):
    """Stops before it finishes and before it commits; the steps are those of the thread's save."""

    steps_of_thread = threading.local()

    def finish(self, metadata: Any, results: Any) -> None:
        self.steps_of_thread.steps.reach("finishing")
        # What makes it complete happens in one step.
        self.steps_of_thread.steps.reach("committing")
        super().finish(metadata, results)


@dataclass
class Save:
    number: int
    kind: str
    failing: str | None
    writer: DistributedWriter
    steps: Steps = field(init=False)
    thread: threading.Thread | None = None
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.steps = Steps(self.failing)

    def start(self) -> None:
        """Call `save`, or `async_save`: what that does before it returns is done."""
        state: dict[str, Any] = {"n": torch.tensor(self.number)}
        if self.kind != "now":
            state = self.writer.stage(state)
        self.thread = threading.Thread(target=self._run, args=(state, self.writer))
        self.thread.start()
        self.steps.wait_for_stop()

    def _run(self, state: dict[str, Any], writer: DistributedWriter) -> None:
        writer_steps = SteppedWriter.steps_of_thread
        writer_steps.steps = self.steps
        try:
            if self.kind != "now":
                self.steps.reach("staged")
            if self.kind == "in a process":  # as torch sends it there
                state, writer = pickle.loads(ForkingPickler.dumps((state, writer)))
            dcp.save(state, storage_writer=writer, planner=planner_of(self.steps), no_dist=True)
        except BaseException as error:  # CheckpointException is none of Exception's
            self.error = error
        finally:
            self.steps.end()


def play(seed: int, run: str, *, numbered: bool) -> list[str]:
    """Run a random history of two writers' saves below `run`; return what is wrong at its end.

    Args:
        numbered: whether each save has a folder of its own, ``step1``, ``step2``, in the order in
            which they begin; otherwise all go to one.
    """
    choose = random.Random(seed)
    writers = [SteppedWriter(f"{run}/last") for _ in range(2)]
    saves: list[Save] = []
    left = [
        (choose.choice(["now", "in a thread", "in a process"]), choose.random() < 0.3)
        for _ in range(choose.randint(3, 6))
    ]
    while left or any(not save.steps.is_done for save in saves):
        under_way = [save for save in saves if not save.steps.is_done]
        if left and (not under_way or choose.random() < 0.2):
            kind, fails = left.pop()
            failing = choose.choice(POINTS) if fails else None
            number = len(saves) + 1
            writer = SteppedWriter(f"{run}/step{number}") if numbered else choose.choice(writers)
            saves.append(Save(number, kind, failing, writer))
            saves[-1].start()
        else:
            save = choose.choice(under_way)
            # Often several steps of one, so that some are complete before others begin.
            for _ in range(choose.choice([1, 1, 2, 7])):
                if not save.steps.is_done:
                    save.steps.step()
    for save in saves:
        assert save.thread is not None
        save.thread.join()
    return verdict(saves, run)


def verdict(saves: list[Save], run: str) -> list[str]:
    reported = [save.number for save in saves if save.error is None]
    wrong = []
    for save in saves:
        if save.error is None or save.failing is not None:
            continue
        if not any(number > save.number for number in reported):
            wrong.append(f"save {save.number} was refused, and none that is newer is there")
    newest = headrace.checkpoint.latest(run)
    if newest is None or not reported:
        return wrong if newest is None and not reported else [*wrong, f"{newest}, of {reported}"]
    found = {"n": torch.tensor(0)}
    dcp.load(found, storage_reader=DistributedReader(newest), no_dist=True)
    if int(found["n"]) != max(reported):
        wrong.append(f"{newest} holds save {int(found['n'])}; reported are {reported}")
    return wrong


def play_all(seeds: range, folder: Path, *, numbered: bool) -> None:
    wrong = {seed: play(seed, f"file://{folder}/{seed}", numbered=numbered) for seed in seeds}
    assert {seed: each for seed, each in wrong.items() if each} == {}


@pytest.mark.parametrize("numbered", [False, True])
def test_the_newest_that_was_reported_as_saved_is_there_after_any_history(
    tmp_path: Path, numbered: bool
) -> None:
    play_all(range(25), tmp_path, numbered=numbered)


@pytest.mark.soak
@pytest.mark.parametrize("numbered", [False, True])
def test_the_newest_that_was_reported_as_saved_is_there_after_a_thousand_histories(
    tmp_path: Path, numbered: bool
) -> None:
    first = seed_of_today()
    play_all(range(first, first + 1_000), tmp_path, numbered=numbered)


def test_an_older_save_that_ends_first_deletes_no_file_of_a_newer_one(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/last"
    writer = SteppedWriter(url)
    older, newer = (Save(n, kind, None, writer) for n, kind in [(1, "in a thread"), (2, "now")])
    older.start()
    newer.start()
    for _ in ("set up", "planned", "writing"):
        newer.steps.step()  # now its data is there
    for save in (older, newer):
        while not save.steps.is_done:
            save.steps.step()
    assert verdict([older, newer], f"file://{tmp_path}") == []
    assert len(list((tmp_path / "last").iterdir())) == 2


def test_a_save_replaces_all_that_its_process_has_committed_since_it_began() -> None:
    there = ["absent"]

    def write(generation: str) -> str:
        if generation != there[-1]:
            raise headrace.PreconditionFailedError(f"is {there[-1]}, not {generation}")
        there.append(f"g{len(there)}")
        return there[-1]

    url = "x://chain-of-four"
    first, second, seen = take_turn(), take_turn(), take_turn()
    commit(url, first, "absent", seen, frozenset({"a"}), write)
    third, fourth, seen_by_fourth = take_turn(), take_turn(), take_turn()
    commit(url, second, "absent", seen, frozenset({"b"}), write)
    commit(url, third, "g2", take_turn(), frozenset({"c"}), write)
    assert commit(url, fourth, "g1", seen_by_fourth, frozenset({"d"}), write) == {"c"}


def failing_planner(point: str) -> SavesAfter:
    fail: Any = raising(InjectedError(point))
    return SavesAfter(**{point: fail})


@pytest.mark.parametrize("point", ["set_up_planner", "create_local_plan", "resolve_data"])
@pytest.mark.parametrize("again", [dcp.save, dcp.async_save])
def test_a_failed_save_leaves_nothing_to_the_next_one_of_its_writer(
    tmp_path: Path, point: str, again: Callable[..., Any]
) -> None:
    url = tmp_path / "last"
    writer = DistributedWriter(url)
    with pytest.raises(dcp.CheckpointException, match=point):
        dcp.async_save(
            {"n": torch.tensor(1)}, storage_writer=writer, planner=failing_planner(point)
        ).result()
    staged = writer.stage({"n": torch.tensor(2)})
    dcp.save({"n": torch.tensor(3)}, storage_writer=DistributedWriter(url))
    # In this thread, too, where the next save follows.
    with pytest.raises(dcp.CheckpointException, match=point):
        dcp.save(staged, storage_writer=writer, planner=failing_planner(point))
    done = again({"n": torch.tensor(4)}, storage_writer=writer)
    with contextlib.suppress(AttributeError):
        done.result()
    found = {"n": torch.tensor(0)}
    dcp.load(found, storage_reader=DistributedReader(url))
    assert found["n"] == 4


def test_what_a_writer_is_told_after_async_save_is_for_later_saves(tmp_path: Path) -> None:
    go_on = threading.Event()

    def wait() -> None:
        assert go_on.wait(120)

    writer = DistributedWriter(tmp_path / "first")
    writer.attach({"meta": b"first"})
    saving = dcp.async_save(
        {"n": torch.tensor(1)}, storage_writer=writer, planner=SavesAfter(set_up_planner=wait)
    )
    writer.attach({"meta": b"second"})
    dcp.save({"n": torch.tensor(2)}, checkpoint_id=tmp_path / "second", storage_writer=writer)
    go_on.set()
    saving.result()
    for number, name in enumerate(["first", "second"], start=1):
        reader = DistributedReader(tmp_path / name)
        found = {"n": torch.tensor(0)}
        dcp.load(found, storage_reader=reader)
        assert found["n"] == number
        assert reader.attachment("meta") == name.encode()


def test_a_state_that_another_writer_has_staged_is_saved_where_its_own_is_told(
    place: Place, tmp_path: Path
) -> None:
    staged = DistributedWriter(tmp_path / "elsewhere").stage({"n": torch.tensor(5)})
    dcp.save(staged, storage_writer=place.writer())
    found = {"n": torch.tensor(0)}
    dcp.load(found, storage_reader=place.reader())
    assert found["n"] == 5
    assert not (tmp_path / "elsewhere").exists()
