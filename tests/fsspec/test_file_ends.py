"""However a file was opened and however it ends: whole by a close without an error, or nothing."""

from __future__ import annotations

import bz2
import contextlib
import gc
import gzip
import io
import lzma
import os
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import numpy
import pyarrow.fs
import pyarrow.parquet
import pytest

import headrace
from headrace.fsspec import FolderFileSystem
from testing.faultserver.client import FaultServer
from tests.conftest import Child
from tests.fsspec.conftest import Place

# What is given up is logged, and a warning besides.
pytestmark = pytest.mark.filterwarnings("ignore:.*given up:ResourceWarning")


class MishapError(Exception):
    pass


@dataclass(frozen=True)
class Target:
    """A file in an empty folder."""

    folder: Path

    @property
    def path(self) -> str:
        return str(self.folder / "a")

    @property
    def url(self) -> str:
        return f"headrace+file://{self.path}"

    def found(self) -> bytes | None:
        names = [each.name for each in self.folder.iterdir()]
        assert names in ([], ["a"])  # and nothing beside it
        return (self.folder / "a").read_bytes() if names else None


def _unzipped(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read("file")


def _as_it_is(data: bytes) -> bytes:
    return data


@dataclass(frozen=True)
class Way:
    """How a file is opened."""

    open: Callable[[Target], Any]
    is_text: bool = False
    decoded: Callable[[bytes], bytes] = _as_it_is
    is_own: bool = True  # of headrace, up to the outermost layer

    @property
    def data(self) -> Any:
        return "half" if self.is_text else b"half"


def _fs() -> FolderFileSystem:
    return FolderFileSystem()


WAYS = {
    "headrace.open": Way(lambda at: headrace.open(at.path, "wb")),
    "headrace.open, text over it": Way(
        lambda at: io.TextIOWrapper(headrace.open(at.path, "wb")), is_text=True, is_own=False
    ),
    "headrace.open, a buffer over it": Way(
        lambda at: io.BufferedWriter(headrace.open(at.path, "wb")),
        is_own=False,
    ),
    "headrace.open, text over a buffer": Way(
        lambda at: io.TextIOWrapper(io.BufferedWriter(headrace.open(at.path, "wb"))),
        is_text=True,
        is_own=False,
    ),
    "fs": Way(lambda at: _fs().open(at.path, "wb")),
    "fs, text": Way(lambda at: _fs().open(at.path, "w"), is_text=True),
    "fs, gzip": Way(
        lambda at: _fs().open(at.path, "wb", compression="gzip"), False, gzip.decompress
    ),
    "fs, bz2 text": Way(
        lambda at: _fs().open(at.path, "w", compression="bz2"), True, bz2.decompress
    ),
    "fs, zip": Way(lambda at: _fs().open(at.path, "wb", compression="zip"), False, _unzipped),
    "OpenFile": Way(lambda at: fsspec.open(at.url, "wb").open()),
    "OpenFile, text": Way(lambda at: fsspec.open(at.url, "w").open(), is_text=True, is_own=False),
    "OpenFile, xz": Way(
        lambda at: fsspec.open(at.url, "wb", compression="xz").open(), False, lzma.decompress
    ),
    "OpenFile, zip": Way(
        lambda at: fsspec.open(at.url, "wb", compression="zip").open(), False, _unzipped
    ),
    "OpenFile, gzip text": Way(
        lambda at: fsspec.open(at.url, "w", compression="gzip").open(),
        True,
        gzip.decompress,
        is_own=False,
    ),
    "pyarrow": Way(
        lambda at: pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(_fs())).open_output_stream(
            at.path, compression=None
        ),
        is_own=False,
    ),
}  # fmt: skip


# ---- how it ends


def close(way: Way, target: Target) -> None:
    file = way.open(target)
    file.write(way.data)
    file.close()
    file.close()


def leave_with(way: Way, target: Target) -> None:
    with way.open(target) as file:
        file.write(way.data)


def leave_with_after_close(way: Way, target: Target) -> None:
    with way.open(target) as file:
        file.write(way.data)
        file.close()


def open_and_close_in_a_handler(way: Way, target: Target) -> None:
    try:
        raise MishapError
    except MishapError:
        file = way.open(target)
        file.write(way.data)
        file.close()


def open_in_a_nested_handler(way: Way, target: Target) -> None:
    try:
        raise MishapError
    except MishapError:
        try:
            raise KeyError
        except KeyError:
            file = way.open(target)
        file.write(way.data)
        file.close()


