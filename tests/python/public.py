"""What is public: the functions, classes and methods that the reference has a place for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

PACKAGES = (
    "headrace", "headrace.checkpoint", "headrace.fsspec", "headrace.torch", "headrace.lightning",
    "headrace.megatron", "headrace.huggingface", "headrace.ray", "headrace.torch_checkpointing",
    "headrace.dlio",
)  # fmt: skip


class Public(NamedTuple):
    """A public callable."""

    name: str
    """Its full name: ``headrace.Store.read``."""
    thing: Callable[..., Any]
    owner: type | None
    """The class that it is a method of."""


def public_callables() -> Iterator[Public]:
    """Yield every public function, class and method, those that a class inherits included.

    Of inherited methods only ours: what torch and Lightning have written is theirs to explain.
    """
    for package_name in PACKAGES:
        try:
            package = importlib.import_module(package_name)
        except ImportError:  # torch and lightning are extras
            continue
        for name in package.__all__:
            thing = getattr(package, name)
            if not callable(thing):
                continue
            yield Public(f"{package_name}.{name}", thing, None)
            if isinstance(thing, type) and not issubclass(thing, Exception):
                for method in sorted(set(dir(thing))):
                    found = getattr(thing, method)
                    if isinstance(found, type):  # a class that a base of another library asks for
                        continue
                    if not method.startswith("_") and callable(found) and _is_ours(thing, method):
                        yield Public(f"{package_name}.{name}.{method}", found, thing)


def is_of_another_library(public: Public) -> bool:
    """Return whether a base of another library has the method, too: its contract is that one's."""
    if public.owner is None:
        return False
    method = public.name.rpartition(".")[2]
    return any(
        method in vars(base)
        for base in public.owner.__mro__
        if not base.__module__.startswith("headrace")
    )


def _is_ours(owner: type, method: str) -> bool:
    first = next(base for base in owner.__mro__ if method in vars(base))
    return first.__module__.startswith("headrace")
