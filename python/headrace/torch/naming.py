"""Exceptions of the user's code that say which sample they are about."""

from __future__ import annotations

from collections.abc import Sequence

from headrace import ObjectIndex
from headrace.store import Store

__all__ = ["about_batch", "about_sample"]

_PLAIN = (BaseException.__str__, OSError.__str__)


def about_sample(error: BaseException, url: str) -> None:
    """Put the sample's URL into `error`, which a transform has raised."""
    _add_text(error, f"in the transform of {url}")


def about_batch(
    error: BaseException, store: Store, objects: ObjectIndex, indices: Sequence[int]
) -> None:
    """Put the URLs of the first and the last sample into `error`, which a collate_fn has raised."""
    names = [store.url_of(objects.name(indices[i])) for i in sorted({0, len(indices) - 1})]
    _add_text(error, f"in the collate_fn for {len(indices)} samples: {' ... '.join(names)}")


def _add_text(error: BaseException, text: str) -> None:
    """Add `text` to an exception without another class, and visible wherever it is printed.

    Where the exception is nothing but its one text, the text is made longer: so also ``str(error)``
    has it. Any other gets a note, which a traceback shows; also the traceback that torch makes the
    text of the exception from, when it brings it here from a worker process.
    """
    arguments = error.args
    if len(arguments) == 1 and type(arguments[0]) is str and type(error).__str__ in _PLAIN:
        error.args = (f"{arguments[0]} ({text})",)
    else:
        error.add_note(text)
