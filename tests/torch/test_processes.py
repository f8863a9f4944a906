"""DataLoader workers of every start method, forks, Ctrl-C, the interpreter's end."""

from __future__ import annotations

import json

import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.process.conftest import RunChild, wait_until_closed
from tests.shards import tars
from tests.torch.conftest import fill, reads

# A server of forks stands for what starts anew.
METHODS = ["fork", pytest.param("spawn", marks=pytest.mark.soak), "forkserver"]

# Every child begins so. What workers need is at the top level, where spawn finds it.
HEAD = """
from in_child import *
import collections, gc, itertools, multiprocessing, threading, warnings
import torch
from torch.utils.data import DataLoader
from headrace.torch import Loader, MapDataset, ShardStream
from headrace.torch._collate import collate

# There is no CUDA here; that torch says so is not what is tried.
warnings.filterwarnings("ignore", message=".*pin_memory.*")
torch.set_num_threads(1)

def open_data():
    return headrace.Store("gs://bucket/data/", endpoint=ENDPOINT)

def number_of(sample):
    return int(sample.bytes()[:4])

def numbers(batch):
    return [int(bytes(row[:4].tolist())) for row in batch]

def transform_threads():
    return [t for t in threading.enumerate() if t.name.startswith("headrace-transform")]

def context_of(workers):
    if workers == 0:
        return {}
    context = multiprocessing.get_context(METHOD)
    if METHOD == "forkserver":
        context.set_forkserver_preload(["headrace.torch"])
    return {"num_workers": workers, "multiprocessing_context": context}

METHOD = sys.argv[2] if len(sys.argv) > 2 else ""
"""
# Who closes an iterator waits for its threads for as long as a busy machine takes.
PATIENT = """
sys.modules["headrace.torch._pipeline"]._CLOSE_S = 60.0
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("method", METHODS)
def test_dataloader_workers(run_child: RunChild, server: FaultServer, method: str) -> None:
    """With and without transform, pinned and persistent; used before."""
    fill(server, 40)
    run_child(
        HEAD
        + """
def engine_here(sample):
    return {
        "number": number_of(sample),
        "budget": headrace.metrics().memory_budget_bytes,
        "threads": sum(name.startswith("headrace-io") for name in thread_names()),
    }

