"""Whatever a user's function raises, on a thread of ours or not, arrives or is told."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import checkpoint
from headrace._base.background import InOrder
from headrace._base.contexts import context
from headrace._base.errors import add_note, notes_of, portable, text_of
from headrace.fsspec import FolderFileSystem
from testing.faultserver.client import FaultServer
from tests.awkward_errors import AWKWARD, ORDINARY, raiser
from tests.shards.tars import tar

PACKAGE = Path(__file__).parents[2] / "python" / "headrace"


def arrives(error: type[BaseException], call: Callable[[], object]) -> None:
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error


@pytest.mark.parametrize("error", AWKWARD)
def test_an_error_of_a_function_that_is_told_of_progress_arrives(
    tmp_path: Path, error: type[BaseException]
) -> None:
    function: Any = raiser(error)
    store = headrace.Store(tmp_path)
    store.write("a/a.tar", tar([("0.txt", b"zero")]))
    torch, url = pytest.importorskip("torch"), f"{tmp_path}/a.pt"
    arrives(error, lambda: store.index(progress=function))
    arrives(error, lambda: headrace.index_members(f"{tmp_path}/a/", progress=function))
    state = {"a": torch.zeros(3)}
    arrives(error, lambda: checkpoint.save(state, url, progress=function))
    checkpoint.save(state, url)
    arrives(error, lambda: checkpoint.load(url, progress=function))


@pytest.mark.parametrize("error", AWKWARD)
def test_an_error_of_a_function_of_errors_arrives(
    tmp_path: Path, error: type[BaseException]
) -> None:
    store = headrace.Store(tmp_path)
    store.write("a/a.tar", b"no tar" * 500)
    arrives(error, lambda: headrace.index_members(f"{tmp_path}/a/", on_error=raiser(error)))


@pytest.mark.parametrize("error", [each for each in AWKWARD if each is not SystemExit])
def test_an_error_of_a_function_that_packs_on_threads_arrives_or_is_left_out(
    tmp_path: Path, error: type[BaseException]
) -> None:
    source = headrace.Store(f"{tmp_path}/in")
    source.write("0.txt", b"zero")

    def pack(**options: Any) -> headrace.Packed:
        out = f"{tmp_path}/{len(os.listdir(tmp_path))}"
        return headrace.pack(f"{tmp_path}/in", out, executor="threads", **options)

    arrives(error, lambda: pack(transform=raiser(error)))
    arrives(error, lambda: pack(progress=raiser(error)))
    if issubclass(error, Exception):
        assert pack(transform=raiser(error), on_error="skip").samples == 0


@pytest.mark.soak  # it starts processes; `portable` is what they use
def test_an_error_that_no_process_can_send_says_what_it_was(tmp_path: Path) -> None:
    headrace.Store(f"{tmp_path}/in").write("0.txt", b"zero")
    how: dict[str, Any] = {"executor": "processes", "workers": 1}
    with pytest.raises(headrace.HeadraceError, match="FrozenNeverError: "):
        headrace.pack(f"{tmp_path}/in", f"{tmp_path}/out", transform=raiser_of_a_module, **how)


def raiser_of_a_module(sample: object) -> object:
    return raiser(ORDINARY[-1])(sample)


@pytest.mark.parametrize("error", AWKWARD)
def test_an_error_of_work_in_the_background_arrives(error: type[BaseException]) -> None:
    work = InOrder("test")
    work.submit(raiser(error))
    arrives(error, work.close)


@pytest.mark.parametrize("error", [*AWKWARD, StopIteration, TimeoutError])
def test_an_error_of_fsspec_s_callback_arrives_and_the_loop_goes_on(
    tmp_path: Path, error: type[BaseException]
) -> None:
    from fsspec.callbacks import Callback

    class Told(Callback):  # type: ignore[misc]
        def branched(self, path_1: str, path_2: str, **_: Any) -> Callback:
            return self

        def relative_update(self, inc: int = 1) -> None:
            raiser(error)()

        def set_size(self, size: int) -> None:
            if sys._getframe(1).f_code.co_name in ("get_file", "put_file"):
                raiser(error)()

    fs = FolderFileSystem()
    (tmp_path / "a").write_bytes(b"a")
    wanted = RuntimeError if error is StopIteration else error  # as a coroutine has it
    arrives(wanted, lambda: fs.get(f"{tmp_path}/a", f"{tmp_path}/b", callback=Told()))
    arrives(wanted, lambda: fs.put(f"{tmp_path}/a", f"{tmp_path}/b", callback=Told()))
    arrives(error, lambda: fs.get_file(f"{tmp_path}/a", f"{tmp_path}/b", callback=Told()))
    assert not (tmp_path / "b").exists()
    fs.copy(f"{tmp_path}/a", f"{tmp_path}/c")
    assert (tmp_path / "c").read_bytes() == b"a"


@pytest.mark.parametrize("error", AWKWARD)
def test_an_error_of_credentials_is_told_and_the_next_ones_are_made(
    server: FaultServer, error: type[BaseException]
) -> None:
    class Source:
        valid, token, expiry = False, None, None
        is_broken = True

        def refresh(self, _: object) -> None:
            if self.is_broken:
                raise error("a text")
            self.token, self.valid = "T1", True

    server.put("bucket", "a", b"hello")
    source: Any = Source()
    store = headrace.Store("gs://bucket", endpoint=server.url, credentials=source)
    with pytest.raises(headrace.PermissionDeniedError, match="the credentials failed: "):
        store.read("a")
    [thread] = [t for t in threading.enumerate() if t.name == "headrace-credentials"]
    assert thread.is_alive()
    source = Source()
    source.is_broken = False
    store = headrace.Store("gs://bucket", endpoint=server.url, credentials=source)
    assert store.read("a").bytes() == b"hello"


@pytest.mark.parametrize("error", AWKWARD)
def test_a_note_that_cannot_be_added_is_left_out(error: type[BaseException]) -> None:
    raised = error("a text")
    add_note(raised, "a note")
    assert notes_of(raised) in ([], ["a note"])
    assert isinstance(text_of(raised), str)
    assert isinstance(portable(raised), Exception)


@pytest.mark.parametrize("error", [*AWKWARD, StopIteration, GeneratorExit])
def test_an_error_passes_through_a_context_as_it_is(error: type[BaseException]) -> None:
    left = []

    @context
    def given() -> Any:
        try:
            yield 1
        finally:
            left.append(1)

    def use() -> None:
        with given() as value:
            assert value == 1
            raiser(error)()

    arrives(error, use)
    assert left == [1]


def test_only_one_place_does_to_exceptions_what_their_classes_may_refuse() -> None:
    refused = re.compile(r"\.add_note\(|__notes__|\bcontextmanager\b|\.with_traceback\(")
    allowed = {"errors.py", "_error_notes.py", "contexts.py", "_raising.py"}
    found = [
        f"{file.relative_to(PACKAGE)}: {line.strip()}"
        for file in sorted(PACKAGE.rglob("*.py"))
        if file.name not in allowed
        for line in file.read_text().splitlines()
        if refused.search(line)
    ]
    assert found == []
