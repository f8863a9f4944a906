"""The structure of a pickle, read without executing anything of it."""

from __future__ import annotations

import collections
import io
import pickle
import reprlib
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

__all__ = ["Made", "Outline", "PlaceError", "StorageReference", "Way", "outline_of", "place_at"]

Way = tuple["Way", Any] | None
"""The way from the root to a thing: the way to its container, and its key or position there."""

# Names in state_dicts are less than a tenth as long. Without a limit, the places in nested
# dictionaries could be a million times as large as the file.
_MAX_PLACE_CHARS = 1024

# Keys other than strings can be nested tuples, whose texts grow without limit, too.
_KEYS = reprlib.Repr()
_KEYS.maxlevel = 3
_KEYS.maxtuple = _KEYS.maxfrozenset = 16
_KEYS.maxlong = _KEYS.maxstring = _KEYS.maxother = _MAX_PLACE_CHARS


class PlaceError(ValueError):
    """A place is too long to be written."""


class _Fixed(type):
    """The type of classes that a pickle must not change, because all pickles share them."""

    def __setattr__(cls, name: str, _: Any) -> None:
        raise pickle.UnpicklingError(f"it sets {name!r} of a class")


@dataclass(frozen=True)
class StorageReference:
    """A storage that a tensor in the pickle refers to."""

    type_name: str
    """The class of torch that names its dtype: ``FloatStorage``."""
    key: str
    location: str
    """The device from which it was saved."""
    count: int

    def __setstate__(self, _: Any) -> None:
        raise pickle.UnpicklingError("it changes a storage that it refers to")


class Made(metaclass=_Fixed):
    """Takes the place of an object that the pickle would have made by a call."""

    function = ""
    """The name of what it would have called: ``torch._utils._rebuild_tensor_v2``."""

    def __new__(cls, *args: Any, **_: Any) -> Made:
        made = super().__new__(cls)
        made.args = args
        made.contents = []
        return made

    args: tuple[Any, ...]
    contents: list[tuple[Any, Any]]
    """The things that the pickle would have put into it, each with its key or position."""

    def __call__(self, *args: Any) -> Made:
        made = Made.__new__(Made, *args)
        made.contents.append(("", self))
        return made

    def __setstate__(self, state: Any) -> None:
        self.contents.append(("", state))

    def __setitem__(self, key: Any, value: Any) -> None:
        self.contents.append((key, value))

    def append(self, value: Any) -> None:
        self.contents.append((len(self.contents), value))

    def extend(self, values: Any) -> None:
        for value in values:
            self.append(value)

    add = append


@dataclass
class Outline:
    """The skeleton of a pickled object."""

    root: Any
    """Dictionaries, lists, tuples and plain values are themselves; all else is a `Made`."""
    storages: dict[str, StorageReference]
    """The storages by key, in the order in which the pickle first refers to them."""
    functions: set[str] = field(default_factory=set)
    """Every class and function that the pickle names."""

    def walk(self) -> Iterator[tuple[Way, Any]]:
        """Yield every `Made` and every `StorageReference` in it, with the way to it."""
        seen: set[int] = set()
        left: list[tuple[Way, Any]] = [(None, self.root)]
        while left:
            way, thing = left.pop()
            if isinstance(thing, StorageReference):
                yield way, thing
                continue
            if id(thing) in seen:
                continue
            below: list[tuple[Any, Any]] = []
            if isinstance(thing, dict):
                # Not thing.items(): the pickle may have replaced that method.
                below = list(dict.items(thing))
                below += [("", vars(thing))] if isinstance(thing, _Ordered) else []
            elif isinstance(thing, list | tuple | set | frozenset):
                below = list(enumerate(thing))
            elif isinstance(thing, Made):
                yield way, thing
                below = [("", value) for value in thing.args] + thing.contents
            else:
                continue
            seen.add(id(thing))
            left += [(way if key == "" else (way, key), value) for key, value in reversed(below)]

    def place_of(self, key: str) -> str:
        """Return the place of the first tensor with its bytes in this storage.

        "" if there is none, or if its place is too long to be written.
        """
        for way, thing in self.walk():
            if isinstance(thing, StorageReference) and thing.key == key:
                try:
                    return place_at(way)
                except PlaceError:
                    return ""
        return ""


def place_at(way: Way) -> str:
    """Return a way as users see it: its keys and positions, joined by dots.

    Raises:
        PlaceError: it has more than 1,024 characters.
    """
    names: list[str] = []
    chars = 0
    while way is not None:
        way, key = way
        names.append(_text_of(key))
        chars += len(names[-1]) + 1
        if chars > _MAX_PLACE_CHARS + 1:
            raise PlaceError(f"it has more than {_MAX_PLACE_CHARS} characters")
    return ".".join(reversed(names))


def _text_of(key: Any) -> str:
    if isinstance(key, str):
        return key
    try:
        return _KEYS.repr(key)
    except ValueError:
        raise PlaceError("a key is a number of thousands of digits") from None


class _Ordered(collections.OrderedDict[Any, Any], metaclass=_Fixed):
    """An OrderedDict whose attributes are searched, too."""


class _Unpickler(pickle._Unpickler):
    """Python's unpickler, because the one in C allocates any size that a damaged pickle names."""

    read: Callable[[int], bytes]
    append: Callable[[Any], None]

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8")
        self.storages: dict[str, StorageReference] = {}
        self.classes: dict[str, type] = {}

    def load_bytearray8(self) -> None:
        (size_bytes,) = struct.unpack("<Q", self.read(8))
        # The original allocates the array before it reads.
        self.append(bytearray(self.read(size_bytes)))

    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,
        pickle.BYTEARRAY8[0]: load_bytearray8,
    }

    def get_extension(self, code: int) -> None:
        # The original uses this process's registry instead of find_class.
        self.append(self.find_class("copyreg", f"extension {code}"))

    def find_class(self, module: str, name: str) -> Any:
        full_name = f"{module}.{name}"
        if full_name not in self.classes:
            # Nothing is imported; a class of ours takes the place of each.
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
    """Return the skeleton of a pickle of `torch.save` without executing anything of it.

    Raises:
        pickle.UnpicklingError: it is not such a pickle, or it is damaged.
    """
    unpickler = _Unpickler(data)
    try:
        root = unpickler.load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # a damaged pickle fails in any way
        raise pickle.UnpicklingError(f"{type(error).__name__}: {error}") from None
    return Outline(root, unpickler.storages, set(unpickler.classes))
