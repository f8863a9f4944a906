"""What is in a pickle, without executing anything of it."""

from __future__ import annotations

import collections
import io
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Made", "Outline", "StorageReference", "outline_of"]


@dataclass(frozen=True)
class StorageReference:
    """A storage that a tensor in the pickle refers to."""

    type_name: str
    """The class of torch that stands for its dtype: ``FloatStorage``."""
    key: str
    location: str
    """The device that it was saved from."""
    count: int


class Made:
    """Stands for what the pickle would have made by calling something."""

    function = ""
    """What it would have called: ``torch._utils._rebuild_tensor_v2``."""

    def __new__(cls, *args: Any, **_: Any) -> Made:
        made = super().__new__(cls)
        made.args = args
        made.contents = []
        return made

    args: tuple[Any, ...]
    contents: list[tuple[str, Any]]
    """What the pickle would have put into it afterwards, with where."""

    def __call__(self, *args: Any) -> Made:
        made = Made.__new__(Made, *args)
        made.contents.append(("", self))
        return made

    def __setstate__(self, state: Any) -> None:
        self.contents.append(("", state))

    def __setitem__(self, key: Any, value: Any) -> None:
        self.contents.append((str(key), value))

    def append(self, value: Any) -> None:
        self.contents.append((str(len(self.contents)), value))

    def extend(self, values: Any) -> None:
        for value in values:
            self.append(value)

    add = append


@dataclass
class Outline:
    """The skeleton of a pickled object."""

    root: Any
    """Dictionaries, lists, tuples and plain values as they are; everything else is a `Made`."""
    storages: dict[str, StorageReference]
    """By their keys, in the order in which the pickle refers to them first."""
    functions: set[str] = field(default_factory=set)
    """Every class and function that it names."""

    def walk(self) -> Iterator[tuple[str, Any]]:
        """Yield everything in it that is a `Made` or a `StorageReference`, with where it is.

        The place is what a user sees: the keys and positions on the way to it, joined by dots.
        """
        seen: set[int] = set()
        left: list[tuple[str, Any]] = [("", self.root)]
        while left:
            place, thing = left.pop()
            if isinstance(thing, StorageReference):
                yield place, thing
                continue
            if id(thing) in seen:
                continue
            below: list[tuple[str, Any]] = []
            if isinstance(thing, dict):
                # The dict's own: an attribute that the pickle has set may be called the same.
                below = [(str(key), value) for key, value in dict.items(thing)]
                below += [("", vars(thing))] if isinstance(thing, _Ordered) else []
            elif isinstance(thing, list | tuple | set | frozenset):
                below = [(str(i), value) for i, value in enumerate(thing)]
            elif isinstance(thing, Made):
                yield place, thing
                below = [("", value) for value in thing.args] + thing.contents
            else:
                continue
            seen.add(id(thing))
            left += [
                (f"{place}.{name}" if place and name else place or name, value)
                for name, value in reversed(below)
            ]

    def place_of(self, key: str) -> str:
        """Return where the first tensor is whose bytes are in this storage; "" if nowhere."""
        for place, thing in self.walk():
            if isinstance(thing, StorageReference) and thing.key == key:
                return place
        return ""


class _Ordered(collections.OrderedDict[Any, Any]):
    """An OrderedDict, whose attributes are looked at, too."""


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8")
        self.storages: dict[str, StorageReference] = {}
        self.classes: dict[str, type] = {}

    def find_class(self, module: str, name: str) -> Any:
        full_name = f"{module}.{name}"
        if full_name not in self.classes:
            # Nothing is imported: a class of our own takes its place.
            self.classes[full_name] = (
                _Ordered
                if full_name == "collections.OrderedDict"
                else type("Made", (Made,), {"function": full_name})
            )
        return self.classes[full_name]

    def persistent_load(self, pid: Any) -> StorageReference:
        kind, storage_type, key, location, count = pid
        if kind != "storage":
            raise pickle.UnpicklingError(f"it refers to {kind!r}, which is no storage")
        type_name = storage_type.function.rpartition(".")[2]
        reference = StorageReference(type_name, str(key), str(location), int(count))
        return self.storages.setdefault(reference.key, reference)


def outline_of(data: bytes) -> Outline:
    """Return the skeleton of a pickle that `torch.save` made. Nothing of it is executed.

    Raises:
        pickle.UnpicklingError: it is none, or it is damaged.
    """
    unpickler = _Unpickler(data)
    try:
        root = unpickler.load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # a damaged pickle fails in any way
        raise pickle.UnpicklingError(f"{type(error).__name__}: {error}") from None
    return Outline(root, unpickler.storages, set(unpickler.classes))
