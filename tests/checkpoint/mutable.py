"""Random states of everything that can change in place, and how all of it is changed."""

from __future__ import annotations

import collections
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import strategies as st

__all__ = ["Pair", "change_all", "states"]


class State(dict):  # type: ignore[type-arg]
    """A dict with attributes."""


class Checked(dict):  # type: ignore[type-arg]
    """A dict of which no item is set twice."""

    def __setitem__(self, key: Any, value: Any) -> None:
        assert key not in self
        super().__setitem__(key, value)


class Items(list):  # type: ignore[type-arg]
    """A list with attributes, made of two arguments."""

    def __init__(self, first: Any, second: Any) -> None:
        super().__init__([first, second])


class Two(NamedTuple):
    a: Any
    b: Any


class Pair(tuple):  # type: ignore[type-arg]
    """Its pickle cannot be loaded."""

    def __new__(cls, a: Any, b: Any) -> Pair:
        return super().__new__(cls, (a, b))


class Box:
    def __init__(self, value: Any) -> None:
        self.value = value


class Registry(Box):
    """Copies as itself."""

    def __deepcopy__(self, memo: Any) -> Registry:
        return self


class Units(torch.Tensor):
    """A tensor of a class of its own."""


def _numbers(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _with(value: Any, **attributes: Any) -> Any:
    for name, each in attributes.items():
        setattr(value, name, each)
    return value


# Values by a seed and two others; of the others, several take none.
MAKERS: list[Callable[[int, Any, Any], Any]] = [
    lambda seed, a, b: seed,
    lambda seed, a, b: f"text {seed}",
    lambda seed, a, b: bytes(range(seed)),
    lambda seed, a, b: bytearray(range(seed)),
    lambda seed, a, b: {seed},  # of several, the order would follow their history
    lambda seed, a, b: np.arange(seed + 3.0).reshape(-1, 1),
    lambda seed, a, b: np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    lambda seed, a, b: np.random.default_rng(seed),
    lambda seed, a, b: random.Random(seed),
    # tensors
    lambda seed, a, b: _numbers(seed, 4),
    lambda seed, a, b: _numbers(seed, 4, 3).t(),
    lambda seed, a, b: _numbers(seed, 4).to(torch.bfloat16),
    lambda seed, a, b: _numbers(seed, 4).to(torch.float8_e4m3fn),
    lambda seed, a, b: _numbers(seed, 0, 3),
    lambda seed, a, b: _numbers(seed, 1).expand(5),
    lambda seed, a, b: _numbers(seed, 4).requires_grad_(),
    lambda seed, a, b: _numbers(seed, 4).requires_grad_() * 2,
    lambda seed, a, b: _numbers(seed, 4).to(torch.complex64).conj(),
    lambda seed, a, b: _numbers(seed, 4).as_subclass(Units),
    lambda seed, a, b: _with(_numbers(seed, 4), tag=a),
    lambda seed, a, b: torch.nn.Parameter(_numbers(seed, 4), requires_grad=seed % 2 == 0),
    lambda seed, a, b: _with(torch.nn.Parameter(_numbers(seed, 4)), tag=[a]),
    lambda seed, a, b: torch.eye(3).mul(seed).to_sparse(),
    lambda seed, a, b: torch.eye(3).mul(seed).to_sparse_csr(),
    lambda seed, a, b: torch.quantize_per_tensor(_numbers(seed, 4), 0.5, 0, torch.qint8),
    lambda seed, a, b: torch.nested.nested_tensor([_numbers(seed, 2), _numbers(seed, 3)]),
    lambda seed, a, b: torch.nested.nested_tensor(
        [_numbers(seed, 2), _numbers(seed, 3)], layout=torch.jagged
    ),
    lambda seed, a, b: torch.empty(2, seed, device="meta"),
    lambda seed, a, b: _numbers(seed, 4).untyped_storage(),
    lambda seed, a, b: torch.Generator().manual_seed(seed).get_state(),
    lambda seed, a, b: a[1:] if isinstance(a, torch.Tensor) and _is_plain(a) else _numbers(seed, 2),
    # what holds others
    lambda seed, a, b: {"a": a, seed: b},
    lambda seed, a, b: [a, b],
    lambda seed, a, b: (a, b),
    lambda seed, a, b: collections.OrderedDict(a=a, b=b),
    lambda seed, a, b: collections.deque([a, b]),
    lambda seed, a, b: collections.defaultdict(list, a=[a]),
    lambda seed, a, b: _with(State(a=a), attribute=b),
    lambda seed, a, b: _with(collections.OrderedDict(a=a), _metadata={"b": b}),
    lambda seed, a, b: Checked(a=a),
    lambda seed, a, b: _with(Items(a, 1), attribute=b),
    lambda seed, a, b: Two(a, b),
    lambda seed, a, b: Box(a),
    lambda seed, a, b: Registry(a),
    lambda seed, a, b: {Box(a): 1, Box: b},
    lambda seed, a, b: _self_reference(a),
    lambda seed, a, b: torch.nn.Linear(2, 2).state_dict(),
]


def _is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.dim() == 1


def _self_reference(value: Any) -> dict[str, Any]:
    made = {"value": value}
    made["itself"] = made
    return made


@st.composite
def states(draw: st.DrawFn) -> dict[str, Any]:
    """Dicts of values, some of which hold others, or share them."""
    # torch warns of kinds of tensors that are new or old.
    with warnings.catch_warnings(action="ignore"):
        return _state(draw)


def _state(draw: st.DrawFn) -> dict[str, Any]:
    torch.manual_seed(0)
    pool: list[Any] = [None, True]
    for number in draw(st.lists(st.integers(0, len(MAKERS) - 1), min_size=1, max_size=12)):
        seed, a, b = draw(
            st.tuples(st.integers(1, 9), *[st.integers(0, len(pool) - 1)] * 2), label="of"
        )
        pool.append(MAKERS[number](seed, pool[a], pool[b]))
    # Those made last hold the others.
    state = {f"value {i}": value for i, value in enumerate(pool[-1:-6:-1])}
    if draw(st.booleans()):
        state["itself"] = state
    return state


def change_all(state: Any) -> None:
    """Change in place whatever `state` holds, down to the bytes of its tensors."""
    seen: dict[int, Any] = {}
    left = [state]
    while left:
        value = left.pop()
        if id(value) not in seen:
            seen[id(value)] = value
            left += _held_by(value)
    for value in seen.values():
        _change(value)


def _held_by(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | collections.deque):
        yield from value
    if not isinstance(value, type):
        yield from vars(value).values() if hasattr(value, "__dict__") else []


def _change(value: Any) -> None:
    if isinstance(value, torch.Tensor):
        for storage in _storages(value):
            storage.fill_(storage[0] ^ 1 if storage.nbytes() else 0)
    elif isinstance(value, torch.UntypedStorage):
        value.fill_(77)
    elif isinstance(value, np.ndarray):
        value.fill(77)
    elif isinstance(value, np.random.Generator | random.Random):
        value.random()
    elif isinstance(value, dict | list | set | bytearray | collections.deque):
        value.clear()
    if isinstance(value, State | Items | Box | collections.OrderedDict | torch.nn.Parameter):
        vars(value).clear()


def _storages(tensor: torch.Tensor) -> list[torch.UntypedStorage]:
    if tensor.device.type == "meta":
        return []
    if tensor.layout is torch.sparse_coo:
        return [*_storages(tensor._indices()), *_storages(tensor._values())]
    if tensor.layout is torch.sparse_csr:
        return [*_storages(tensor.crow_indices()), *_storages(tensor.values())]
    if tensor.is_nested:
        return _storages(tensor.detach().values())
    return [tensor.untyped_storage()]