def close_after_another_handler(way: Way, target: Target) -> None:
    file = way.open(target)
    with contextlib.suppress(MishapError):
        raise MishapError
    file.write(way.data)
    file.close()


def raise_in_with(way: Way, target: Target) -> None:
    with contextlib.suppress(MishapError), way.open(target) as file:
        file.write(way.data)
        raise MishapError


def raise_in_closing(way: Way, target: Target) -> None:
    with contextlib.suppress(MishapError), contextlib.closing(way.open(target)) as file:
        file.write(way.data)
        raise MishapError


def raise_in_a_stack(way: Way, target: Target) -> None:
    with contextlib.suppress(MishapError), contextlib.ExitStack() as stack:
        file = way.open(target)
        stack.callback(file.close)
        file.write(way.data)
        raise MishapError


def close_in_finally(way: Way, target: Target) -> None:
    file = way.open(target)
    with contextlib.suppress(MishapError):
        try:
            file.write(way.data)
            raise MishapError
        finally:
            file.close()


def close_in_except(way: Way, target: Target) -> None:
    file = way.open(target)
    try:
        file.write(way.data)
        raise MishapError
    except MishapError:
        file.close()


def close_in_another_handler(way: Way, target: Target) -> None:
    try:
        raise MishapError
    except MishapError:
        file = way.open(target)
        try:
            file.write(way.data)
            raise KeyError from None
        except KeyError:
            file.close()


def raise_the_same_again(way: Way, target: Target) -> None:
    with contextlib.suppress(MishapError):
        try:
            raise MishapError
        except MishapError as error:
            with contextlib.closing(way.open(target)) as file:
                file.write(way.data)
                raise error


def raise_with_it_open(way: Way, target: Target) -> None:
    def fail() -> None:
        file = way.open(target)
        file.write(way.data)
        raise MishapError

    with contextlib.suppress(MishapError):
        fail()


def drop(way: Way, target: Target) -> None:
    file = way.open(target)
    file.write(way.data)


def drop_after_flush(way: Way, target: Target) -> None:
    file = way.open(target)
    file.write(way.data)
    file.flush()


def drop_unwritten(way: Way, target: Target) -> None:
    way.open(target)


def drop_in_a_handler(way: Way, target: Target) -> None:
    try:
        raise MishapError
    except MishapError:
        drop(way, target)


def drop_a_cycle(way: Way, target: Target) -> None:
    file = way.open(target)
    file.write(way.data)
    cycle: list[Any] = [file]
    cycle.append(cycle)
    del file, cycle
    gc.collect()


def drop_a_generator(way: Way, target: Target) -> None:
    def write() -> Iterator[None]:
        with contextlib.closing(way.open(target)) as file:
            file.write(way.data)
            yield
            file.write(way.data)

    next(write())


def drop_a_generator_in_its_with(way: Way, target: Target) -> None:
    def write() -> Iterator[None]:
        with way.open(target) as file:
            file.write(way.data)
            yield
            file.write(way.data)

    next(write())


def interrupt_in_with(way: Way, target: Target) -> None:
    with contextlib.suppress(KeyboardInterrupt), way.open(target) as file:
        file.write(way.data)
        raise KeyboardInterrupt


WHOLE_ENDS = [
    close,
    leave_with,
    leave_with_after_close,
    open_and_close_in_a_handler,
    open_in_a_nested_handler,
    close_after_another_handler,
]
HALF_ENDS = [
    raise_in_with,
    raise_in_closing,
    raise_in_a_stack,
    close_in_finally,
    close_in_except,
    close_in_another_handler,
    raise_the_same_again,
    raise_with_it_open,
    drop,
    drop_after_flush,
    drop_unwritten,
    drop_in_a_handler,
    drop_a_cycle,
    drop_a_generator,
    drop_a_generator_in_its_with,
    interrupt_in_with,
]
# Of these the file is told by an ``__exit__`` of its own, and its user sees the exception.
_SILENT = [raise_in_with]


@pytest.mark.parametrize("end", WHOLE_ENDS)
@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
def test_a_file_that_is_closed_without_an_error_is_whole(
    tmp_path: Path, way: Way, end: Callable[[Way, Target], None], caplog: pytest.LogCaptureFixture
) -> None:
    for before in (None, b"before"):
        target = Target(tmp_path)
        if before is not None:
            (tmp_path / "a").write_bytes(before)
        end(way, target)
        found = target.found()
        assert found is not None
        assert way.decoded(found) == b"half"
    assert caplog.text == ""


