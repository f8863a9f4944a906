"""Workers of Ray Train on two nodes: their ranks, and checkpoints that survive a lost worker."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import headrace
import headrace.ray
from testing.faultserver.client import FaultServer
from tests.ray_cluster import TwoNodes

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
]

COUNT, GLOBAL_BATCH, STEPS = 48, 8, 6


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[TwoNodes]:
    with TwoNodes() as nodes:
        yield nodes


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for i in range(COUNT):
        tmp_path.joinpath(f"{i:03d}").write_bytes(b"%d" % i)
    return tmp_path


def training_loop() -> Callable[[dict[str, Any]], None]:
    """The function that workers run. It is made here, so that it is pickled whole."""

    def train(config: dict[str, Any]) -> None:
        import json
        import os
        from pathlib import Path

        import ray.train

        import headrace.ray
        from headrace.torch import Loader, MapDataset

        where = headrace.ray.ranks()
        context = ray.train.get_context()
        assert where == {"rank": context.get_world_rank(), "world_size": context.get_world_size()}
        dataset = MapDataset(config["data"], lambda sample: sample.name)
        loader = Loader(
            dataset, config["batch"] // where["world_size"], shuffle=True, seed=7,
            collate_fn=list, **where,
        )  # fmt: skip
        state, step = headrace.ray.restore(config.get("from")), 0
        if state is not None:
            loader.load_state_dict(state["loader"])
            step = state["step"]
        log = Path(config["log"], f"{os.getpid()}.jsonl")
        while loader.epoch == 0:
            for names in loader:
                step += 1
                with log.open("a") as file:
                    print(json.dumps({**where, "step": step, "names": names}), file=file)
                headrace.ray.report(
                    {"step": step},
                    {"loader": loader.state_dict(), "step": step},
                    f"{config['saved']}/step{step:03d}.pt",
                )
                if step == config.get("stop_after"):
                    return
                lost = Path(config["log"], "lost")
                if step == config.get("dies_after") and where["rank"] == 1 and not lost.exists():
                    lost.touch()
                    os._exit(1)

    return train


def run(data: Path, storage: Path, workers: int, **config: Any) -> Any:
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    log = storage / "log"
    log.mkdir(parents=True, exist_ok=True)
    places = {"data": str(data), "saved": str(storage / "saved"), "log": str(log)}
    return DataParallelTrainer(
        training_loop(),
        train_loop_config={**places, "batch": GLOBAL_BATCH, **config},
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(
            storage_path=str(storage / "ray"),
            name=f"with-{workers}",
            failure_config=FailureConfig(max_failures=1),
        ),
    ).fit()


def steps_in(storage: Path) -> list[dict[str, Any]]:
    files = storage.joinpath("log").glob("*.jsonl")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.mark.soak  # tests/examples/test_elastic.py stands for it
def test_a_lost_worker_costs_the_steps_since_the_report_and_no_sample(
    data: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    storage = tmp_path_factory.mktemp("run")
    result = run(data, storage, 2, dies_after=3)
    assert (storage / "log" / "lost").exists()
    assert result.metrics["step"] == STEPS
    assert headrace.ray.restore(result.checkpoint)["step"] == STEPS

    taken: dict[tuple[int, int], set[tuple[str, ...]]] = {}
    for step in steps_in(storage):
        assert step["world_size"] == 2
        taken.setdefault((step["step"], step["rank"]), set()).add(tuple(step["names"]))
    # What a rank has done in a step is the same each time; over all steps, each object comes once.
    assert {len(each) for each in taken.values()} == {1}
    names = Counter(name for (each,) in taken.values() for name in each)
    assert names == Counter(f"{i:03d}" for i in range(COUNT))


@pytest.mark.soak
def test_one_worker_goes_on_where_two_have_stopped(
    data: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    storage = tmp_path_factory.mktemp("run")
    stopped = run(data, storage, 2, stop_after=2)
    assert headrace.ray.restore(stopped.checkpoint)["step"] == 2
    run(data, storage, 1, **{"from": stopped.checkpoint})
    steps = steps_in(storage)
    assert Counter(step["world_size"] for step in steps) == {2: 2 * 2, 1: STEPS - 2}
    names = Counter(name for step in steps for name in step["names"])
    assert names == Counter(f"{i:03d}" for i in range(COUNT))


def checkpoint_of(folder: Path) -> Any:
    from ray.train import Checkpoint

    return Checkpoint.from_directory(str(folder))


def state_of_step(step: int, name: str = "state.pt") -> dict[str, Any]:
    """A state of several MiB, which differs between steps in the middle, too."""
    state = {"weights": torch.full((1 << 20,), float(step)), "step": torch.tensor(step)}
    return state if name.endswith(".safetensors") else state | {"name": "run"}


class WorkerOfRankZero:
    """Stands in for ray.train: keeps what is reported, in a folder."""

    Checkpoint: Any = None

    def __init__(self, folder: Path) -> None:
        from ray.train import Checkpoint

        self.Checkpoint, self.folder = Checkpoint, folder

    def get_context(self) -> WorkerOfRankZero:
        return self

    def get_world_rank(self) -> int:
        return 0

    def report(self, metrics: dict[str, Any], checkpoint: Any) -> None:
        shutil.copytree(checkpoint.path, self.folder)


@pytest.fixture
def reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Reports a state, saved at a URL, and returns Ray's checkpoint."""

    def report(url: str, state: Any, **options: Any) -> Any:
        folder = tmp_path / "reported"
        with monkeypatch.context() as patch:
            patch.setattr("headrace.ray._train._train", lambda: WorkerOfRankZero(folder))
            headrace.ray.report({}, state, url, **options)
        return checkpoint_of(folder)

    return report