if __name__ == "__main__":
    store = open_data()
    dataset = MapDataset(store)
    assert numbers(dataset[3][None]) == [3]  # the engine runs here, too
    told = MapDataset(store, engine_here)

    def check_map(**options):
        loader = DataLoader(dataset, batch_size=6, **options)
        for epoch in range(2 if options.get("persistent_workers") else 1):
            batches = list(loader)
            assert [len(batch) for batch in batches] == [6] * 6 + [4]
            assert numbers(torch.cat(batches)) == list(range(40))

    def check_engine(workers, **options):
        "The engine of a worker has one I/O thread and its share of the budget."
        loader = DataLoader(told, batch_size=6, **options, **context_of(workers))
        for each in itertools.chain(*(loader for epoch in range(2))):
            assert set(each["threads"].tolist()) == {1}
            assert set(each["budget"].tolist()) == {headrace.GiB // workers}

    both = dict(pin_memory=True, persistent_workers=True)
    check_map(**both, **context_of(2))
    check_engine(2, **both)
    if METHOD != "spawn":  # where a worker takes seconds to start
        check_map(**context_of(2))
        check_map(pin_memory=True, **context_of(2))
        check_map(persistent_workers=True, **context_of(2))
        check_engine(2)
        check_engine(1)
    if METHOD == "fork":
        check_map()
        check_map(pin_memory=True)
    use = numbers(dataset[4][None])
    assert use == [4]
""",
        server.url,
        method,
        timeout_s=560,
        stderr=None,
    )
    wait_until_closed(server)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("method", METHODS)
def test_copies_of_a_dataset_have_epochs_of_their_own(
    run_child: RunChild, server: FaultServer, method: str
) -> None:
    """A copy, or the dataset in another process, shares its epoch with its own workers alone."""
    server.bucket("bucket")
    tars.fill(headrace.Store("gs://bucket/data", endpoint=server.url), 4, 3)
    run_child(
        HEAD
        + """
import copy, pickle, queue

def number_in(fields):
    return int(fields["__key__"])

def orders():
    stream = ShardStream(open_data(), number_in, shuffle=True)
    found = []
    for epoch in range(3):
        stream.set_epoch(epoch)
        found.append(list(stream))
    return found

def check_workers(stream, first, wanted):
    "Workers that live on see the epoch that is set between two passes."
    loader = DataLoader(
        stream, batch_size=None, num_workers=1, persistent_workers=True,
        multiprocessing_context="fork",
    )
    for epoch in range(first, 3):
        assert list(loader) == wanted[epoch], epoch
        stream.set_epoch(epoch + 1)

def rank(stream, mine, go, done, wanted):
    "One of several processes that got the same dataset."
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    assert stream.epoch == 1
    stream.set_epoch(mine)
    done.put(mine)
    go.get()
    assert stream.epoch == mine
    assert list(stream) == wanted[mine]
    stream.set_epoch(0)
    iterator = iter(stream)
    assert [next(iterator) for _ in range(7)] == wanted[0][:7]
    stream.load_state_dict(stream.state_dict())
    done.put(mine)
    go.get()
    assert list(stream) == wanted[0][7:]
    if METHOD == "fork":  # elsewhere another process takes seconds
        stream.set_epoch(0)
        check_workers(stream, 0, wanted)

def workers_first(stream, wanted):
    "The dataset is touched only after the workers have begun."
    torch.set_num_threads(1)
    check_workers(stream, 1, wanted)

if __name__ == "__main__":
    wanted = orders()
    assert wanted[0] != wanted[1] != wanted[2]
    stream = ShardStream(open_data(), number_in, shuffle=True)
    if METHOD == "fork":
        for again in (copy.deepcopy(stream), pickle.loads(pickle.dumps(stream))):
            check_workers(again, 0, wanted)
            assert (again.epoch, stream.epoch) == (3, 0)
    stream.set_epoch(1)
    context = torch.multiprocessing.get_context(METHOD)
    if METHOD == "forkserver":
        context.set_forkserver_preload(["headrace.torch"])
    done = context.Queue()
    goes = [context.Queue() for _ in range(2)]
    ranks = [
        context.Process(target=rank, args=(stream, mine, go, done, wanted))
        for mine, go in zip((0, 2), goes)
    ]
    if METHOD == "fork":
        ranks.append(context.Process(target=workers_first, args=(stream, wanted)))
    for process in ranks:
        process.start()
    for _ in range(2):  # each has done its step before any does the next
        assert {done.get(timeout=240), done.get(timeout=240)} == {0, 2}
        assert stream.epoch == 1
        for go in goes:
            go.put(None)
    for process in ranks:
        process.join()
        assert process.exitcode == 0
    assert stream.epoch == 1
    assert list(stream) == wanted[1]
""",
        server.url,
        method,
        timeout_s=360,
        stderr=None,
    )


@pytest.mark.timeout(400)
@pytest.mark.parametrize("method", METHODS)
def test_errors_in_workers_come_as_they_are(
    run_child: RunChild, server: FaultServer, method: str
) -> None:
    """One worker, which lives on after each; then one that is killed."""
    fill(server, 40)
    server.put("bucket", "data/0040", b"0040 is longer" * 100)
    run_child(
        HEAD
        + """
class Unfriendly(Exception):
    "Torch cannot make one from a text."
    def __init__(self, one, two):
        super().__init__(one, two)

def transform(sample):
    number = number_of(sample)
    if number == 1:
        raise ZeroDivisionError("no way")
    if number == 2:
        raise KeyError(3)
    if number == 3:
        raise Unfriendly(1, 2)
    if number == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return sample.tensor()

if __name__ == "__main__":
    store = open_data()
    dataset = MapDataset(store, transform)
    store.delete("0020")
    store.write("0021", b"other")
    batches = [[0], [5, 1], [2], [3], [19, 20], [21], [22, 41], [0, 40], [6], [4], [7]]
    loader = DataLoader(
        dataset, batch_sampler=batches, collate_fn=collate, prefetch_factor=1, **context_of(1)
    )
    it = iter(loader)
    assert numbers(next(it)) == [0]
    wanted = [
        (ZeroDivisionError, "no way (in the transform of gs://bucket/data/0001)"),
        (KeyError, "in the transform of gs://bucket/data/0002"),
        (RuntimeError, "in the transform of gs://bucket/data/0003"),
        (headrace.NotFoundError, "gs://bucket/data/0020: "),
        (headrace.PreconditionFailedError, "gs://bucket/data/0021: "),
        (IndexError, "41 objects"),
        (headrace.InvalidArgumentError, "[100] at place 0 and [1400] at place 1"),
    ]
    for kind, text in wanted:
        try:
            next(it)
        except Exception as error:
            assert type(error) is kind, error
            assert text in str(error), error
        else:
            raise AssertionError(kind)
    assert numbers(next(it)) == [6]
    try:
        next(it)
    except RuntimeError as error:
        assert "exited unexpectedly" in str(error), error
    else:
        raise AssertionError("nobody has noticed that the worker was killed")
    del it
    assert numbers(dataset[8][None]) == [8]
""",
        server.url,
        method,
        timeout_s=360,
        stderr=None,
    )


def test_what_the_user_has_set_is_left_alone_in_workers(
    run_child: RunChild, server: FaultServer
) -> None:
    fill(server, 4)
    run_child(
        HEAD
        + """
def engine_of_worker(sample):
    threads = sum(name.startswith("headrace-io") for name in thread_names())
    return threads, headrace.metrics().memory_budget_bytes

if __name__ == "__main__":
    headrace.configure(io_threads=2, memory_budget_bytes=100 * headrace.MiB)
    dataset = MapDataset(open_data(), engine_of_worker)
    threads, budgets = next(iter(DataLoader(dataset, batch_size=4, **context_of(1))))
    assert set(threads.tolist()) == {2}
    assert set(budgets.tolist()) == {100 * headrace.MiB}
""",
        server.url,
        "fork",
        stderr=None,
    )


@pytest.mark.parametrize("threads", [0, 2])
def test_a_fork_beside_a_loader(run_child: RunChild, server: FaultServer, threads: int) -> None:
    """The child's copy of the iterator says what it is; the child and the parent go on."""
    fill(server, 60)
    run_child(
        HEAD
        + PATIENT
        + """
loader = Loader(MapDataset(open_data(), number_of), 5, transform_threads=int(sys.argv[3]))
it = iter(loader)
seen = next(it).tolist()

def work():
    global it
    try:
        next(it)
    except headrace.CancelledError as error:
        assert "before a fork" in str(error)
    else:
        raise AssertionError
    assert list(it) == []
    state = loader.state_dict()
    assert torch.cat(list(loader)).tolist() == list(range(60))
    loader.load_state_dict(state)
    assert torch.cat(list(loader)).tolist() == list(range(5, 60))
    del it
    assert transform_threads() == []

children = [fork(work) for _ in range(3)]
for child in children:
    reap(child)
seen += torch.cat(list(it)).tolist()
assert seen == list(range(60))
assert transform_threads() == []
""",
        server.url,
        "",
        threads,
        stderr=None,
    )


WAITS = {
    "read into the batch": ("None", "None"),
    "transform threads": ("number_of", "2"),
    "no threads": ("number_of", "0"),
}


@pytest.mark.serial
@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_ends_a_wait(run_child: RunChild, server: FaultServer, wait: str) -> None:
    fill(server, 40)
    transform, threads = WAITS[wait]
    run_child(
        HEAD
        + PATIENT
        + f"""
rule = {{"match": {{"path_contains": "data/0030"}}, "action": "stall_head"}}
control("faults", {{"rules": [rule]}})
loader = Loader(MapDataset(open_data(), {transform}), 5, transform_threads={threads})
"""
        + """
def waits():
    "Whether the main thread is in Pipeline.next."
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame is not None and frame.f_code.co_qualname != "Pipeline.next":
        frame = frame.f_back
    return frame is not None

times = []
for attempt in range(20):
    it = iter(loader)
    for _ in range(6):
        next(it)
    place = loader.state_dict()
    sent = []
    def interrupt():
        wait_for_stall()
        wait_for(waits)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        next(it)
    except KeyboardInterrupt:
        times.append(time.monotonic() - sent[0])
    else:
        raise AssertionError("there was an answer")
    thread.join()
    assert loader.state_dict() == place
    assert transform_threads() == []
    wait_for(lambda: control("stats")["in_flight"] == 0)
    loader.set_epoch(0)
    if in_time(times):
        break
else:
    raise AssertionError(times)
control("faults", {"rules": []})
loader.load_state_dict(place)
assert sum(len(batch) for batch in loader) == 10
""",
        server.url,
        stderr=None,
    )


ENDS = {
    "while it waits for the network": ("number_of", "stalls", ""),
    "while it reads into a batch": ("None", "stalls", ""),
    "in a transform": ("slow", "", "begun.wait()"),
    "between two batches": ("number_of", "", "next(it)"),
    "in a transform that outlives its iterator": ("slow", "", "begun.wait(); it.close()"),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_interpreter_ends_with_work_in_flight(
    run_child: RunChild, server: FaultServer, end: str
) -> None:
    """Soon, silently, and with its own status; also when the iterator is never closed."""
    fill(server, 60)
    transform, fault, then = ENDS[end]
    run_child(
        HEAD
        + """
begun = threading.Event()
def slow(sample):
    begun.set()
    torch.ones(3_000_000).sort()  # without the GIL
    return number_of(sample)
"""
        + f"""
if "{fault}":
    rule = {{"match": {{"path_contains": "data/0055"}}, "action": "stall_head"}}
    control("faults", {{"rules": [rule]}})
loader = Loader(MapDataset(open_data(), {transform}), 5, transform_threads=2)
it = iter(loader)
next(it)
if "{fault}":
    wait_for_stall()
{then}
sys.exit(7)
""",
        server.url,
        expect_code=7,
    )
    wait_until_closed(server)


def test_stop_and_resume_in_another_process(run_child: RunChild, server: FaultServer) -> None:
    """A job that is told to stop drains; another goes on; each object was read exactly once."""
    fill(server, 60)
    script = (
        HEAD
        + """
first = sys.argv[2] == "first"
loader = Loader(
    MapDataset(open_data(), number_of), 4 if first else 7, shuffle=True, seed=6,
    transform_threads=2, prefetch_bytes=1000,
)
seen = []
if not first:
    loader.load_state_dict(json.loads(sys.argv[3]))
for step, batch in enumerate(loader):
    seen += batch.tolist()
    if first and step == 2:
        loader.drain()
print(json.dumps([seen, loader.state_dict()]))
"""
    )
    seen, state = json.loads(run_child(script, server.url, "first", stderr=None))
    rest, done = json.loads(run_child(script, server.url, "second", json.dumps(state), stderr=None))
    assert 12 < len(seen) <= 24
    assert sorted(seen + rest) == list(range(60))
    assert (done["epoch"], done["position"]) == (1, 0)
    assert set(reads(server).values()) == {1}
    assert len(reads(server)) == 60
