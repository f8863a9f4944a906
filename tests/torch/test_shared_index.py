"""One rank lists for all."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace
from headrace.torch import MapDataset, shared_index
from testing.faultserver.client import FaultServer
from tests.process.conftest import RunChild
from tests.torch.conftest import fill, kinds, reads

# Each child begins so: a process for each rank, by fork, for that is quick; gloo meets in a file.
# Where its ranks do not find each other, as on a busy machine, all begin again (tests/torchrun.py).
HEAD = """
from in_child import *
import datetime, multiprocessing, tempfile
import torch, torch.distributed as dist
from headrace.torch import Loader, MapDataset, shared_index

WORLD = int(sys.argv[2])

NOT_MET_STATUS = 75
# With the barrier, none goes on where one has not met the others.
os.environ.update(GLOO_SOCKET_IFNAME="lo", TORCH_DIST_INIT_BARRIER="1")

def each_rank(work):
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            def run(rank):
                torch.set_num_threads(1)
                stderr = os.dup(2)
                os.dup2(os.open(f"{folder}/said", os.O_WRONLY | os.O_CREAT), 2)
                try:
                    dist.init_process_group(
                        "gloo", init_method=f"file://{folder}/meeting", rank=rank,
                        world_size=WORLD, timeout=datetime.timedelta(seconds=50),
                    )
                except RuntimeError as error:
                    print(error, flush=True)
                    os._exit(NOT_MET_STATUS)
                finally:
                    os.dup2(stderr, 2)
                work(rank)
                dist.barrier()
                dist.destroy_process_group()

            pids = [fork(lambda rank=rank: run(rank)) for rank in range(WORLD)]
            codes = [reap(pid, others=(NOT_MET_STATUS,)) for pid in pids]
        if NOT_MET_STATUS not in codes:
            break
    assert codes == [0] * WORLD, codes

def all_say(value):
    said = [None] * WORLD
    dist.all_gather_object(said, value)
    return said
"""


@pytest.mark.parametrize("world", [2, 4])
def test_one_rank_lists_and_all_have_the_same(
    run_child: RunChild, server: FaultServer, world: int
) -> None:
    fill(server, 40)
    run_child(
        HEAD
        + """
def work(rank):
    store = headrace.Store("gs://bucket/data/", endpoint=ENDPOINT)
    index = shared_index(store)
    assert len(set(all_say(index.fingerprint))) == 1
    assert index.url(0) == "gs://bucket/data/0000"
    assert [info.name for info in index] == [f"{i:04d}" for i in range(40)]
    dataset = MapDataset(store, transform=lambda sample: sample.url, index=index)
    urls = [url for batch in Loader(dataset, 4, collate_fn=list) for url in batch]
    assert sorted(sum(all_say(urls), [])) == [f"gs://bucket/data/{info.name}" for info in index]

each_rank(work)
""",
        server.url,
        world,
    )
    assert kinds(server) == {"list": 1, "media": 40}
    assert set(reads(server).values()) == {1}


def test_an_index_larger_than_what_is_sent_at_once_arrives_whole(
    run_child: RunChild, server: FaultServer
) -> None:
    server.synthetic("bucket", 30_000, 10, shape="uuid")
    run_child(
        HEAD
        + """
# The package's attribute of that name is the function.
sys.modules["headrace.torch._shared_index"]._PIECE_BYTES = 100_000

def work(rank):
    index = shared_index("gs://bucket")
    assert len(set(all_say(index.fingerprint))) == 1
    assert len(index) == 30_000
    assert len({tuple(each) for each in all_say([info.crc32c for info in index])}) == 1

each_rank(work)
""",
        server.url,
        2,
        STORAGE_EMULATOR_HOST=server.url,
    )
    # One rank's pages, and what it guessed.
    assert 30 <= kinds(server)["list"] <= 70


def test_a_function_is_called_by_one_rank(
    run_child: RunChild, server: FaultServer, tmp_path: Path
) -> None:
    store = fill(server, 10)
    store.index().save(tmp_path / "index")
    server.reset(keep_buckets=True)
    run_child(
        HEAD
        + """
def work(rank):
    called = []
    def load():
        called.append(rank)
        return headrace.ObjectIndex.load(sys.argv[3]).filter(glob="000[0-4]")
    index = shared_index(load)
    assert called == ([0] if rank == 0 else [])
    assert all_say([info.name for info in index]) == [[f"{i:04d}" for i in range(5)]] * WORLD

each_rank(work)
""",
        server.url,
        2,
        tmp_path / "index",
    )
    assert kinds(server) == {}


def test_what_one_rank_meets_is_raised_on_every_rank(
    run_child: RunChild, server: FaultServer
) -> None:
    run_child(
        HEAD
        + """
class Odd(Exception):
    def __reduce__(self):
        raise TypeError("no pickle takes it")

def raised_by(source):
    try:
        shared_index(source)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")

def odd():
    raise Odd("so odd")

def work(rank):
    error = raised_by(headrace.Store("gs://missing", endpoint=ENDPOINT))
    assert type(error) is headrace.NotFoundError, repr(error)
    assert (error.url, error.http_status) == ("gs://missing", 404)
    assert ("first rank" in "".join(getattr(error, "__notes__", []))) == (rank > 0)
    error = raised_by(odd)
    assert type(error) is (Odd if rank == 0 else headrace.HeadraceError)
    assert "so odd" in str(error)
    error = raised_by(lambda: ["a"])
    assert type(error) is headrace.InvalidArgumentError and "returned a list" in str(error)
    # And then it goes on.
    headrace.Store("gs://bucket", endpoint=ENDPOINT)
    assert len(shared_index(lambda: headrace.ObjectIndex.from_objects([]))) == 0

each_rank(work)
""",
        server.url,
        2,
    )
    assert kinds(server) == {"list": 1}


def test_a_group_shares_among_its_own(run_child: RunChild, server: FaultServer) -> None:
    fill(server, 10)
    run_child(
        HEAD
        + """
def work(rank):
    odd = dist.new_group([1, 3])
    store = headrace.Store("gs://bucket/data/", endpoint=ENDPOINT, user_agent_suffix=f"rank-{rank}")
    if rank % 2:
        assert len(shared_index(store, prefix="000", group=odd)) == 10
    else:
        try:
            shared_index(store, group=odd)
        except headrace.InvalidArgumentError as error:
            assert "not in the group" in str(error)
        else:
            raise AssertionError("nothing was raised")

each_rank(work)
""",
        server.url,
        4,
    )
    assert kinds(server) == {"list": 1}
    [listing] = server.log()
    assert listing["headers"]["user-agent"].endswith("rank-1")


# ---- without torch.distributed


def test_without_ranks_it_lists(server: FaultServer) -> None:
    store = fill(server, 10)
    index = shared_index(store)
    assert index == store.index()
    assert len(shared_index(store, prefix="0003")) == 1
    assert len(MapDataset(store, index=index)) == 10
    assert shared_index(lambda: index) is index


def test_what_cannot_be_shared_is_refused(server: FaultServer) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="source is a int"):
        shared_index(3)  # type: ignore[arg-type]
    with pytest.raises(headrace.InvalidArgumentError, match="prefix is given"):
        shared_index(lambda: headrace.ObjectIndex.from_objects([]), prefix="a")
    with pytest.raises(headrace.InvalidArgumentError, match="not initialised"):
        shared_index("gs://bucket", group=object())  # type: ignore[arg-type]
