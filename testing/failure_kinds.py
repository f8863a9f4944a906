"""What kind of failure a Python test had: `tools/unsteady.py` runs only some of them again.

The root's `conftest.py` loads these hooks. Each failed test gets two properties in the JUnit
report: `nodeid`, and `kind`, which is `assertion` or the reason why the failure counts at once. A
test without them has ended its process.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Generator
from typing import Any

import pytest

ASSERTION = "assertion"

# What a child interpreter, a sanitizer or faulthandler leaves in the output of a test.
_CRASH = re.compile(
    r"AddressSanitizer|ThreadSanitizer|LeakSanitizer|UndefinedBehaviorSanitizer|: runtime error: "
    r"|Fatal Python error|Segmentation fault|core dumped|\bSIG(?:SEGV|ABRT|BUS|ILL|FPE)\b"
    r"|where -\d+ = |assert -\d+ (?:==|in) |AssertionError: -\d+\b"
    r"|\bcode -\d+\b|\bcode 1(?:3[1-9]|4[0-2])\b"
)
_HANG = re.compile(
    r"from pytest-timeout|no end within \d|TimeoutExpired|did not end|where None = <\w*Process"
)
_WRONG_BYTES = re.compile(r"CorruptDataError|\bkCorrupt\b|went unseen|is not what was saved")
# Whoever waits for a child by hand gets a number that may mean anything.
_OF_CHILD = re.compile(r"waitpid|waitstatus|\bstatus\b|exitcode|\.wait\(")
# The statement in a traceback that a child printed, and the exception. Lines may have a prefix.
_IN_CHILD = re.compile(r'^(.*)  File ".*", line \d+, in .*\n\1    (assert\b.*)$', re.M)
_RAISED_IN_CHILD = re.compile(
    r"^(.*)Traceback \(most recent call last\):\n(?:\1\s+.*\n)+\1([\w.]+)", re.M
)
# Assertions about content, by what their statements call or compare.
_ABOUT_CONTENT = re.compile(
    r"torch\.equal|array_equal|assert_close|allclose|\bcmp\b|crc|checksum|digest|md5|sha256"
    r"|tobytes|read_bytes|\.read\(|\.bytes\(|\bcontents?\b|\bdata\b|tolist|_equal\b"
    r"|\bbits\(|\braw\(|\bsame\("
)

_content_was_compared = pytest.StashKey[bool]()


def kind_of(
    error: BaseException, told: str, statement: str, *, of_content: bool, searched: bool
) -> str:
    """Return `ASSERTION`, or why the failure must not run again.

    Args:
        error: what ended the test.
        told: all that the report says but for the source, with what the test printed.
        statement: the one that failed.
        of_content: bytes, tensors or arrays were compared and differed.
        searched: hypothesis found the example.
    """
    if _CRASH.search(told):
        return "crash"
    if _HANG.search(told):
        return "hang"
    in_child = [found for _, found in _IN_CHILD.findall(told)]
    statements = [statement, *in_child]
    if of_content or _WRONG_BYTES.search(told) or any(map(_ABOUT_CONTENT.search, statements)):
        return "wrong bytes"
    if any(map(_OF_CHILD.search, statements)):
        return "end of a child"
    # Nobody printed what a child has compared, nor all of a statement of several lines.
    if any("==" in each or each.endswith("(") for each in in_child):
        return "comparison in a child"
    if searched:
        return "hypothesis"
    for _, name in _RAISED_IN_CHILD.findall(told):
        if name != "AssertionError":
            return f"exception {name} in a child"
    if isinstance(error, (AssertionError, pytest.fail.Exception)):
        return ASSERTION
    return f"exception {type(error).__name__}"


def _is_content(value: object) -> bool:
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(map(_is_content, value))
    if isinstance(value, dict):
        return any(map(_is_content, (*value, *value.values())))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return any(_is_content(getattr(value, each.name)) for each in dataclasses.fields(value))
    return isinstance(value, (bytes, bytearray, memoryview)) or (
        type(value).__name__ in ("Tensor", "Parameter", "ndarray", "Sample")
    )


def pytest_assertrepr_compare(config: pytest.Config, left: object, right: object) -> None:
    """See what an assertion that fails has compared."""
    if _is_content(left) or _is_content(right):
        config.stash[_content_was_compared] = True


def _statement(entry: Any) -> str:
    # Of the import system's own code there is no source.
    return "" if entry.frame.code.fullsource is None else str(entry.statement)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the kind of a failure into the report."""
    report = yield
    of_content = item.config.stash.get(_content_was_compared, False)
    item.config.stash[_content_was_compared] = False
    if report.failed and call.excinfo is not None:
        # Source that has a word such as TimeoutExpired says nothing of what has happened.
        lines = report.longreprtext.splitlines()
        errors = [line for line in lines if line.startswith("E")] or lines
        told = "\n".join([*errors, *(text for _, text in report.sections)])
        kind = kind_of(
            call.excinfo.value,
            told,
            _statement(call.excinfo.traceback[-1]),
            of_content=of_content,
            searched=item.get_closest_marker("hypothesis") is not None,
        )
        item.user_properties += [("nodeid", item.nodeid), ("kind", kind)]
    return report
