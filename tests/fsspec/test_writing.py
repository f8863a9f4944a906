"""What is written appears whole, or not at all, whoever closes the file."""

from __future__ import annotations

import asyncio
import bz2
import contextlib
import gc
import gzip
import io
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.asyn import get_loop

import headrace
from headrace.fsspec import GcsFileSystem
from testing.faultserver.client import FaultServer
from tests.fsspec.conftest import Place
from tests.waiting import wait_until

LARGE = bytes(range(256)) * (80 << 10)  # 20 MiB: more than a part


class MishapError(Exception):
    pass


def write_and_fail(opened: Any, data: Any) -> None:
    """Write into a file, and leave its ``with`` by an exception."""
    with opened as file:
        file.write(data)
        raise MishapError


def pipe_and_fail(place: Place) -> None:
    """Write two objects in a transaction, and leave it by an exception."""
    with place.fs.transaction:
        place.fs.pipe_file(place.at("a"), b"1")
        with place.fs.open(place.at("b"), "wb") as file:
            file.write(b"2")
        raise MishapError


# ---- whole, or not at all


@pytest.mark.parametrize("size", [0, 10, len(LARGE)])
def test_a_file_becomes_visible_by_close(place: Place, size: int) -> None:
    with place.fs.open(place.at("a"), "wb") as file:
        assert file.write(LARGE[:size]) == size
        assert file.tell() == size
        assert not place.fs.exists(place.at("a"))
        assert file.full_name == f"{place.url}/a"
    assert file.closed
    assert place.fs.cat_file(place.at("a")) == LARGE[:size]


def _by_its_own(place: Place, mode: str, **options: Any) -> Any:
    return place.fs.open(place.at("a"), mode, **options)


def _by_fsspec(place: Place, mode: str, **options: Any) -> Any:
    return fsspec.open(f"{place.url}/a", mode, **options, **place.options)


def _by_contextlib(place: Place, mode: str, **options: Any) -> Any:
    return contextlib.closing(place.fs.open(place.at("a"), mode, **options))


def _by_a_stack(place: Place, mode: str, **options: Any) -> Any:
    @contextlib.contextmanager
    def opened() -> Any:
        with contextlib.ExitStack() as stack:
            file = place.fs.open(place.at("a"), mode, **options)
            stack.callback(file.close) if mode == "wb" else stack.enter_context(file)
            yield file

    return opened()


WAYS = [_by_its_own, _by_fsspec, _by_contextlib, _by_a_stack]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("mode", "options"), [("wb", {}), ("w", {}), ("wb", {"compression": "gzip"}),
                          ("w", {"compression": "bz2"})]
)  # fmt: skip
def test_an_exception_in_a_with_leaves_nothing(
    place: Place, way: Callable[..., Any], mode: str, options: dict[str, Any]
) -> None:
    with pytest.raises(MishapError):
        write_and_fail(way(place, mode, **options), "text" if mode == "w" else LARGE)
    gc.collect()
    assert not place.fs.exists(place.at("a"))
    # And what was there stays.
    place.fs.pipe_file(place.at("a"), b"before")
    with pytest.raises(MishapError):
        write_and_fail(way(place, mode, **options), "text" if mode == "w" else b"bytes")
    assert place.fs.cat_file(place.at("a")) == b"before"


@pytest.mark.parametrize("way", WAYS)
def test_a_file_written_while_an_exception_is_handled_is_written(
    place: Place, way: Callable[..., Any]
) -> None:
    try:
        raise MishapError
    except MishapError:
        with way(place, "wb") as file:
            file.write(b"report")
    assert place.fs.cat_file(place.at("a")) == b"report"


