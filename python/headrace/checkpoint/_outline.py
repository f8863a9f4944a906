"""The structure of a pickle, read without executing anything of it."""

from __future__ import annotations

import _compat_pickle
import io
import pickle
import reprlib
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, ClassVar

import torch

from headrace._base.collecting import without_collecting

__all__ = [
    "REBUILD_PARAMETER",
    "Made",
    "Named",
    "Outline",
    "PlaceError",
    "StorageReference",
    "Way",
    "outline_of",
    "place_at",
]

Way = tuple["Way", Any] | None
"""The way from the root to a thing: the way to its container, and its key or position there."""

# Names in state_dicts are less than a tenth as long. Without a limit, the places in nested
# dictionaries could be a million times as large as the file.
_MAX_PLACE_CHARS = 1024

# More arguments than any call has that a pickle writes for another.
_MAX_ARGS = 1024

# So many things are looked through once more because another way leads to them. Lists in lists
# could have more ways than there is memory.
_MAX_REPEATED = 100_000

_HERE: Any = object()
"""The key of what belongs to an object without a name of its own: its state, its only argument."""

REBUILD_PARAMETER = "torch._utils._rebuild_parameter"

_DICT = "builtins.dict"

_END: Any = object()
"""Comes after all that lies below a thing."""

# The names of Python 3 for those of Python 2, which protocol 2 has. torch's tables lack what is of
# no use in a checkpoint, and can be the name of a user's module; torch 2.3 has none.
_NAMES: dict[Any, Any] = getattr(torch._utils, "NAME_MAPPING", _compat_pickle.NAME_MAPPING)
_MODULES: dict[str, str] = getattr(torch._utils, "IMPORT_MAPPING", _compat_pickle.IMPORT_MAPPING)


class PlaceError(ValueError):
    """A place is too long to be written."""


@dataclass(frozen=True)
class StorageReference:
    """A storage that a tensor in the pickle refers to."""

    type_name: str
    """The class of torch that names its dtype: ``FloatStorage``."""
    key: str
    location: str
    """The device from which it was saved."""
    count: int

    @property
    def size_bytes(self) -> int | None:
        """Its size; None for a type that this torch does not know."""
        if self.type_name == "UntypedStorage":
            return self.count
        try:
            dtype: torch.dtype = torch.storage._get_dtype_from_pickle_storage_type(self.type_name)
        except KeyError:
            return None
        return self.count * dtype.itemsize


@dataclass(frozen=True, eq=False)
class Named:
    """Takes the place of a class or a function that the pickle names, which is not imported."""

    name: str
    """``torch._utils._rebuild_tensor_v2``, as Python 3 calls it."""


class Made:
    """Takes the place of an object that the pickle would have made.

    Dictionaries and sets are such objects, too, so that nothing has to be hashed.
    """

    __slots__ = ("_count", "args", "class_name", "contents", "function")

    def __init__(
        self, function: str, args: tuple[Any, ...] = (), *contents: tuple[Any, Any]
    ) -> None:
        self.function = function
        """The name of what would have been called to make it; ``""`` if that was made itself."""
        self.args = args
        self.contents = list(contents)
        """The things that would have been put into it, each with its key or position."""
        self.class_name = ""
        """The class that a tensor would have been given after it was made."""
        self._count = 0

    def __setitem__(self, key: Any, value: Any) -> None:
        self.contents.append((key, value))

    def append(self, value: Any) -> None:
        self.contents.append((self._count, value))
        self._count += 1

    def extend(self, values: Iterable[Any]) -> None:
        for value in values:
            self.append(value)

    add = append

    def add_state(self, state: Any) -> None:
        """Add attributes; a pair is the `__dict__` and what is in `__slots__`."""
        self.contents += [(_HERE, part) for part in _parts_of(state)]

    @property
    def is_tensor(self) -> bool:
        """Whether a function of torch makes a tensor of it."""
        return self.function.startswith("torch.") and "._rebuild_" in self.function

    @property
    def fields(self) -> dict[str, Any]:
        """The attributes that it would have been given."""
        states = [
            state
            for key, state in self.contents
            if key is _HERE and isinstance(state, Made) and state.function == _DICT
        ]
        return {
            name: value
            for state in states
            for name, value in state.contents
            if isinstance(name, str)
        }

    @property
    def attributes(self) -> dict[str, Any]:
        """Those of its attributes that are numbers, texts or None."""
        return {
            name: value
            for name, value in self.fields.items()
            if isinstance(value, int | float | str | bytes | None)
        }

    def below(self) -> list[tuple[Any, Any]]:
        """Return its arguments and contents, each with its key, its position or `_HERE`."""
        args = self.args
        if not args:
            return self.contents
        if len(args) > _MAX_ARGS:
            # As one thing, which is looked through once, however many calls have it.
            return [(_HERE, args), *self.contents]
        if self.is_tensor:
            return [*((_HERE, value) for value in args), *self.contents]
        names = _fields_of(self.function)
        if names and len(args) == 1 != len(names) and isinstance(args[0], tuple):
            args = args[0]  # protocols 0 and 1 give the elements as one argument
        if len(names) == len(args):
            return [*zip(names, args, strict=True), *self.contents]
        if len(args) == 1:
            return [(_HERE, args[0]), *self.contents]
        return [*enumerate(args), *self.contents]