@pytest.mark.parametrize("end", HALF_ENDS)
@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
def test_a_file_that_ends_otherwise_leaves_what_was_there_and_says_so(
    tmp_path: Path, way: Way, end: Callable[[Way, Target], None], caplog: pytest.LogCaptureFixture
) -> None:
    target = Target(tmp_path)
    end(way, target)
    assert target.found() is None
    (tmp_path / "a").write_bytes(b"before")
    end(way, target)
    assert target.found() == b"before"
    if end not in _SILENT:
        assert caplog.text.count("given up") == 2, caplog.text


@pytest.mark.parametrize("end", HALF_ENDS)
@pytest.mark.parametrize("name", ["fs", "fs, text", "fs, gzip", "OpenFile, text", "OpenFile, zip"])
def test_a_file_of_a_transaction_that_ends_otherwise_is_no_part_of_it(
    tmp_path: Path, name: str, end: Callable[[Way, Target], None]
) -> None:
    target, fs = Target(tmp_path), _fs()
    with contextlib.suppress(ValueError), fs.transaction:  # of one that was never closed
        end(WAYS[name], target)
    assert target.found() is None


@pytest.mark.parametrize("name", ["fs", "fs, text", "fs, gzip", "OpenFile, text", "OpenFile, zip"])
def test_a_file_of_a_transaction_is_whole_at_its_end(tmp_path: Path, name: str) -> None:
    way, target = WAYS[name], Target(tmp_path)
    with _fs().transaction:
        close(way, target)
        assert target.found() is None
    found = target.found()
    assert found is not None
    assert way.decoded(found) == b"half"


def test_a_file_that_fails_with_the_transaction_of_another_thread_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def write() -> None:
        close(WAYS["fs"], Target(tmp_path))

    with contextlib.suppress(MishapError), _fs().transaction:
        close(WAYS["fs"], Target(tmp_path))
        assert caplog.text == ""
        other = threading.Thread(target=write)
        other.start()
        other.join()
        raise MishapError
    assert Target(tmp_path).found() is None
    assert caplog.text.count("/a is given up with its transaction, which has failed") == 1


def test_a_with_in_a_handler_makes_whole_what_was_opened_before(tmp_path: Path) -> None:
    for way in WAYS.values():
        if not way.is_own:
            continue
        file = way.open(Target(tmp_path))
        try:
            raise MishapError
        except MishapError:
            with file:
                file.write(way.data)
        found = Target(tmp_path).found()
        assert found is not None
        assert way.decoded(found) == b"half"


@pytest.mark.parametrize("mode", ["wb", "w"])
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_an_exception_in_a_with_of_fsspecs_leaves_what_was_there(
    tmp_path: Path, mode: str, compression: str | None
) -> None:
    (tmp_path / "a").write_bytes(b"before")
    data: Any = "half" if mode == "w" else b"half"
    opened = fsspec.open(Target(tmp_path).url, mode, compression=compression)
    with contextlib.suppress(MishapError), opened as file:
        file.write(data)
        raise MishapError
    assert Target(tmp_path).found() == b"before"
    with opened as file:
        file.write(data)
    found = Target(tmp_path).found()
    assert found is not None
    assert (found if compression is None else gzip.decompress(found)) == b"half"


def test_files_that_are_open_when_the_interpreter_ends_leave_what_was_there(
    tmp_path: Path, run_child: Child
) -> None:
    for name in ("1", "2", "3", "4", "5"):
        (tmp_path / name).write_bytes(b"before")
    script = """
        import io, sys
        import fsspec, headrace, headrace.fsspec
        headrace.fsspec.register()
        at = sys.argv[1]
        files = [
            io.TextIOWrapper(headrace.open(f"{at}/1", "wb")),
            headrace.fsspec.FolderFileSystem().open(f"{at}/2", "w"),
            fsspec.open(f"headrace+file://{at}/3", "w").open(),
            fsspec.open(f"headrace+file://{at}/4", "w", compression="gzip").open(),
            headrace.fsspec.FolderFileSystem().open(f"{at}/5", "w", compression="bz2"),
        ]
        for file in files:
            file.write("half")
    """
    run_child(script, str(tmp_path))
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == dict.fromkeys(
        ("1", "2", "3", "4", "5"), b"before"
    )


