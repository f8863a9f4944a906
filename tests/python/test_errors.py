"""The exceptions, and the table between them and the engine's errors."""

from __future__ import annotations

import builtins
import copy
import errno
import os
import pickle
from pathlib import Path

import pytest

import headrace
from headrace import _engine
from headrace._base import errors

ALSO = {
    "InvalidArgumentError": "ValueError",
    "NotFoundError": "FileNotFoundError",
    "PermissionDeniedError": "PermissionError",
    "UnavailableError": "ConnectionError",
    "TimedOutError": "TimeoutError",
    "InternalError": "RuntimeError",
}
CODES = list(enumerate(_engine.error_codes()))
CLASSES = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize(("number", "row"), CODES)
def test_every_code_has_its_class(number: int, row: tuple[str, str]) -> None:
    text, class_name = row
    error = _engine.make_exception(
        number, "went wrong", url="gs://b/o", http_status=418, request_id="r1", attempts=3
    )
    assert type(error) is getattr(headrace, class_name)
    assert isinstance(error, headrace.HeadraceError)
    assert error.code == text
    assert (error.url, error.http_status, error.request_id) == ("gs://b/o", 418, "r1")
    assert error.attempts == 3
    assert str(error) == "gs://b/o: went wrong (HTTP 418, 3 attempts, request r1)"


def test_every_class_stands_for_one_code() -> None:
    assert sorted(name for _, (_, name) in CODES) == sorted(
        name for name in errors.__all__ if name != "HeadraceError"
    )


@pytest.mark.parametrize(
    ("cls", "number"),
    [
        (headrace.NotFoundError, errno.ENOENT),
        (headrace.PermissionDeniedError, errno.EACCES),
        (headrace.TimedOutError, errno.ETIMEDOUT),
    ],
)
def test_an_error_of_the_system_has_its_number_and_names_the_url(
    cls: type[headrace.HeadraceError], number: int
) -> None:
    error = cls("gs://b/o: it went wrong")
    error.url = "gs://b/o"
    for each in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert isinstance(each, OSError)
        assert (each.errno, each.filename) == (number, "gs://b/o")
        assert each.strerror == os.strerror(number)
        assert str(each) == "gs://b/o: it went wrong"


def test_a_missing_object_is_enoent(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    with pytest.raises(FileNotFoundError) as caught:
        store.read("nothing")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, store.url_of("nothing"))


def test_absent_facts_are_none() -> None:
    error = _engine.make_exception(1, "no such object")
    assert isinstance(error, headrace.HeadraceError)
    assert (error.url, error.http_status, error.request_id, error.attempts) == (None, None, None, 0)
    assert str(error) == "no such object"


@pytest.mark.parametrize("cls", CLASSES)
def test_a_class_is_built_from_one_string(cls: type[headrace.HeadraceError]) -> None:
    # What torch does with an exception of a DataLoader worker.
    error = cls("text")
    assert str(error) == "text"
    assert error.args == ("text",)
    assert not hasattr(error, "message")
    assert cls.__module__ == "headrace"
    if cls.__name__ in ALSO:
        assert isinstance(error, getattr(builtins, ALSO[cls.__name__]))


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("duplicate", [copy.copy, lambda e: pickle.loads(pickle.dumps(e))])
def test_instances_keep_their_attributes_when_copied(cls: type, duplicate: object) -> None:
    error = cls("text")
    error.url, error.http_status, error.attempts = "gs://b/o", 503, 7
    error.add_note("a note")
    again = duplicate(error)  # type: ignore[operator]
    assert type(again) is cls
    assert str(again) == "text"
    assert vars(again) == vars(error)


def test_torch_raises_a_workers_exception_again() -> None:
    utils = pytest.importorskip("torch._utils")
    try:
        raise headrace.NotFoundError("gs://b/o: no such object (HTTP 404, 1 attempt)")
    except headrace.NotFoundError:
        wrapper = utils.ExceptionWrapper(where="in a worker")
    with pytest.raises(headrace.NotFoundError, match="no such object"):
        wrapper.reraise()
