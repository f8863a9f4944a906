"""Batches are copied to a device ahead of their use."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_map

from headrace._base.errors import InvalidArgumentError
from headrace.torch._pipeline import Batches, Made

__all__ = ["CopiedAhead", "Device", "choose_device", "opened"]

_COPIES_AHEAD = 2


class Copy(Protocol):
    """A batch on its way to a device. It holds the batch in host memory until it has been read."""

    def take(self) -> Any:
        """Return the batch on the device; what the current stream does from now on finds it."""
        ...


class Device(Protocol):
    """Where batches go."""

    def copy(self, batch: Any) -> Copy:
        """Begin to copy a batch."""
        ...


class CudaDevice:
    """A CUDA device, to which batches are copied on a stream of their own.

    Memory that torch has page-locked is not used for anything else before copies from it have
    ended, since torch's cache of it waits for them. Of what is no plain tensor but has ``to()``, we
    cannot tell torch which stream uses its memory: the trainer's stream copies it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def copy(self, batch: Any) -> Copy:
        with torch.cuda.stream(self._stream):
            there = _mapped(
                lambda each: _move(each, self._device) if _is_plain(each) else each, batch
            )
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            copied.record(self._stream)
        return _CudaCopy(self._device, batch, there, copied)


class _CudaCopy:
    def __init__(
        self, device: torch.device, here: Any, there: Any, copied: torch.cuda.Event
    ) -> None:
        self._device, self._here, self._there, self._copied = device, here, there, copied

    def take(self) -> Any:
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(self._copied)

        def take(value: Any) -> Any:
            if not _is_plain(value):
                return _move(value, self._device)
            # Its memory was taken on another stream: it must not be used again before this one has
            # done with it.
            value.record_stream(stream)
            return value

        there, self._here, self._there = self._there, None, None
        return _mapped(take, there)


def _is_plain(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and not value.is_nested
        and not is_traceable_wrapper_subclass(value)
    )


class OtherDevice:
    """A device without streams that we know: a batch is copied when it is handed over."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def copy(self, batch: Any) -> Copy:
        return _OtherCopy(batch, self._device)


class _OtherCopy(NamedTuple):
    here: Any
    device: torch.device

    def take(self) -> Any:
        return moved(self.here, self.device)


def moved(batch: Any, device: torch.device) -> Any:
    """Return a batch with all tensors, at any depth, on the device; likewise what has ``to()``."""
    return _mapped(lambda each: _move(each, device), batch)


def _mapped(function: Callable[[Any], Any], batch: Any) -> Any:
    """Return a batch with `function` of each value in it, at any depth of tuples, lists and dicts.

    A PackedSequence is a tuple, but one of its tensors has to stay: it moves itself.
    """
    return tree_map(function, batch, is_leaf=lambda each: isinstance(each, PackedSequence))


def _move(value: Any, device: torch.device) -> Any:
    return value.to(device, non_blocking=True) if hasattr(value, "to") else value


def choose_device(device: torch.device | str | int | None) -> torch.device | None:
    """Return the device that batches are copied to; None: they stay where they are.

    Raises:
        InvalidArgumentError: there is no such device.
    """
    if device is None:
        return None
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InvalidArgumentError(f"device is {device!r}: {error}") from error
    if chosen.type == "cpu":
        return None
    if chosen.type == "cuda" and not torch.cuda.is_available():
        warnings.warn(
            f"device={str(chosen)!r} has no effect: no CUDA device was found, and batches stay in "
            "host memory",
            UserWarning,
            stacklevel=3,
        )
        return None
    try:
        torch.empty(0, device=chosen)
    except (ImportError, RuntimeError, AssertionError, NotImplementedError) as error:
        raise InvalidArgumentError(f"device is {device!r}: {error}") from error
    return chosen


def opened(device: torch.device) -> Device:
    """Return the device; CUDA without a number is the current one."""
    if device.type != "cuda":
        return OtherDevice(device)
    number = torch.cuda.current_device() if device.index is None else device.index
    return CudaDevice(torch.device("cuda", number))


class _Copied(NamedTuple):
    made: Made
    copy: Copy


class CopiedAhead:
    """The batches of a pipeline on a device.

    While the trainer has one, the next two are on their way, if they have been read. An error of a
    batch comes in its turn. One thread at a time uses it; any thread may call `close`.
    """

    def __init__(self, batches: Batches, device: Device) -> None:
        self._batches, self._device = batches, device
        self._ahead: deque[_Copied | Exception | None] = deque()
        """None: the end."""

    def next(self) -> Made | None:
        """Wait for the next batch; as `Pipeline.next`."""
        if not self._ahead:
            self._begin()
        else:
            self._batches.check()
        found = self._ahead.popleft()
        if isinstance(found, Exception):
            raise found
        if found is None:
            return None
        value = found.copy.take()
        while len(self._ahead) < _COPIES_AHEAD and self._goes_on() and self._batches.is_ready():
            self._begin()
        return found.made._replace(value=value)

    def drain(self) -> None:
        """Begin no more reads; batches already begun are still to come."""
        self._batches.drain()

    def close(self) -> None:
        """Cancel reads in flight. A second call does nothing."""
        self._batches.close()

    def is_ready(self) -> bool:
        """Return whether `next` has something at once."""
        return bool(self._ahead) or self._batches.is_ready()

    def check(self) -> None:
        """Raise CancelledError if `next` would."""
        self._batches.check()

    def _goes_on(self) -> bool:
        return not self._ahead or isinstance(self._ahead[-1], _Copied)

    def _begin(self) -> None:
        try:
            found = self._batches.next()
            if found is None:
                self._ahead.append(None)
                return
            copy = self._device.copy(found.value)
            self._ahead.append(_Copied(found._replace(value=None), copy))  # which holds the batch
        except Exception as error:
            self._ahead.append(error)