def test_a_forked_child_leaves_alone_what_it_drops_and_says_nothing(
    tmp_path: Path, run_child: Child
) -> None:
    script = """
        import gc, io, logging, os, sys
        import fsspec, headrace, headrace.fsspec
        headrace.fsspec.register()
        at = sys.argv[1]
        files = [
            io.TextIOWrapper(headrace.open(f"{at}/1", "wb")),
            fsspec.open(f"headrace+file://{at}/2", "w", compression="gzip").open(),
        ]
        for file in files:
            file.write("whole")
        pid = os.fork()
        if pid == 0:
            told = []
            logging.getLogger("headrace").addHandler(logging.NullHandler())
            logging.getLogger("headrace").addFilter(told.append)
            del file
            files.clear()
            gc.collect()
            os._exit(len(told))
        assert os.waitpid(pid, 0)[1] == 0
        for file in files:
            file.close()
    """
    run_child(script, str(tmp_path))
    assert (tmp_path / "1").read_bytes() == b"whole"
    assert gzip.decompress((tmp_path / "2").read_bytes()) == b"whole"


# ---- what was refused, and what failed


def _refuse(file: Any, call: Callable[[Any], Any]) -> None:
    with pytest.raises(io.UnsupportedOperation):  # and it is dropped, as a library in C does
        call(file)


REFUSED = [
    lambda file: file.seek(0),
    lambda file: file.seek(1),
    lambda file: file.seek(-1, os.SEEK_CUR),
    lambda file: file.seek(-4, os.SEEK_END),
    lambda file: file.truncate(0),
    lambda file: file.truncate(100),
]


@pytest.mark.parametrize("name", [name for name, way in WAYS.items() if way.is_own])
@pytest.mark.parametrize("end", ["close", "with", "transaction"])
def test_a_call_that_was_refused_and_forgotten_is_raised_by_close(
    tmp_path: Path, name: str, end: str
) -> None:
    (tmp_path / "a").write_bytes(b"before")
    way = WAYS[name]
    for call in REFUSED:
        in_transaction = end == "transaction" and name != "headrace.open"
        with _fs().transaction if in_transaction else contextlib.nullcontext():
            file = way.open(Target(tmp_path))
            file.write(way.data)
            _refuse(file, call)
            for _ in range(2):  # what comes later is refused at once
                with contextlib.suppress(io.UnsupportedOperation):
                    file.write(way.data)
                    file.flush()
            with pytest.raises(io.UnsupportedOperation, match="from its beginning to its end"):
                file.__exit__(None, None, None) if end == "with" else file.close()
            if not way.is_text:
                assert file.closed
            file.close()
        assert Target(tmp_path).found() == b"before"


def _stay(file: Any, where: int) -> None:
    for call in (
        lambda: file.seek(where),
        lambda: file.seek(0, os.SEEK_CUR),
        lambda: file.seek(0, os.SEEK_END),
    ):
        with pytest.raises(io.UnsupportedOperation):
            call()
    assert file.truncate() == file.truncate(where) == where


def test_a_call_that_changes_nothing_is_harmless_and_so_is_one_that_every_file_refuses(
    tmp_path: Path,
) -> None:
    for way in WAYS.values():
        if not way.is_own:
            continue
        with way.open(Target(tmp_path)) as file:
            _stay(file, 0)
            file.write(way.data)
            assert file.tell() == 4
            _stay(file, 4)
            with pytest.raises(TypeError):
                file.write(b"" if way.is_text else "text")
            with pytest.raises(io.UnsupportedOperation):
                file.read()
        found = Target(tmp_path).found()
        assert found is not None
        assert way.decoded(found) == b"half"


def test_libraries_that_find_out_by_an_error_what_a_file_can_do_write_it_whole(
    tmp_path: Path,
) -> None:
    with headrace.open(Target(tmp_path).path, "wb") as file:
        numpy.savetxt(file, numpy.arange(3), fmt="%d")  # tries text first
    assert Target(tmp_path).found() == b"0\n1\n2\n"
    with (
        headrace.open(Target(tmp_path).path, "wb") as file,
        zipfile.ZipFile(file, "w") as archive,  # tries a seek
    ):
        archive.writestr("file", b"half")
    assert _unzipped(Target(tmp_path).found() or b"") == b"half"


