"""Exceptions of the user's code that say which sample they are about."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["about_batch", "about_sample"]

_PLAIN = (BaseException.__str__, OSError.__str__)
# Where an exception keeps what was added to it.
_TEXT = "_headrace_text"


def about_sample(error: Exception, url: str) -> Exception:
    """Return what is told of `error`, which a transform has raised: with the sample's URL in it."""
    return _about(error, f"the transform of {url}")


def about_batch(
    error: Exception, url_of: Callable[[int], str], indices: Sequence[int]
) -> Exception:
    """Return what is told of `error`, which a collate_fn has raised: with the URLs of the first and
    the last sample in it.
    """
    names = [url_of(indices[i]) for i in sorted({0, len(indices) - 1})]
    return _about(error, f"the collate_fn for {len(indices)} samples: {' ... '.join(names)}")


def _about(error: Exception, where: str) -> Exception:
    if isinstance(error, StopIteration):
        # It would end the epoch, as if there were no more samples.
        told = RuntimeError(f"StopIteration was raised (in {where})")
        told.__cause__ = error
        return told
    _add_text(error, f"in {where}")
    return error


def _add_text(error: Exception, text: str) -> None:
    """Add `text` to an exception without another class, and visible wherever it is printed.

    Where the exception is nothing but its one text, the text is made longer: so also ``str(error)``
    has it. Any other gets a note, which a traceback shows; also the traceback that torch makes the
    text of the exception from, when it brings it here from a worker process. One that is raised
    again and again has the latest text only.
    """
    arguments = error.args
    before = error.__dict__.get(_TEXT)
    error.__dict__[_TEXT] = text
    if len(arguments) == 1 and type(arguments[0]) is str and type(error).__str__ in _PLAIN:
        own_text = arguments[0].removesuffix(f" ({before})")
        error.args = (f"{own_text} ({text})",)
    else:
        notes: list[str] = getattr(error, "__notes__", [])
        if before in notes:
            notes.remove(before)
        error.add_note(text)
