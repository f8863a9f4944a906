"""Whatever a user's code raises in a plugin or a strategy arrives, on every rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace._base.errors import text_of, travels
from headrace.lightning import AsyncCheckpointIO
from headrace.lightning import _strategies as strategies
from tests.awkward_errors import AWKWARD, raiser


class Rank(strategies._AtAnyUrl):
    """One of two ranks of a strategy, without Lightning: only what they tell each other."""

    def __init__(self, is_global_zero: bool, told: list[Any]) -> None:
        self.is_global_zero = is_global_zero
        self.told = told

    def broadcast(self, value: Any) -> Any:  # type: ignore[override]
        if self.is_global_zero:
            self.told.append(value)
        return self.told[-1]


@pytest.mark.parametrize("error", AWKWARD)
def test_an_error_of_rank_zero_is_every_ranks_error(error: type[BaseException]) -> None:
    told: list[Any] = []
    with pytest.raises(error) as caught:
        Rank(True, told)._by_rank_zero(raiser(error))
    assert type(caught.value) is error
    [sent] = told
    assert travels(sent)
    with pytest.raises(Exception) as caught:  # whichever was sent
        Rank(False, told)._by_rank_zero(raiser(AssertionError))
    assert caught.value is sent
    assert type(sent) is error or text_of(sent).startswith(f"{error.__name__}: ")


def test_the_result_of_rank_zero_stays_there() -> None:
    told: list[Any] = []
    assert Rank(True, told)._by_rank_zero(lambda: 3) == 3
    assert Rank(False, told)._by_rank_zero(raiser(AssertionError)) is None


@pytest.mark.parametrize("error", AWKWARD)
def test_an_error_of_another_plugin_in_the_background_arrives_once(
    tmp_path: Path, error: type[BaseException]
) -> None:
    class Plugin:
        save_checkpoint = staticmethod(raiser(error))

        def teardown(self) -> None:
            pass

    plugin = AsyncCheckpointIO(Plugin())
    plugin.save_checkpoint({"a": 1}, f"{tmp_path}/a.ckpt")
    with pytest.raises(error) as caught:
        plugin.teardown()
    assert type(caught.value) is error
    plugin.teardown()


@pytest.mark.parametrize("error", AWKWARD)
def test_an_error_of_a_value_that_is_saved_arrives(
    tmp_path: Path, error: type[BaseException]
) -> None:
    class Value:
        __reduce__ = raiser(error)

    plugin = AsyncCheckpointIO()

    def save() -> None:
        plugin.save_checkpoint({"a": Value()}, f"{tmp_path}/a.ckpt")
        plugin.teardown()

    with pytest.raises(error) as caught:
        save()
    assert type(caught.value) is error
    assert not (tmp_path / "a.ckpt").exists()