def test_a_write_that_failed_and_was_forgotten_is_raised_by_close(
    counted: Place, server: FaultServer
) -> None:
    server.put(counted.path, "a", b"before")
    server.faults([{"match": {"kind": "upload"}, "action": {"status": 403}}])
    some = os.urandom(2 << 20)
    options: dict[str, Any] = {"block_size": 64 << 10}
    opened: list[Callable[[], Any]] = [
        lambda: counted.fs.open(counted.at("a"), "wb", **options),
        lambda: counted.fs.open(counted.at("a"), "wb", compression="bz2", **options),
        lambda: io.BufferedWriter(counted.fs.open(counted.at("a"), "wb", **options)),
    ]
    for each in opened:
        for end in ("close", "with"):
            file = each()
            with contextlib.suppress(headrace.HeadraceError):
                for at in range(0, len(some), 64 << 10):
                    file.write(some[at : at + (64 << 10)])
            with pytest.raises(headrace.PermissionDeniedError):
                file.close() if end == "close" else file.__exit__(None, None, None)
            assert server.get(counted.path, "a") == b"before"
    server.faults([])
    assert server.names(counted.path) == ["a"]


# ---- what the guide says that a file cannot see


def test_a_close_after_the_handler_makes_a_file_visible(tmp_path: Path) -> None:
    file = headrace.open(Target(tmp_path).path, "wb")
    with contextlib.suppress(MishapError):
        file.write(b"half")
        raise MishapError
    file.close()
    assert Target(tmp_path).found() == b"half"


def test_a_close_by_another_thread_than_the_exceptions_makes_a_file_visible(
    tmp_path: Path,
) -> None:
    file = headrace.open(Target(tmp_path).path, "wb")
    try:
        file.write(b"half")
        raise MishapError
    except MishapError:
        thread = threading.Thread(target=file.close)
        thread.start()
        thread.join()
    assert Target(tmp_path).found() == b"half"


def test_a_close_by_a_library_whose_object_is_dropped_makes_a_file_visible(tmp_path: Path) -> None:
    columns = pyarrow.schema([("x", pyarrow.int64())])
    writer = pyarrow.parquet.ParquetWriter(Target(tmp_path).path, columns, filesystem=_fs())
    writer.write_table(pyarrow.table({"x": [1, 2]}))
    del writer
    assert Target(tmp_path).found() is not None


def test_what_a_text_layer_of_pythons_refuses_by_itself_is_not_seen(tmp_path: Path) -> None:
    file = io.TextIOWrapper(headrace.open(Target(tmp_path).path, "wb"))
    file.write("half")
    with pytest.raises(io.UnsupportedOperation):
        file.seek(0)
    file.close()
    assert Target(tmp_path).found() == b"half"


def test_what_a_layer_of_somebody_elses_fails_at_by_itself_is_not_seen(tmp_path: Path) -> None:
    with headrace.open(Target(tmp_path).path, "wb") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("file", b"half")
        with contextlib.suppress(FileNotFoundError):
            archive.write(tmp_path / "missing")
    found = Target(tmp_path).found()
    assert found is not None
    assert _unzipped(found) == b"half"


def test_what_a_layer_that_is_not_closed_has_kept_is_missing(tmp_path: Path) -> None:
    with headrace.open(Target(tmp_path).path, "wb") as file:
        layer = gzip.GzipFile(fileobj=file, mode="wb")
        layer.write(b"half")
    found = Target(tmp_path).found()
    assert found is not None
    with pytest.raises(EOFError):
        gzip.decompress(found)
    with contextlib.suppress(ValueError):  # the file below is closed
        layer.close()


def test_of_an_error_of_close_that_a_layer_drops_info_tells(tmp_path: Path) -> None:
    file = headrace.open(Target(tmp_path).path, "wb")
    file.write(b"half")
    with contextlib.suppress(io.UnsupportedOperation):
        file.seek(0)
    with contextlib.suppress(io.UnsupportedOperation):
        file.close()
    assert file.info is None
    assert Target(tmp_path).found() is None


def test_a_bare_raise_in_a_foreign_with_in_the_handler_that_opened_it_is_not_seen(
    tmp_path: Path,
) -> None:
    def report() -> None:
        try:
            raise MishapError
        except MishapError:
            with fsspec.open(Target(tmp_path).url, "wb") as file:
                file.write(b"half")
                raise

    with pytest.raises(MishapError):
        report()
    assert Target(tmp_path).found() == b"half"
