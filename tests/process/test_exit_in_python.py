"""The interpreter's end while threads are in Python code that the engine has called.

Python 3.13 and older end such a thread when it asks for the GIL, by unwinding its stack. A thread
that is switched at every bytecode asks often, but whether one does so within a call of ours when
the interpreter finalizes is chance: each child is forked many times. HEADRACE_PROCESS_CYCLES, as
of test_cycles.py, says how many.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testing.faultserver.client import FaultServer
from tests.process.conftest import RunChild

CYCLES = max(5, int(os.environ.get("HEADRACE_PROCESS_CYCLES", "1000")) // 200)

HEAD = """
    from in_child import *
    import threading
    FILES = headrace.Store(sys.argv[2])

    def spin():
        "Python code that other threads interrupt."
        for _ in range(300):
            pass

    class Unsteady:
        def __del__(self):
            spin()
"""

# What each thread does again and again, once `begin` has been called in its process.
IN_PYTHON = {
    "JSON of a sample": """
    data = json.dumps(list(range(200))).encode()
    def work():
        headrace.Sample(data).json()
    """,
    "a sample's text by a codec in Python": """
    import codecs
    def decode(data, errors):
        spin()
        return bytes(data).decode("latin-1"), len(data)
    slow = codecs.CodecInfo(codecs.latin_1_encode, decode)
    codecs.register(lambda name: slow if name == "slow" else None)
    def work():
        headrace.Sample(b"abc").text("slow")
    """,
    "a label with __del__": """
    def work():
        headrace.Sample(b"abc", label=Unsteady())
    """,
    "memory with __del__": """
    class Memory(bytearray):
        def __del__(self):
            spin()
    def work():
        FILES.read_many(["a"], into=[Memory(10)])
    """,
    "the progress of a listing": """
    def work():
        FILES.index(progress=lambda *told: spin())
    """,
    "objects from a generator": """
    infos = list(FILES.list())
    def given():
        for info in infos:
            spin()
            yield info
    def work():
        headrace.ObjectIndex.from_objects(given())
    """,
    "an index that is saved and loaded": """
    index = FILES.index()
    def work():
        index.save(sys.argv[2] + "/index" + str(threading.get_ident()))
        headrace.ObjectIndex.load(sys.argv[2] + "/index" + str(threading.get_ident()))
    """,
    "paths of a user's class": """
    class Path(os.PathLike):
        def __fspath__(self):
            spin()
            return "/data"
    index = FILES.index()
    def work():
        index.at(Path())
    """,
    "errors": """
    def work():
        for error in FILES.read_many(["a", "missing"] * 5, on_error="return"):
            pass
    """,
    "a handler of the log": """
    import logging
    class Handler(logging.Handler):
        def emit(self, record):
            spin()
    logging.getLogger("headrace").addHandler(Handler())
    logging.getLogger("headrace").setLevel(logging.DEBUG)
    logging.getLogger("headrace").propagate = False
    store = open_store(retry=headrace.RetryOptions(initial_backoff_s=0.001, max_backoff_s=0.001))
    def begin():
        store.read("000")
    def work():
        store.read_many(NAMES[:20])
    """,
    "a handler of the log that writes objects": """
    import logging
    class Handler(logging.Handler):
        def emit(self, record):
            FILES.write("log", record.getMessage().encode())
    logger = logging.getLogger("user")
    logger.addHandler(Handler())
    logger.propagate = False
    def work():
        logger.warning("something")
    """,
    "reads and nothing else": """
    store = open_store()
    def work():
        store.read_many(NAMES[:20])
    """,
    "writes": """
    def work():
        with FILES.open_writer("written" + str(threading.get_ident())) as writer:
            writer.write(bytes(1000))
    """,
}

# Without a call of the user's to torch in these threads: its code cannot be unwound.
LOADERS = {
    "a transform": """
    loader = lambda: Loader(MapDataset(FILES, transform), 4, collate_fn=list, shuffle=True)
    """,
    "a transform on threads": """
    loader = lambda: Loader(
        MapDataset(FILES, transform), 4, collate_fn=list, transform_threads=2
    )
    """,
    "a collate_fn": """
    def collate(samples):
        spin()
        return [sample.text() for sample in samples]
    loader = lambda: Loader(MapDataset(FILES, lambda sample: sample), 4, collate_fn=collate)
    """,
    "batches that a function ends": """
    def fits(batch, index):
        spin()
        return len(batch) < 3
    data = MapDataset(FILES, transform)
    loader = lambda: Loader(data, batch_sampler=CostBatchSampler(data, fits=fits), collate_fn=list)
    """,
}

LOADER = """
    from headrace.torch import CostBatchSampler, Loader, MapDataset
    def transform(sample):
        spin()
        return sample.json()
    {loader}
    def work():
        for batch in loader():
            pass
"""

# In the forked child, which goes on to the end of the script as any interpreter does.
TAIL = """
    import gc

    def forever(begun):
        while True:
            work()
            begun.release()

    def child():
        globals().get("begin", spin)()
        begun = threading.Semaphore(0)
        for _ in range(3):
            threading.Thread(target=forever, args=(begun,), daemon=True).start()
        for _ in range(3):
            assert begun.acquire(timeout=60)
        sys.setswitchinterval(1e-6)

    for _ in range(int(sys.argv[3])):
        pid = os.fork()
        if pid == 0:
            child()
            break
        reap(pid)
"""


def write_objects(folder: Path) -> Path:
    folder.mkdir()
    for name in ("a", "b", "c", "d", "e", "f", "g", "h"):
        (folder / name).write_bytes(b"1234567890")
    return folder


@pytest.mark.parametrize("what", IN_PYTHON)
def test_exit_while_threads_are_in_python_code_that_the_engine_called(
    run_child: RunChild, server: FaultServer, tmp_path: Path, what: str
) -> None:
    if what == "a handler of the log":
        server.faults([{"match": {"kind": "media"}, "every": 3, "action": {"status": 503}}])
    run_child(HEAD + IN_PYTHON[what] + TAIL, server.url, write_objects(tmp_path / "files"), CYCLES)


# A Loader draws its order with tensors, and to free one takes the GIL: about one end in a hundred
# of such threads is torch's abort.
@pytest.mark.soak
@pytest.mark.xfail(strict=False, reason="torch's THPVariable_clear cannot be unwound")
@pytest.mark.parametrize("what", LOADERS)
def test_exit_while_threads_go_through_batches(
    run_child: RunChild, server: FaultServer, tmp_path: Path, what: str
) -> None:
    pytest.importorskip("torch")
    script = HEAD + LOADER.format(loader=LOADERS[what].strip()) + TAIL
    run_child(script, server.url, write_objects(tmp_path / "files"), CYCLES)