def test_a_file_closed_by_hand_in_a_handler_that_did_not_open_it_leaves_nothing(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    file = place.fs.open(place.at("a"), "wb")
    try:
        raise MishapError
    except MishapError:
        file.write(b"fallback")
        file.close()
    assert file.closed
    assert not place.fs.exists(place.at("a"))
    assert "given up, since it was closed while MishapError was being handled" in caplog.text


class Reporter:
    """Writes a file when its ``with`` is left by an exception."""

    def __init__(self, place: Place, how: str) -> None:
        self._place, self._how = place, how

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._how == "with":
            with self._place.fs.open(self._place.at("a"), "wb") as file:
                file.write(b"report")
        elif self._how == "by hand":
            file = self._place.fs.open(self._place.at("a"), "wb", compression=None)
            file.write(b"report")
            file.close()
        else:
            with fsspec.open(f"{self._place.url}/a", "w", **self._place.options) as file:
                file.write("report")


@contextlib.contextmanager
def reporting(place: Place) -> Any:
    """The same, as a generator."""
    try:
        yield
    except MishapError:
        with place.fs.open(place.at("a"), "wb") as file:
            file.write(b"report")
        raise


@pytest.mark.parametrize("how", ["with", "by hand", "fsspec", "generator"])
def test_a_file_that_an_exit_writes_because_of_an_exception_is_written(
    counted: Place, how: str
) -> None:
    reporter = reporting(counted) if how == "generator" else Reporter(counted, how)
    with pytest.raises(MishapError), reporter:
        raise MishapError
    assert counted.fs.cat_file(counted.at("a")) == b"report"


def test_an_exception_in_a_with_of_a_file_that_an_exit_writes_leaves_nothing(
    counted: Place,
) -> None:
    class Reports:
        def __enter__(self) -> None:
            pass

        def __exit__(self, kind: object, error: object, trace: object) -> None:
            with fsspec.open(f"{counted.url}/a", "wb", **counted.options) as file:
                file.write(b"half of it")
                raise error  # type: ignore[misc]

    with pytest.raises(MishapError), Reports():
        raise MishapError
    assert not counted.fs.exists(counted.at("a"))


@pytest.mark.parametrize(("name", "read"), [("gzip", gzip.decompress), ("bz2", bz2.decompress)])
def test_compressed_files_are_whole(
    place: Place, name: str, read: Callable[[bytes], bytes]
) -> None:
    with place.fs.open(place.at("a"), "wb", compression=name) as file:
        assert file.write(b"bytes" * 1000) == 5000
    assert read(place.fs.cat_file(place.at("a"))) == b"bytes" * 1000
    with place.fs.open(place.at("a"), "rb", compression=name) as file:
        assert file.read() == b"bytes" * 1000
    with place.fs.open(place.at("b.gz"), "wt", compression="infer", encoding="utf-8") as file:
        file.write("täxt")
    assert gzip.decompress(place.fs.cat_file(place.at("b.gz"))).decode() == "täxt"
    with fsspec.open(f"{place.url}/c.gz", "wt", compression="infer", **place.options) as file:
        file.write("text")
    assert gzip.decompress(place.fs.cat_file(place.at("c.gz"))) == b"text"


def test_compressed_members_are_appended(place: Place) -> None:
    for data in (b"one", b"two"):
        with place.fs.open(place.at("a"), "ab", compression="gzip") as file:
            file.write(data)
    assert gzip.decompress(place.fs.cat_file(place.at("a"))) == b"onetwo"


def test_fsspecs_compressions_do_for_other_files_what_they_did(tmp_path: Path) -> None:
    headrace.fsspec.FolderFileSystem().open(str(tmp_path / "a"), "wb").close()
    held = dict(fsspec.compression.compr)
    headrace.fsspec.FolderFileSystem().open(str(tmp_path / "a"), "wb").close()
    assert held == fsspec.compression.compr  # laid over once
    for name in ("gzip", "bz2", "xz", "zip"):
        with fsspec.open(f"file://{tmp_path}/b", "w", compression=name) as file:
            file.write("text")
        with fsspec.open(f"headrace+file://{tmp_path}/b", "r", compression=name) as file:
            assert file.read() == "text"


@pytest.mark.parametrize(
    ("mode", "compression"), [("wb", None), ("w", None), ("wb", "gzip"), ("w", "gzip")]
)
def test_a_file_that_is_dropped_leaves_nothing(
    counted: Place, server: FaultServer, mode: str, compression: str | None
) -> None:
    file = counted.fs.open(counted.at("a"), mode, compression=compression)
    file.write("text" if mode == "w" else b"bytes")
    files = [file]
    del file
    with pytest.warns(ResourceWarning, match="given up"):
        files.clear()
    assert server.names(counted.path) == []


def test_a_write_that_fails_is_told_by_close_and_leaves_nothing(
    counted: Place, server: FaultServer
) -> None:
    server.faults([{"match": {"kind": "upload"}, "action": {"status": 403}}])
    file = counted.fs.open(counted.at("a"), "wb")
    file.write(b"bytes")
    with pytest.raises(PermissionError):
        file.close()
    with pytest.raises(PermissionError):
        counted.fs.pipe({counted.at("b"): b"1", counted.at("c"): b"2"})
    assert server.names(counted.path) == []


def test_a_file_being_written_does_not_pickle_and_does_not_seek(place: Place) -> None:
    with place.fs.open(place.at("a"), "wb") as file:
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(file)
        with pytest.raises(io.UnsupportedOperation):
            file.seek(0)
        file.write(b"1")


# ---- modes


def test_exclusive_writes_replace_nothing(place: Place) -> None:
    with place.fs.open(place.at("a"), "xb") as file:
        file.write(b"first")
    with pytest.raises(FileExistsError, match="exists already"):
        place.fs.open(place.at("a"), "xb")
    with pytest.raises(FileExistsError, match="exists already"):
        place.fs.pipe_file(place.at("a"), b"second", mode="create")
    # Two at a time: the one that is closed last is told.
    file = place.fs.open(place.at("b"), "x")
    file.write("mine")
    place.fs.pipe_file(place.at("b"), b"theirs")
    with pytest.raises(FileExistsError, match="exists already"):
        file.close()
    assert place.fs.cat(place.at("[ab]")) == {place.at("a"): b"first", place.at("b"): b"theirs"}


def test_appended_bytes_follow_those_before(place: Place) -> None:
    for text in ("a\n", "b\n"):
        with place.fs.open(place.at("log"), "a", newline="") as file:
            file.write(text)
    assert place.fs.cat_file(place.at("log")) == b"a\nb\n"
    place.fs.pipe_file(place.at("large"), LARGE)
    with place.fs.open(place.at("large"), "ab") as file:
        assert file.tell() == len(LARGE)
        file.write(b"end")
    assert place.fs.cat_file(place.at("large")) == LARGE + b"end"


def test_appending_loses_nothing_that_another_writer_has_appended(place: Place) -> None:
    place.fs.pipe_file(place.at("log"), b"1")
    file = place.fs.open(place.at("log"), "ab")
    file.write(b"2")
    place.fs.pipe_file(place.at("log"), b"1, and another writer's 2")
    with pytest.raises(headrace.PreconditionFailedError):
        file.close()
    assert place.fs.cat_file(place.at("log")) == b"1, and another writer's 2"


def test_other_modes_are_refused(place: Place) -> None:
    for mode in ("r+b", "w+b", "rwb", "q"):
        with pytest.raises(ValueError, match="mode is"):
            place.fs.open(place.at("a"), mode)


def test_touch_makes_an_empty_object(place: Place) -> None:
    place.fs.touch(place.at("a"))
    assert place.fs.info(place.at("a"))["size"] == 0


def test_a_folder_of_a_directory_cannot_be_written(tmp_path: Path) -> None:
    fs = headrace.fsspec.FolderFileSystem()
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        fs.open(str(tmp_path / "folder"), "wb")


# ---- transactions


def test_a_transaction_makes_all_of_it_visible_at_its_end(place: Place) -> None:
    with place.fs.transaction:
        with place.fs.open(place.at("a"), "wb") as file:
            file.write(LARGE)
        assert file.closed
        with pytest.raises(ValueError, match="waits for its transaction"):
            file.write(b"more")
        place.fs.pipe_file(place.at("b"), b"2")
        with place.fs.open(place.at("c.gz"), "wt", compression="gzip") as file:
            file.write("3")
        assert place.fs.find(place.path) == []
    assert place.fs.find(place.path) == [place.at(name) for name in ("a", "b", "c.gz")]
    assert place.fs.cat_file(place.at("a")) == LARGE
    assert gzip.decompress(place.fs.cat_file(place.at("c.gz"))) == b"3"
    place.fs.pipe_file(place.at("d"), b"4")  # and afterwards there is none
    assert place.fs.exists(place.at("d"))


def test_a_transaction_that_fails_leaves_nothing(place: Place) -> None:
    with pytest.raises(MishapError):
        pipe_and_fail(place)
    assert place.fs.find(place.path) == []
    # What failed by itself is not part of it.
    with place.fs.transaction:
        with contextlib.suppress(MishapError):
            write_and_fail(place.fs.open(place.at("a"), "wb"), b"half")
        place.fs.pipe_file(place.at("b"), b"2")
    assert place.fs.find(place.path) == [place.at("b")]


def test_a_transaction_that_cannot_publish_ends_and_gives_up_the_rest(place: Place) -> None:
    another = type(place.fs)(**place.options, skip_instance_cache=True)
    transaction = place.fs.start_transaction()
    transaction.start()
    for name in ("a", "b"):
        place.fs.pipe_file(place.at(name), b"mine", mode="create")
    held = list(transaction.files)
    another.pipe_file(place.at("a"), b"theirs")
    with pytest.raises(FileExistsError):
        place.fs.end_transaction()
    held[1].commit()  # does nothing: it was given up
    assert place.fs.find(place.path) == [place.at("a")]
    place.fs.pipe_file(place.at("c"), b"afterwards")
    assert another.cat_file(place.at("c")) == b"afterwards"


def test_a_file_that_was_not_closed_in_its_transaction_is_an_error(place: Place) -> None:
    def write_without_close() -> Any:
        with place.fs.transaction:
            file = place.fs.open(place.at("a"), "w")
            file.write("in the memory of the text file")
            return file

    with pytest.raises(ValueError, match="not closed before its transaction"):
        write_without_close()
    assert place.fs.find(place.path) == []


def test_a_transaction_in_another_one_is_part_of_it(place: Place) -> None:
    def write(name: str) -> None:
        with place.fs.open(place.at(name), "wb") as file:
            file.write(name.encode())

    with place.fs.transaction:
        write("outer")
        with place.fs.transaction:
            write("inner")
        with contextlib.suppress(MishapError), place.fs.transaction:
            write("failed")
            raise MishapError
        write("behind")
        assert place.fs.find(place.path) == []
    names = [place.at(each) for each in ("behind", "inner", "outer")]
    assert place.fs.find(place.path) == names
    with contextlib.suppress(MishapError), place.fs.transaction:
        with place.fs.transaction:
            write("another")
        raise MishapError
    assert place.fs.find(place.path) == names
    place.fs.start_transaction()
    write("without a with")
    assert not place.fs.exists(place.at("without a with"))
    place.fs.end_transaction()
    assert place.fs.exists(place.at("without a with"))


def test_threads_that_share_a_file_system_have_transactions_of_their_own(place: Place) -> None:
    """Each begins one before the other has ended its own, by every way to write."""
    both, first_ended = threading.Barrier(2), threading.Event()

    def write(name: str, *, fails: bool) -> None:
        with contextlib.suppress(MishapError), place.fs.transaction:
            place.fs.pipe(place.at(f"{name}/1"), b"1")
            both.wait(60)
            place.fs.pipe({place.at(f"{name}/{i}"): b"2" for i in (2, 3)})
            with place.fs.open(place.at(f"{name}/4"), "w") as file:
                file.write("4")
            both.wait(60)
            if fails:
                raise MishapError
            first_ended.wait(60)
        if fails:
            first_ended.set()

    threads = [
        threading.Thread(target=write, args=(name,), kwargs={"fails": name == "failed"})
        for name in ("failed", "whole")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert place.fs.find(place.path) == [place.at(f"whole/{i}") for i in (1, 2, 3, 4)]
    place.fs.pipe(place.at("after"), b"x")
    assert place.fs.exists(place.at("after"))


def test_a_transaction_of_a_generator_that_another_thread_drops_ends_alone(place: Place) -> None:
    def write() -> Iterator[None]:
        with place.fs.transaction:
            place.fs.pipe(place.at("dropped"), b"1")
            yield

    held = [write()]
    next(held[0])

    def drop() -> None:
        with place.fs.transaction:
            place.fs.pipe(place.at("kept"), b"2")
            held.clear()
            place.fs.pipe(place.at("too"), b"3")

    thread = threading.Thread(target=drop)
    thread.start()
    thread.join()
    assert place.fs.find(place.path) == [place.at("kept"), place.at("too")]
    place.fs.pipe(place.at("after"), b"4")
    assert place.fs.exists(place.at("after"))


# ---- coroutines that are cancelled


@pytest.mark.parametrize("verb", ["_pipe_file", "_pipe", "_put_file", "_put", "_cp_file", "_copy"])
def test_what_a_cancelled_coroutine_writes_does_not_come_later(
    counted: Place, server: FaultServer, tmp_path: Path, verb: str
) -> None:
    """A request that is to be repeated would replace what was written after the cancelling."""
    (tmp_path / "old").write_bytes(b"old")
    counted.fs.pipe(counted.at("old"), b"old")
    target = counted.at("a")
    arguments = {
        "_pipe_file": (target, b"old"),
        "_pipe": ({target: b"old"},),
        "_put_file": (str(tmp_path / "old"), target),
        "_put": ([str(tmp_path / "old")], [target]),
        "_cp_file": (counted.at("old"), target),
        "_copy": ([counted.at("old")], [target]),
    }
    fs = GcsFileSystem(asynchronous=True, skip_instance_cache=True, **counted.options)
    kinds = ["upload", "rewrite"]
    before = sum(entry["kind"] in kinds for entry in server.log())
    rule = {"match": {"kind": kinds}, "count": 1, "action": {"status": 503, "retry_after_s": 1}}

    async def run() -> None:
        server.faults([rule])
        task = asyncio.ensure_future(getattr(fs, verb)(*arguments[verb]))
        await asyncio.to_thread(wait_until, lambda: server.fault_counts()[0]["fired"])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sum(entry["kind"] in kinds for entry in server.log()) == before + 2
        await fs._pipe_file(target, b"new")

    asyncio.run(run())
    assert counted.fs.cat(target) == b"new"


@pytest.mark.parametrize("ends_by", ["an error of another one", "a signal"])
def test_what_is_put_beside_what_fails_does_not_come_later(
    counted: Place, server: FaultServer, tmp_path: Path, ends_by: str
) -> None:
    (tmp_path / "old").write_bytes(b"old")
    is_signal = ends_by == "a signal"
    late = {"match": {"kind": "upload"}, "count": 1, "action": {"status": 503, "retry_after_s": 1}}
    refused = {"match": {"kind": "upload"}, "count": 1, "action": {"status": 403}}
    server.faults([late] if is_signal else [late, refused])

    def interrupt(*_: object) -> None:
        raise MishapError

    def send_signal() -> None:
        wait_until(lambda: server.fault_counts()[0]["fired"] == 1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    sender = threading.Thread(target=send_signal)
    try:
        if is_signal:
            sender.start()
        with pytest.raises(MishapError if is_signal else PermissionError):
            counted.fs.put([str(tmp_path / "old")] * 2, [counted.at("a"), counted.at("b")])
    finally:
        if is_signal:
            sender.join()
        signal.signal(signal.SIGUSR1, before)
    # A signal may come before the second one has begun, which then does not.
    uploads = sum(entry["kind"] == "upload" for entry in server.log())
    assert uploads in ((2, 3) if is_signal else (3,))
    counted.fs.pipe(counted.at("a"), b"new")
    counted.fs.pipe(counted.at("b"), b"new")
    assert counted.fs.cat(counted.at("a")) == counted.fs.cat(counted.at("b")) == b"new"


def test_a_call_that_is_interrupted_before_it_has_begun_writes_nothing(place: Place) -> None:
    begins, is_interrupted = threading.Event(), threading.Event()
    loop: Any = get_loop()

    def interrupt(*_: object) -> None:
        raise MishapError

    def signal_once_a_call_waits_for_this_to_end() -> None:
        assert begins.wait(80)
        wait_until(lambda: bool(loop._ready))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        assert is_interrupted.wait(80)

    def call() -> None:
        begins.set()
        place.fs.pipe(place.at("a"), b"given up")

    loop.call_soon_threadsafe(signal_once_a_call_waits_for_this_to_end)
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(MishapError):
            call()
    finally:
        is_interrupted.set()
        signal.signal(signal.SIGUSR1, before)
    place.fs.pipe_file(place.at("b"), b"the next")
    assert not place.fs.exists(place.at("a"))


# ---- copies, moves, removals


def test_files_are_copied_both_ways_with_progress(place: Place, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(LARGE)
    told = fsspec.callbacks.Callback()
    place.fs.put_file(str(tmp_path / "in"), place.at("a"), callback=told)
    assert (told.size, told.value) == (len(LARGE), len(LARGE))
    told = fsspec.callbacks.Callback()
    place.fs.get_file(place.at("a"), tmp_path / "deep" / "out", callback=told)
    assert (told.size, told.value) == (len(LARGE), len(LARGE))
    assert (tmp_path / "deep" / "out").read_bytes() == LARGE
    place.fs.get_file(place.at("a"), target := io.BytesIO())
    assert target.getvalue() == LARGE
    with pytest.raises(FileNotFoundError):
        place.fs.get_file(place.at("missing"), tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(FileExistsError):
        place.fs.put_file(str(tmp_path / "in"), place.at("a"), mode="create")


def test_a_download_that_fails_leaves_the_file_that_was_there(
    counted: Place, server: FaultServer, tmp_path: Path
) -> None:
    server.put(counted.path, "a", LARGE)
    (tmp_path / "out").write_bytes(b"before")
    server.faults([{"match": {"kind": "media"}, "action": {"flip_byte": 5}}])
    with pytest.raises(headrace.CorruptDataError):
        counted.fs.get_file(counted.at("a"), str(tmp_path / "out"))
    assert [each.name for each in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_bytes() == b"before"


def test_the_service_copies_within_a_bucket(counted: Place, server: FaultServer) -> None:
    server.put(counted.path, "a", LARGE)
    begin = len(server.log())
    counted.fs.cp_file(counted.at("a"), counted.at("b"))
    assert "media" not in [entry["kind"] for entry in server.log()[begin:]]
    server.bucket("another")
    counted.fs.cp_file(counted.at("a"), "another/a")
    assert server.get("another", "a") == server.get(counted.path, "b") == LARGE
    with pytest.raises(FileNotFoundError):
        counted.fs.cp_file(counted.at("missing"), counted.at("c"))


def test_one_object_is_moved_by_a_rename(place: Place) -> None:
    place.fs.pipe_file(place.at("a"), b"1")
    place.fs.rename(place.at("a"), place.at("x/b"))
    assert place.fs.find(place.path) == [place.at("x/b")]
    place.fs.mv(place.at("x/b"), place.at("x/b"))
    place.fs.mv(place.at("x"), place.at("y"), recursive=True)
    assert place.fs.find(place.path) == [place.at("y/b")]
    with pytest.raises(FileNotFoundError):
        place.fs.mv(place.at("missing"), place.at("z"))


def _moved(place: Place, source: str, target: str) -> list[str]:
    """Move a folder of two objects, and return where there is what then."""
    place.fs.pipe({place.at("a/1"): b"1", place.at("a/b/2"): b"2"})
    # S3 refuses to copy an object to itself: an error, and nothing is lost.
    with contextlib.suppress(headrace.InvalidArgumentError):
        place.fs.mv(place.at(source), place.at(target), recursive=source == "a")
    found = place.fs.cat(place.path, recursive=True)
    return [f"{name.removeprefix(place.path)} {data.decode()}" for name, data in found.items()]


@pytest.mark.parametrize(
    ("source", "target", "there"),
    [
        ("a/1", "a", ["/a/1 1", "/a/b/2 2"]),
        ("a/1", "a/", ["/a/1 1", "/a/b/2 2"]),
        ("a", "", ["/a/1 1", "/a/b/2 2"]),
        ("a", "a", ["/a/1 1", "/a/b/2 2"]),
        ("a", "a/new", ["/a/new/1 1", "/a/new/b/2 2"]),
        ("a/1", "a/b", ["/a/b/1 1", "/a/b/2 2"]),
    ],
)
def test_what_is_moved_to_where_it_is_or_below_is_not_lost(
    place: Place, source: str, target: str, there: list[str]
) -> None:
    assert _moved(place, source, target) == there


def test_a_move_to_a_bucket_that_is_missing_deletes_nothing(counted: Place) -> None:
    names = ["a/1", "a/b/2", "c", "c/3"]  # c is an object and a folder
    counted.fs.pipe({counted.at(name): b"1" for name in names})
    for name in ("a", "c"):
        for is_recursive in (False, True):
            with pytest.raises((FileNotFoundError, IsADirectoryError)):
                counted.fs.mv(counted.at(name), f"missing/{name}", recursive=is_recursive)
        with pytest.raises(FileNotFoundError):
            counted.fs.copy(counted.at(name), f"missing/{name}", recursive=True)
    with pytest.raises(FileNotFoundError):
        counted.fs.cp_file(counted.at("c"), "missing/c")
    assert counted.fs.find(counted.path) == [counted.at(name) for name in names]


def test_a_move_of_so_many_levels_deletes_no_others(place: Place) -> None:
    place.fs.pipe({place.at(name): b"" for name in ("a/1", "a/2", "a/b/3")})
    place.fs.mv(place.at("a"), place.at("x"), recursive=True, maxdepth=1)
    assert place.fs.find(place.path) == [place.at(name) for name in ("a/b/3", "x/1", "x/2")]


def test_names_do_not_lead_out_of_the_folder_that_objects_are_copied_into(
    counted: Place, server: FaultServer, tmp_path: Path
) -> None:
    server.put(counted.path, "a/../../evil", b"1")
    into = tmp_path / "outer" / "inner"
    into.mkdir(parents=True)
    with pytest.raises(ValueError, match=r"outside|'\.\.'"):
        counted.fs.get(counted.at("a"), str(into / "new"), recursive=True)
    with pytest.raises(ValueError, match=r"'\.\.'"):
        counted.fs.get_file(counted.at("a/../../evil"), f"{into}/new/../../evil")
    assert [each.name for each in tmp_path.rglob("*") if each.is_file()] == []
    counted.fs.get_file(counted.at("a/../../evil"), str(into / "evil"))
    assert (into / "evil").read_bytes() == b"1"


def test_removals_are_of_what_was_named(place: Place) -> None:
    names = ["a/1", "a/2", "a/b/3", "ab", "c"]
    place.fs.pipe({place.at(name): b"" for name in names})
    with pytest.raises(IsADirectoryError):
        place.fs.rm(place.at("a"))
    with pytest.raises(FileNotFoundError):
        place.fs.rm(place.at("missing"))
    with pytest.raises(FileNotFoundError):
        place.fs.rm(place.at("missing"), recursive=True)
    assert place.fs.find(place.path) == [place.at(name) for name in names]
    place.fs.rm(place.at("a"), recursive=True)
    assert place.fs.find(place.path) == [place.at("ab"), place.at("c")]
    place.fs.rm([place.at("ab"), place.at("c")])
    assert place.fs.find(place.path) == []


def test_folders_of_buckets_need_not_be_made(counted: Place, server: FaultServer) -> None:
    begin = len(server.log())
    counted.fs.mkdir(counted.at("a"))
    counted.fs.makedirs(counted.at("a/b"), exist_ok=True)
    assert len(server.log()) == begin
    counted.fs.rmdir(counted.at("a"))
    counted.fs.pipe_file(counted.at("a/b"), b"")
    with pytest.raises(OSError, match="not empty"):
        counted.fs.rmdir(counted.at("a"))


def test_folders_of_a_directory_are_directories(tmp_path: Path) -> None:
    fs = headrace.fsspec.FolderFileSystem()
    fs.makedirs(str(tmp_path / "a" / "b"))
    with pytest.raises(FileExistsError):
        fs.makedirs(str(tmp_path / "a"))
    with pytest.raises(FileNotFoundError):
        fs.mkdir(str(tmp_path / "x" / "y"), create_parents=False)
    assert fs.isdir(str(tmp_path / "a" / "b"))
    assert fs.ls(str(tmp_path / "a" / "b")) == []
    assert fs.find(str(tmp_path), withdirs=True) == [
        str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")
    ]  # fmt: skip
    fs.rmdir(str(tmp_path / "a" / "b"))
    fs.rm(str(tmp_path / "a"), recursive=True)
    assert list(tmp_path.iterdir()) == []


def test_the_current_directory_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "above" / "here"
    here.mkdir(parents=True)
    (here / "a").touch()
    (tmp_path / "above" / "here2").mkdir()
    (tmp_path / "link").symlink_to(here)
    monkeypatch.chdir(here)
    fs = headrace.fsspec.FolderFileSystem()
    for path in ("", ".", "..", str(here), str(tmp_path), str(tmp_path / "link"), "/"):
        with pytest.raises(PermissionError, match="current directory"):
            fs._remove_all(fs._strip_protocol(path))
    # The test before was of what would do harm.
    with pytest.raises(PermissionError, match="current directory"):
        fs.rm("", recursive=True)
    fs.rm("../here2", recursive=True)
    assert [each.name for each in (tmp_path / "above").rglob("*")] == ["here", "a"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "UTF-16", "utf-32", "utf-16-le"])
def test_text_has_the_byte_order_mark_that_a_local_file_has(
    place: Place, tmp_path: Path, encoding: str
) -> None:
    for pieces in ([], [""], ["", "one\n", "two\n"], ["one\ntwo"]):
        local, name = tmp_path / "local", place.at("text")
        with open(local, "w", encoding=encoding) as file:
            file.writelines(pieces)
        with place.fs.open(name, "w", encoding=encoding) as file:
            file.writelines(pieces)
        assert place.fs.cat_file(name) == local.read_bytes()
        with place.fs.open(name, "r", encoding=encoding) as file:
            assert file.read() == "".join(pieces)


# ---- several at a time


def _fill(place: Place, *names: str) -> dict[str, bytes]:
    for name in names:
        place.fs.pipe_file(place.at(name), name.encode())
    return {name: name.encode() for name in names}


def _left(place: Place, *names: str) -> dict[str, bytes]:
    return {name: place.fs.cat_file(place.at(name)) for name in names}


@pytest.mark.parametrize("method", ["cp", "mv"])
@pytest.mark.parametrize(
    ("sources", "targets"),
    [
        (["p/x", "q/x"], ["e/1", "e/1"]),
        (["p/x", "q/x"], "e/"),
        (["p/x", "q/x"], ["q/x", "p/x"]),
        (["p/x", "q/x"], ["q/x", "e/2"]),
    ],
    ids=["one target", "one name", "swap", "chain"],
)
def test_what_would_lose_an_object_is_refused_before_anything_is_copied(
    place: Place, method: str, sources: list[str], targets: Any
) -> None:
    there = _fill(place, "p/x", "q/x")
    to = place.at("e") + "/" if isinstance(targets, str) else [place.at(each) for each in targets]
    with pytest.raises(headrace.InvalidArgumentError, match="nothing was copied"):
        getattr(place.fs, method)([place.at(each) for each in sources], to)
    assert _left(place, *there) == there
    assert not place.fs.exists(place.at("e"))


def test_two_files_are_not_got_or_put_to_one_place(place: Place, tmp_path: Path) -> None:
    _fill(place, "p/x", "q/x")
    with pytest.raises(headrace.InvalidArgumentError, match="nothing was copied"):
        place.fs.get([place.at("p/x"), place.at("q/x")], f"{tmp_path}/got/")
    assert not (tmp_path / "got").exists()
    for folder in ("p", "q"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x").write_bytes(b"")
    with pytest.raises(headrace.InvalidArgumentError, match="nothing was copied"):
        place.fs.put([f"{tmp_path}/p/x", f"{tmp_path}/q/x"], place.at("e") + "/")
    assert not place.fs.exists(place.at("e"))


def test_a_source_that_was_written_anew_after_its_copy_is_not_deleted(
    server: FaultServer,
) -> None:
    for name in ("1", "2"):
        server.put("bucket", name, b"old")
    fs = fsspec.filesystem("headrace+gs", endpoint=server.url, credentials="anonymous")
    delete = fs._delete_moved

    def write_before(copied: list[tuple[str, str]]) -> None:
        if copied[0][0].endswith("/1"):
            server.put("bucket", "1", b"new")
        delete(copied)

    fs._delete_moved = write_before
    try:
        with pytest.raises(headrace.PreconditionFailedError):
            fs.mv(["bucket/1", "bucket/2"], ["bucket/a", "bucket/b"])
    finally:
        del fs._delete_moved
    assert server.get("bucket", "1") == b"new"
    assert server.names("bucket") == ["1", "a", "b"]


@pytest.mark.parametrize("method", ["cp", "mv"])
def test_the_contents_of_a_folder_go_into_a_bucket_itself(server: FaultServer, method: str) -> None:
    for name in ("d/x", "d/e/y"):
        server.put("bucket", name, b"1")
    server.put("other", "z", b"")
    fs = fsspec.filesystem("headrace+gs", endpoint=server.url, credentials="anonymous")
    getattr(fs, method)("bucket/d/", "bucket/", recursive=True)
    assert {"x", "e/y"} <= set(server.names("bucket"))
    assert ("d/x" in server.names("bucket")) == (method == "cp")
    fs.cp("bucket/", "other/", recursive=True)
    assert {"x", "e/y", "z"} <= set(server.names("other"))