@pytest.mark.parametrize("name", ["state.pt", "state.safetensors"])
@pytest.mark.parametrize("is_local", [True, False], ids=["file", "gcs"])
def test_a_state_that_was_replaced_is_not_taken_for_the_one_reported(
    tmp_path: Path, server: FaultServer, reported: Callable[..., Any], is_local: bool, name: str
) -> None:
    server.bucket("bucket")
    url = str(tmp_path / name) if is_local else f"gs://bucket/{name}"
    options = {} if is_local else {"endpoint": server.url}
    checkpoint = reported(url, state_of_step(1, name), **options)
    assert headrace.ray.restore(checkpoint, **options)["step"] == 1
    headrace.checkpoint.save(state_of_step(2, name), url, **options)  # of the same size
    with pytest.raises(headrace.PreconditionFailedError, match="a URL of its own"):
        headrace.ray.restore(checkpoint, **options)


def test_a_file_may_get_another_mode_another_link_and_another_device(
    tmp_path: Path, reported: Callable[..., Any]
) -> None:
    file = tmp_path / "state.pt"
    checkpoint = reported(str(file), state_of_step(1))
    before = headrace.Store(tmp_path).stat("state.pt").generation
    file.chmod(0o600)
    os.link(file, tmp_path / "kept.pt")
    assert headrace.Store(tmp_path).stat("state.pt").generation != before
    assert headrace.ray.restore(checkpoint)["step"] == 1
    # As another node sees it: other inode, other device.
    shutil.copy(file, tmp_path / "copy")
    tmp_path.joinpath("copy").replace(file)
    assert headrace.ray.restore(checkpoint)["step"] == 1


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_state_that_changes_while_it_is_loaded_is_looked_at_again(
    tmp_path: Path,
    reported: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    is_replaced: bool,
) -> None:
    file = tmp_path / "state.pt"
    checkpoint = reported(str(file), state_of_step(1))
    load = headrace.checkpoint.load

    def changed(*arguments: Any, **options: Any) -> Any:
        if is_replaced:
            headrace.checkpoint.save(state_of_step(2), file)
        else:
            file.chmod(0o600)
        return load(*arguments, **options)

    monkeypatch.setattr(headrace.checkpoint, "load", changed)
    if is_replaced:
        with pytest.raises(headrace.PreconditionFailedError, match="a URL of its own"):
            headrace.ray.restore(checkpoint)
    else:
        assert headrace.ray.restore(checkpoint)["step"] == 1


def test_a_checkpoint_of_somebody_else_is_told(tmp_path: Path) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=r"there is no headrace\.json"):
        headrace.ray.restore(checkpoint_of(tmp_path))


def test_outside_of_a_worker_each_function_says_where_it_belongs(tmp_path: Path) -> None:
    for call in (
        headrace.ray.ranks,
        headrace.ray.restore,
        lambda: headrace.ray.report({}, {}, str(tmp_path / "state.pt")),
    ):
        with pytest.raises(headrace.InvalidArgumentError, match="outside of a worker of Ray Train"):
            call()
    assert not (tmp_path / "state.pt").exists()


def test_a_store_is_no_place_that_other_workers_can_read(tmp_path: Path) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="a whole URL"):
        headrace.ray.report({}, {}, "state.pt", store=headrace.Store(tmp_path))