@dataclass
class Outline:
    """The skeleton of a pickled object."""

    root: Any
    """Lists, tuples and plain values are themselves; all else is a `Made` or a `Named`."""
    storages: dict[str, StorageReference]
    """The storages by key, in the order in which the pickle first refers to them."""
    functions: set[str] = field(default_factory=set)
    """Every class and function that the pickle names."""
    loose: list[Any] = field(default_factory=list)
    """What the pickle makes and does not put into anything."""

    def walk(self) -> Iterator[tuple[Way, Any]]:
        """Yield every `Made` and every `StorageReference` in it, with the way to it."""
        seen: set[int] = set()
        left: list[tuple[Way, Any]] = [(None, each) for each in (*reversed(self.loose), self.root)]
        while left:
            way, thing = left.pop()
            if isinstance(thing, StorageReference):
                yield way, thing
                continue
            if id(thing) in seen or not isinstance(thing, Made | list | tuple):
                continue
            seen.add(id(thing))
            if isinstance(thing, Made):
                yield way, thing
            left += _ways_below(way, thing)

    def tensors(self) -> tuple[list[tuple[Way, Made]], bool]:
        """Return every tensor with every way to it that meets nothing twice; and whether all.

        The parts that a tensor is made of are no tensors of their own, but its attributes are. If
        there are too many ways, some tensors are found by the first alone. So are loose ones.
        """
        found: list[tuple[Way, Made]] = []
        repeats_left, are_all = _MAX_REPEATED, True
        expanded: set[int] = set()
        barren: set[int] = set()  # there is no tensor below these
        above: dict[int, int] = {}  # the things on the way to this one, with their depths
        # Of each of these, how many were found before it, and the least depth that a cycle leads
        # back to from below it.
        begun: list[tuple[int, int]] = []
        for root in (self.root, *self.loose):
            left: list[tuple[Way, Any]] = [(None, root)]
            while left:
                way, thing = left.pop()
                if thing is _END:
                    ended, depth = above.popitem()
                    found_before, least = begun.pop()
                    if len(found) == found_before and least >= depth:
                        barren.add(ended)
                    _lead_back(begun, least)
                    continue
                if id(thing) in barren or not isinstance(thing, Made | list | tuple):
                    continue
                if id(thing) in above:
                    _lead_back(begun, above[id(thing)])
                    continue
                if id(thing) in expanded:
                    if root is not self.root:
                        continue
                    repeats = 1 + _breadth_of(thing)
                    if repeats > repeats_left:
                        are_all = False
                        _lead_back(begun, -1)
                        continue
                    repeats_left -= repeats
                expanded.add(id(thing))
                above[id(thing)] = len(begun)
                begun.append((len(found), len(begun)))
                left.append((None, _END))
                if isinstance(thing, Made) and thing.is_tensor:
                    found.append((way, thing))
                    left += _ways_below(way, thing, with_parts=False)
                else:
                    left += _ways_below(way, thing)
        return found, are_all

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


def _ways_below(
    way: Way, thing: Made | list[Any] | tuple[Any, ...], *, with_parts: bool = True
) -> list[tuple[Way, Any]]:
    """Return what lies below a thing, last first; without `with_parts`, only its contents."""
    if not isinstance(thing, Made):
        below = list(enumerate(thing))
    else:
        below = thing.below() if with_parts else thing.contents
    return [(way if key is _HERE else (way, key), value) for key, value in reversed(below)]


def _breadth_of(thing: Made | list[Any] | tuple[Any, ...]) -> int:
    return len(thing.args) + len(thing.contents) if isinstance(thing, Made) else len(thing)


def _lead_back(begun: list[tuple[int, int]], depth: int) -> None:
    """Note that what lies below the last thing leads back to this depth."""
    if begun:
        found_before, least = begun[-1]
        begun[-1] = (found_before, min(least, depth))


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


