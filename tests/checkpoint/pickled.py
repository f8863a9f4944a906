"""Values of every form that pickle, copyreg, dill and cloudpickle write, with tensors in them."""

from __future__ import annotations

import collections
import copyreg
import dataclasses
import enum
import functools
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

Part = Any
Parts = list[Part]


class Outer:
    """Its classes are in a class, which protocols 2 and 3 write as a call."""

    class Plain:
        pass

    class Slots:
        __slots__ = ("__dict__", "part")

    class Dict(dict[Any, Any]):
        pass

    class List(list[Any]):
        pass

    class Tuple(tuple[Any, ...]):
        __slots__ = ()

    class Set(set[Any]):
        pass

    class Text(str):
        pass

    class Pair(NamedTuple):
        first: Any
        second: Any

    @dataclasses.dataclass
    class Data:
        first: Any
        second: Any = None

    @dataclasses.dataclass(frozen=True, slots=True)
    class Frozen:
        first: Any
        second: Any = None

    class Phase(enum.Enum):
        WARM = 1

    class ByPosition:
        """What it is made with is given by position."""

        def __new__(cls, *parts: Part) -> Outer.ByPosition:
            made = super().__new__(cls)
            made.parts = parts
            return made

        parts: tuple[Part, ...]

        def __getnewargs__(self) -> tuple[Part, ...]:
            return self.parts

        def __getstate__(self) -> None:
            return None

    class ByName(ByPosition):
        """What it is made with is given by name."""

        def __new__(cls, *, first: Part) -> Outer.ByName:
            made = object.__new__(cls)
            made.parts = (first,)
            return made

        def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Part]]:
            return (), {"first": self.parts[0]}

    class AllOfReduce:
        """Arguments, a state, items and pairs."""

        def __init__(self, *parts: Part) -> None:
            self.parts = list(parts)

        def append(self, part: Part) -> None:
            self.parts.append(part)

        def extend(self, parts: Parts) -> None:
            self.parts += parts

        def __setitem__(self, key: Any, part: Part) -> None:
            self.parts.append((key, part))

        def __reduce__(self) -> Any:
            some = iter(self.parts[:1])
            return Outer.AllOfReduce, (1,), {"parts": self.parts}, some, iter([("key", 1)])

    class SetFromOutside:
        """Its state is set by a function, and not by itself."""

        def __reduce__(self) -> Any:
            return Outer.SetFromOutside, (), vars(self), None, None, Outer.set_state

    @staticmethod
    def set_state(thing: Any, state: dict[str, Any]) -> None:
        vars(thing).update(state)

    class Method:
        def __init__(self, part: Part) -> None:
            self.part = part

        def method(self) -> Part:
            return self.part


class Meta(type):
    """Its classes are made anew where they are read."""


def made_anew(name: str, *parts: Part) -> Any:
    return Meta(name, (), {"parts": parts})


copyreg.pickle(Meta, lambda cls: (made_anew, (cls.__name__, *vars(cls)["parts"])))


class Units(torch.Tensor):
    """A class of tensors."""


class Module(torch.nn.Module):
    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.parts = parts
        self.child = torch.nn.Module()
        self.child.deep = parts[:1]


def _with(made: Any, **attributes: Part) -> Any:
    for name, part in attributes.items():
        setattr(made, name, part)
    return made


def _itself(parts: Parts) -> Any:
    whole: Any = [*parts]
    whole.append(whole)
    return {"whole": whole, "again": (whole,)}


def _objects_of_each_other(parts: Parts) -> Any:
    a, b = Outer.Plain(), Outer.Dict()
    _with(a, b=b, parts=parts)
    b["a"] = a
    key = Outer.Tuple((a,))
    _with(a, key=key)
    return key


def _named(parts: Parts) -> dict[str, Part]:
    return {f"p{i}": part for i, part in enumerate(parts)}


FORMS: dict[str, Callable[[Parts], Any]] = {
    "dict": _named,
    "dict of numbers": lambda parts: dict(enumerate(parts)),
    "dict of odd keys": lambda parts: {
        Outer.Phase.WARM: parts[:1],
        frozenset([1, 2]): parts[1:2],
        (1, ("a", torch.float16)): parts[2:],
    },
    "list": list,
    "tuple": tuple,
    "one tuple": lambda parts: (tuple(parts),),
    "long tuple": lambda parts: (*parts, 1, 2, 3, 4),
    "plain": lambda parts: _with(Outer.Plain(), **_named(parts)),
    "slots": lambda parts: _with(Outer.Slots(), part=parts[:1], more=parts[1:]),
    "dict class": lambda parts: _with(Outer.Dict(_named(parts[1:])), tag=parts[:1]),
    "list class": lambda parts: _with(Outer.List(parts[1:]), tag=parts[:1]),
    "tuple class": lambda parts: Outer.Tuple(parts),
    "named tuple": lambda parts: Outer.Pair(parts[:1], parts[1:]),
    "data class": lambda parts: Outer.Data(*parts[:1], second=parts[1:]) if parts else None,
    "frozen data class": lambda parts: Outer.Frozen(parts[:1], parts[1:]),
    "by position": lambda parts: Outer.ByPosition(*parts),
    "by name": lambda parts: Outer.ByName(first=parts),
    "all of reduce": lambda parts: Outer.AllOfReduce(*parts),
    "set from outside": lambda parts: _with(Outer.SetFromOutside(), **_named(parts)),
    "class made anew": lambda parts: made_anew("New", *parts),
    "of a class made anew": lambda parts: _with(made_anew("New")(), parts=parts),
    "ordered": lambda parts: _with(collections.OrderedDict(_named(parts[1:])), tag=parts[:1]),
    "default": lambda parts: collections.defaultdict(Outer.Plain, _named(parts)),
    "user dict": lambda parts: collections.UserDict(_named(parts)),
    "deque": lambda parts: collections.deque(parts, maxlen=9),
    "chain": lambda parts: collections.ChainMap(_named(parts), {"z": 1}),
    "namespace": lambda parts: types.SimpleNamespace(**_named(parts)),
    "partial": lambda parts: functools.partial(Outer.set_state, *parts, state=1),
    "method": lambda parts: Outer.Method(parts).method,
    "module": Module,
    "itself": _itself,
    "of each other": _objects_of_each_other,
}

PLAIN: list[Any] = [
    *(None, True, 0, -1, 1000, 1 << 40, -(1 << 3000), 1.5, 1j, "", "a\u20ac\udc80", "x" * 300),
    *(b"", b"x" * 300, bytearray(b"abc"), range(3), slice(1, 2), ..., NotImplemented),
    *(set(), {1, "a"}, frozenset("ab"), collections.Counter("aab"), Outer, Outer.Plain),
    *(Outer.Phase.WARM, Outer.Text("a"), Outer.Set([1]), torch.Size([2]), torch.float16),
    *(torch.device("cpu"), print, torch.nn.functional.relu, [].append),
]

TENSORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda tensor: tensor,
    "view": lambda tensor: torch.cat([tensor, tensor])[1:],
    "parameter": lambda tensor: torch.nn.Parameter(tensor),
    "frozen parameter": lambda tensor: torch.nn.Parameter(tensor, requires_grad=False),
    "buffer": lambda tensor: torch.nn.Buffer(tensor),
    "tagged": lambda tensor: _with(tensor, tag="x", more=[1]),
    "tagged parameter": lambda tensor: _with(torch.nn.Parameter(tensor), tag=5),
    "complex": lambda tensor: tensor.to(torch.complex64).conj(),
    "unsigned": lambda tensor: tensor.to(torch.uint16),
}
