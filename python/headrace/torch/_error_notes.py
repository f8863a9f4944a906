"""Add to exceptions of the user's code which sample they are about."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from headrace._base.errors import notes_of

__all__ = ["about_batch", "about_call", "about_sample"]

_PLAIN = (BaseException.__str__, OSError.__str__)
# The attribute in which an exception keeps the text added to it.
_TEXT = "_headrace_text"


def about_sample(error: Exception, url: str) -> Exception:
    """Return the exception to raise for `error` of a transform: with the sample's URL in it."""
    return _about(error, f"the transform of {url}")


def about_call(error: Exception, call: str) -> Exception:
    """Return the exception to raise for `error` of a call of a user's function."""
    return _about(error, call)


def about_batch(
    error: Exception, url_of: Callable[[int], str], indices: Sequence[int], what: str = "collate_fn"
) -> Exception:
    """Return the exception to raise for `error` of what makes a batch, such as a collate_fn: with
    the URLs of the first and the last sample in it.
    """
    names = [url_of(indices[i]) for i in sorted({0, len(indices) - 1})]
    return _about(error, f"the {what} for {len(indices)} samples: {' ... '.join(names)}")


def _about(error: Exception, where: str) -> Exception:
    if isinstance(error, StopIteration):
        # StopIteration would end the epoch, as if there were no more samples.
        told = RuntimeError(f"StopIteration was raised (in {where})")
        told.__cause__ = error
        return told
    with contextlib.suppress(Exception):  # of a class that refuses it
        _add_text(error, f"in {where}")
    return error


def _add_text(error: Exception, text: str) -> None:
    """Add `text` to an exception, keeping its class, so that it shows wherever it is printed.

    If the exception consists of one text, that text is extended, so ``str(error)`` shows it too.
    Any other exception gets a note. Tracebacks show notes, including those from which torch builds
    the text of an exception that comes from a worker process. An exception that is raised
    repeatedly has the latest text only.
    """
    arguments = error.args
    before = error.__dict__.get(_TEXT)
    if len(arguments) == 1 and type(arguments[0]) is str and type(error).__str__ in _PLAIN:
        own_text = arguments[0].removesuffix(f" ({before})")
        error.args = (f"{own_text} ({text})",)
    else:
        if before is not None and before in notes_of(error):
            error.__notes__.remove(before)
        error.add_note(text)
    error.__dict__[_TEXT] = text
