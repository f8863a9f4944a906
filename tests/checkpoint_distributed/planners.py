"""Planners that do something at a point of a save or a load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner

__all__ = ["LoadsAfter", "SavesAfter", "raising"]


class SavesAfter(DefaultSavePlanner):
    """Calls a function before a method: ``SavesAfter(resolve_data=function)``.

    It is given the item's name before `resolve_data`, and nothing before the other methods.
    """

    def __init__(
        self,
        *,
        set_up_planner: Callable[[], object] | None = None,
        create_local_plan: Callable[[], object] | None = None,
        resolve_data: Callable[[str], object] | None = None,
    ) -> None:
        super().__init__()
        self._before_set_up = set_up_planner
        self._before_plan = create_local_plan
        self._before_data = resolve_data

    def set_up_planner(
        self, state_dict: Any, storage_meta: Any = None, is_coordinator: bool = False
    ) -> None:
        if self._before_set_up is not None:
            self._before_set_up()
        super().set_up_planner(state_dict, storage_meta, is_coordinator)

    def create_local_plan(self) -> Any:
        if self._before_plan is not None:
            self._before_plan()
        return super().create_local_plan()

    def resolve_data(self, write_item: Any) -> Any:
        if self._before_data is not None:
            self._before_data(write_item.index.fqn)
        return super().resolve_data(write_item)


class LoadsAfter(DefaultLoadPlanner):
    """The same for a load: ``LoadsAfter(resolve_tensor=function)``."""

    def __init__(self, *, resolve_tensor: Callable[[str], object]) -> None:
        super().__init__()
        self._before_tensor = resolve_tensor

    def resolve_tensor(self, read_item: Any) -> Any:
        self._before_tensor(read_item.dest_index.fqn)
        return super().resolve_tensor(read_item)


def raising(error: BaseException, of: str | None = None) -> Callable[..., None]:
    """Return a function that raises `error`; given `of`, only for the item of that name."""

    def function(*names: str) -> None:
        if of is None or of in names:
            raise error

    return function