class _KeyTexts(reprlib.Repr):
    """The texts of keys that are no strings: nested tuples, whose texts grow without limit, too."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxtuple = 16
        self.maxlong = self.maxstring = self.maxother = _MAX_PLACE_CHARS

    # These names are reprlib's: by them it finds what to do with which class.

    def repr_Named(self, thing: Named, _: int) -> str:  # noqa: N802
        return thing.name

    def repr_Made(self, made: Made, level: int) -> str:  # noqa: N802
        inside = [*made.args, *(value for _, value in made.contents)][: self.maxtuple]
        texts = [self.repr1(each, level - 1) for each in inside] if level > 0 else ["..."]
        return f"{made.function}({', '.join(texts)})"


_KEYS = _KeyTexts()


def _parts_of(state: Any) -> tuple[Any, ...]:
    is_pair = isinstance(state, tuple) and len(state) == 2
    if is_pair and all(
        part is None or (isinstance(part, Made) and part.function == _DICT) for part in state
    ):
        return tuple(state)
    return (state,)


def _fields_of(class_name: str) -> tuple[str, ...]:
    """Return the fields of a named tuple whose class this process has imported; else nothing."""
    parts = class_name.split(".", 32)
    for count in range(len(parts) - 1, 0, -1):
        found: Any = sys.modules.get(".".join(parts[:count]))
        if found is None:
            continue
        for part in parts[count:]:
            # Not getattr, with which some modules begin to import.
            found = vars(found).get(part) if isinstance(found, type | ModuleType) else None
        if isinstance(found, type) and issubclass(found, tuple):
            fields: tuple[str, ...] = getattr(found, "_fields", ())
            return fields
        return ()
    return ()


class _Unpickler(pickle._Unpickler):
    """Python's unpickler, because the one in C allocates any size that a damaged pickle names.

    Whatever a pickle would call, with whatever arguments, becomes a `Made`: only torch knows
    whether the call succeeds, and only a broken form of the pickle itself is an error here.
    """

    read: Callable[[int], bytes]
    append: Callable[[Any], None]
    stack: list[Any]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, data: bytes) -> None:
        # Texts of Python 2 that are not UTF-8 can be keys, and are escaped.
        super().__init__(io.BytesIO(data), encoding="utf-8", errors="backslashreplace")
        self.storages: dict[str, StorageReference] = {}
        self.named: dict[str, Named] = {}
        self.loose: list[Any] = []

    # ---- names

    def load_proto(self) -> None:
        self.read(1)  # whatever it is; an opcode of a later one is an error

    def find_class(self, module: str, name: str) -> Any:
        # In any protocol, as torch's restricted unpickler does.
        module, name = _NAMES.get((module, name), (_MODULES.get(module, module), name))
        full_name = f"{module}.{name}"
        return self.named.setdefault(full_name, Named(full_name[:_MAX_PLACE_CHARS]))

    def get_extension(self, code: int) -> None:
        # The original uses this process's registry instead of find_class.
        self.append(self.find_class("copyreg", f"extension {code}"))

    def persistent_load(self, pid: Any) -> Any:
        match pid:
            case ("storage" | b"storage", Named() as storage_type, key, location, int() as count):
                type_name = storage_type.name.rpartition(".")[2]
                if isinstance(location, bytes):
                    location = location.decode("ascii", "backslashreplace")
                reference = StorageReference(type_name, str(key), str(location), count)
                return self.storages.setdefault(reference.key, reference)
        return Made("", (pid,))

    # ---- calls

    def _called(self, function: Any, args: Any, named: Any = None) -> Any:
        """Return what takes the place of what this call would have made.

        Nothing is copied: a few bytes of a pickle can repeat a call with all that is in it.
        """
        args = args if isinstance(args, tuple) else (args,)
        name = function.name if isinstance(function, Named) else ""
        match name, args if len(args) <= _MAX_ARGS else ():
            # Protocols 2 and 3 write so what protocol 4 names: a class in a class.
            case "builtins.getattr", (Named() as outer, str() as inner):
                if len(outer.name) + len(inner) < _MAX_PLACE_CHARS:
                    return Named(f"{outer.name}.{inner}")
            case "copyreg._reconstructor", (cls, _, state):
                return self._called(cls, () if state is None else (state,))
            case "copyreg.__newobj__", (cls, *rest):
                return self._called(cls, tuple(rest))
            case "copyreg.__newobj_ex__", (cls, rest, by_name):
                return self._called(cls, rest, by_name)
            case (
                "torch._tensor._rebuild_from_type_v2" | "torch._tensor._rebuild_from_type",
                (rebuild, Named() as cls, rest, state),
            ):
                made = self._called(rebuild, rest)
                if isinstance(made, Made):
                    made.class_name = cls.name
                    made.add_state(state)
                    return made
            case "torch._utils._rebuild_parameter_with_state", (*rest, state):
                made = Made(REBUILD_PARAMETER, tuple(rest))
                made.add_state(state)
                return made
        match function, args:
            # Protocols 2 and 3 write so what protocol 4 has an opcode for: arguments by name.
            case (
                Made(function="functools.partial", contents=[(_, (_, (cls, *rest), by_name, _))]),
                (),
            ) if len(rest) < _MAX_ARGS:
                return self._called(cls, tuple(rest), by_name)
        made = Made(name, args)
        made.contents += [(_HERE, each) for each in (named, None if name else function) if each]
        return made

    def load_reduce(self) -> None:
        args = self.stack.pop()
        self.stack[-1] = self._called(self.stack[-1], args)

    load_newobj = load_reduce

    def load_newobj_ex(self) -> None:
        named = self.stack.pop()
        args = self.stack.pop()
        self.stack[-1] = self._called(self.stack[-1], args, named)

    def _instantiate(self, cls: Any, args: Any) -> None:
        self.append(self._called(cls, tuple(args)))

    def load_build(self) -> None:
        state = self.stack.pop()
        thing = self.stack[-1]
        if isinstance(thing, Made):
            thing.add_state(state)
        elif isinstance(thing, StorageReference):
            raise pickle.UnpicklingError("it changes a storage that it refers to")
        elif isinstance(thing, Named):
            parts = [part for part in _parts_of(state) if isinstance(part, Made)]
            names = [key for part in parts for key, _ in part.contents]
            raise pickle.UnpicklingError(f"it sets {_KEYS.repr(tuple(names))} of a class")
        else:
            self.loose.append(state)

    def load_pop(self) -> None:
        if not self.stack:
            self.pop_mark()
            return
        match self.stack.pop():
            # Called for what it does to its first argument: what sets the state of a class or a
            # function, or an attribute.
            case Made(args=(Made() as changed, str() as name, value)):
                changed[name] = value
            case Made(args=(Made() as changed, state)):
                changed.add_state(state)
            case thing:
                self.loose.append(thing)

    # ---- containers

    def load_empty_dictionary(self) -> None:
        self.append(Made(_DICT))

    def load_dict(self) -> None:
        items = self.pop_mark()
        pairs = [(items[i], items[i + 1]) for i in range(0, len(items), 2)]
        self.append(Made(_DICT, (), *pairs))

    def load_empty_set(self) -> None:
        self.append(Made("builtins.set"))

    def load_frozenset(self) -> None:
        items = self.pop_mark()  # first: `append` is then that of another stack
        self.append(Made("builtins.frozenset", (items,)))

    # ---- bytes

    def load_bytearray8(self) -> None:
        (size_bytes,) = struct.unpack("<Q", self.read(8))
        # The original allocates the array before it reads.
        self.append(bytearray(self.read(size_bytes)))

    def load_next_buffer(self) -> None:
        self.append(Made(""))

    def load_readonly_buffer(self) -> None:
        pass

    def load_frame(self) -> None:
        # What the opcodes say is in a frame or not, as for the unpickler in C.
        self.read(8)

    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,
        pickle.PROTO[0]: load_proto,
        pickle.REDUCE[0]: load_reduce,
        pickle.NEWOBJ[0]: load_newobj,
        pickle.NEWOBJ_EX[0]: load_newobj_ex,
        pickle.BUILD[0]: load_build,
        pickle.POP[0]: load_pop,
        pickle.EMPTY_DICT[0]: load_empty_dictionary,
        pickle.DICT[0]: load_dict,
        pickle.EMPTY_SET[0]: load_empty_set,
        pickle.FROZENSET[0]: load_frozenset,
        pickle.BYTEARRAY8[0]: load_bytearray8,
        pickle.NEXT_BUFFER[0]: load_next_buffer,
        pickle.READONLY_BUFFER[0]: load_readonly_buffer,
        pickle.FRAME[0]: load_frame,
    }


def outline_of(data: bytes) -> Outline:
    """Return the skeleton of a pickle of `torch.save` without executing anything of it.

    Raises:
        pickle.UnpicklingError: it is not such a pickle, or it is damaged.
    """
    unpickler = _Unpickler(data)
    try:
        # Nothing that it makes is garbage, and the collector would go through all of it again and
        # again: half a second for 30,000 tensors.
        with without_collecting():
            root = unpickler.load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # a damaged pickle fails in any way
        raise pickle.UnpicklingError(f"{type(error).__name__}: {error}") from None
    return Outline(root, unpickler.storages, set(unpickler.named), unpickler.loose)
