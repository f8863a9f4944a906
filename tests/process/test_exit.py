"""The interpreter's end, whatever is under way: soon, with its own status, and silent."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from testing.faultserver.client import FaultServer
from tests.process.conftest import RunChild, wait_until_closed

HEAD = """
    from in_child import *
    import threading
    store = open_store()
    use(store)
"""

UNDER_WAY = {
    "nothing": "",
    "samples held": """
    samples = store.read_many(NAMES)
    views = [memoryview(sample) for sample in samples]
    """,
    "reads of a daemon thread": """
    def read():
        store.read_many(NAMES + ["stalls"])
    threading.Thread(target=read, daemon=True).start()
    wait_for_stall()
    """,
    "a listing of a daemon thread": """
    control("faults", {"rules": [{"match": {"kind": "list"}, "action": "stall_head"}]})
    threading.Thread(target=lambda: list(store.list()), daemon=True).start()
    wait_for_stall()
    """,
    "reads that succeed, of daemon threads": """
    begun = threading.Event()
    def read():
        while True:
            store.read_many(NAMES)
            begun.set()
    for _ in range(4):
        threading.Thread(target=read, daemon=True).start()
    begun.wait()
    """,
    "an open read_batches": """
    reading = store.read_batches([["001"], ["stalls"], ["002"]])
    next(reading)
    wait_for_stall()
    """,
    "an open read_batches in a cycle": """
    class Holder: pass
    holder = Holder()
    holder.self = holder
    holder.reading = store.read_batches([["001"], ["stalls"], ["002"]])
    next(holder.reading)
    wait_for_stall()
    """,
    "read_batches of a daemon thread": """
    def read():
        for batch in store.read_batches([["001"], ["stalls"]]):
            pass
    threading.Thread(target=read, daemon=True).start()
    wait_for_stall()
    """,
    "a file store's reads": """
    files = headrace.Store(sys.argv[2])
    files.write("a", bytes(1 << 20))
    begun = threading.Event()
    def read():
        while True:
            files.read_many(["a"] * 20)
            begun.set()
    threading.Thread(target=read, daemon=True).start()
    begun.wait()
    """,
}

ENDINGS = {
    "the script's end": (0, ""),
    "sys.exit": (3, "sys.exit(3)"),
    "an exception": (1, "raise ValueError('the end')"),
}

# Half read, in a place that is taken apart later than all modules.
KEPT = {
    "shards": ("iter(headrace.torch.ShardStream(folder))", "__next__()"),
    "rows": ("iter(headrace.torch.ParquetDataset(folder))", "__next__()"),
    "batches": (
        "iter(headrace.torch.Loader(headrace.torch.MapDataset(folder), 2, collate_fn=list))",
        "__next__()",
    ),
    "groups": (
        "headrace.Store(folder).read_batches([[name] for name in os.listdir(folder)])",
        "__next__()",
    ),
    "a listing": ("iter(headrace.Store(folder).list())", "__next__()"),
    "a reader": ("headrace.open(f'{folder}/1.txt', 'rb')", "read(1)"),
}


@pytest.mark.parametrize("kept", KEPT)
def test_what_is_kept_beyond_the_modules_ends_silently(
    run_child: RunChild, server: FaultServer, tmp_path: Path, kept: str
) -> None:
    if kept == "rows":
        parquet = pytest.importorskip("pyarrow.parquet")
        table = pytest.importorskip("pyarrow").table({"a": list(range(100))})
        parquet.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    elif kept == "shards":
        for shard in range(3):
            with tarfile.open(tmp_path / f"{shard}.tar.gz", "w:gz") as tar:
                for i in range(100):
                    tar.addfile(tarfile.TarInfo(f"{shard}-{i}.txt"))
    else:
        for i in range(100):
            (tmp_path / f"{i}.txt").write_text(str(i))
    made, used = KEPT[kept]
    run_child(
        f"""
    import builtins, os, sys
    import torch  # before ours: so it keeps our modules to the last
    import headrace, headrace.torch
    folder = sys.argv[2]
    kept = {made}
    kept.{used}
    builtins.kept = kept
    """,
        server.url,
        tmp_path,
        stderr="",
    )


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("under_way", UNDER_WAY)
def test_exit(
    run_child: RunChild, server: FaultServer, tmp_path: Path, under_way: str, ending: str
) -> None:
    code, statement = ENDINGS[ending]
    run_child(
        HEAD + UNDER_WAY[under_way] + "\n    " + statement,
        server.url,
        tmp_path / "files",
        expect_code=code,
        stderr=None if code == 1 else "",
        timeout_s=80,
    )
    wait_until_closed(server)


def test_reads_of_a_thread_that_is_waited_for_are_done(
    run_child: RunChild, server: FaultServer
) -> None:
    """threading joins what is no daemon before headrace stops."""
    out = run_child(
        HEAD
        + """
    def read():
        print(store.read("stalls").bytes())
    threading.Thread(target=read).start()
    wait_for_stall()
    def release():
        wait_for(lambda: not threading.main_thread().is_alive())
        control("release", {})
    threading.Thread(target=release).start()
        """,
        server.url,
    )
    assert out == "b'late'\n"


def test_an_exit_handler_that_runs_before_ours_may_begin_to_use_it(
    run_child: RunChild, tmp_path: Path
) -> None:
    out = run_child(
        """
        import atexit, sys, headrace
        def save():
            headrace.Store(sys.argv[1]).write("last", b"bytes")
            print("saved")
        atexit.register(save)
        import headrace.torch  # whose own handler runs first
        """,
        tmp_path / "folder",
    )
    assert out == "saved\n"


def test_use_in_an_atexit_function_that_runs_later_is_refused(
    run_child: RunChild, server: FaultServer
) -> None:
    out = run_child(
        """
        import atexit
        def late():
            try:
                store.read("001")
            except headrace.CancelledError as error:
                print("refused:", "going down" in str(error))
        atexit.register(late)  # before headrace's own, so it runs after it
        from in_child import *
        store = open_store()
        use(store)
        """,
        server.url,
    )
    assert out == "refused: True\n"


def test_exit_while_a_token_service_hangs(run_child: RunChild, server: FaultServer) -> None:
    run_child(
        HEAD
        + """
    import socket
    metadata = socket.create_server(("127.0.0.1", 0))  # accepts, and says nothing
    os.environ["GCE_METADATA_HOST"] = "127.0.0.1:%d" % metadata.getsockname()[1]
    os.environ["GCE_METADATA_IP"] = os.environ["GCE_METADATA_HOST"]
    os.environ["CLOUDSDK_CONFIG"] = "/nonexistent"
    os.environ.pop("GOOGLE_APPLICATION_CREDENTIALS", None)
    waiting = open_store(credentials="google")
    threading.Thread(target=lambda: waiting.read("001"), daemon=True).start()
    asking, _ = metadata.accept()
    asking.detach(), metadata.detach()  # both stay open, without a warning at the end
        """,
        server.url,
        timeout_s=80,
    )


def test_shutdown_leaves_no_thread_and_no_socket(run_child: RunChild, server: FaultServer) -> None:
    run_child(
        """
        from in_child import *
        store = open_store()
        before = thread_names(), open_sockets()
        descriptors = []
        for _ in range(20):
            use(store)
            assert headrace_threads()
            headrace.shutdown()
            after = thread_names(), open_sockets()
            assert after == before, (before, after)
            descriptors.append(len(os.listdir("/proc/self/fd")))
        assert len(set(descriptors)) == 1, descriptors  # what a stopped engine keeps, it keeps once
        """,
        server.url,
    )
    wait_until_closed(server)


def test_shutdown_ends_what_others_wait_for(run_child: RunChild, server: FaultServer) -> None:
    run_child(
        HEAD
        + """
    caught = []
    def read():
        try:
            store.read("stalls")
        except headrace.CancelledError as error:
            caught.append(error.url)
    thread = threading.Thread(target=read)
    thread.start()
    wait_for_stall()
    headrace.shutdown()
    thread.join()
    assert caught == ["gs://bucket/stalls"], caught
    use(store)
        """,
        server.url,
    )


def test_batches_that_a_script_still_has_at_its_end_are_no_leak(
    run_child: RunChild, tmp_path: Path
) -> None:
    for i in range(20):
        (tmp_path / f"data/{i:02d}").parent.mkdir(exist_ok=True)
        (tmp_path / f"data/{i:02d}").write_bytes(bytes(100))
    run_child(
        """
        import sys
        import torch
        from headrace.torch import Loader, MapDataset
        weight = torch.ones(100_000, requires_grad=True)
        for straight in Loader(MapDataset(sys.argv[1]), 10):
            part = straight[0]
        large = MapDataset(sys.argv[1], lambda sample: sample.tensor().float().repeat(1000))
        for batch in Loader(large, 10):
            parts, loss = batch.unbind(), (batch * weight).sum()
        """,
        tmp_path / "data",
    )
