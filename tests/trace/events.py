"""Reads trace files, and checks what must hold of each."""

from __future__ import annotations

import collections
import json
import os
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def load(path: str | os.PathLike[str]) -> list[Event]:
    """Return the events of a file in which everything is as the viewers need it."""
    whole = json.loads(Path(path).read_text())
    assert set(whole) == {"displayTimeUnit", "otherData", "traceEvents"}
    events: list[Event] = whole["traceEvents"]
    named = {event["tid"] for event in events if event["name"] == "thread_name"}
    for event in events:
        assert event["ph"] in "XMbe"
        assert isinstance(event["pid"], int)
        if event["ph"] != "M":
            assert event["ts"] > 0
            assert event["tid"] in named
    _check_nesting(events)
    _check_pairs(events)
    return events


def dropped(path: str | os.PathLike[str]) -> int:
    """Return how many records had no room."""
    number: int = json.loads(Path(path).read_text())["otherData"]["dropped"]
    return number


def spans(events: list[Event], category: str, name: str | None = None) -> list[Event]:
    """Return the spans of a category."""
    return [
        event
        for event in events
        if event["ph"] == "X" and event["cat"] == category and name in (None, event["name"])
    ]


def requests(events: list[Event]) -> list[dict[str, Any]]:
    """Return the facts of each attempt at a request."""
    return [event["args"] for event in spans(events, "request")]


def _ns(event: Event) -> tuple[int, int]:
    begin = round(event["ts"] * 1000)
    return begin, begin + round(event["dur"] * 1000)


def _check_nesting(events: list[Event]) -> None:
    """On each track spans lie inside one another, or one after the other."""
    tracks = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["tid"]].append(event)
    for track in tracks.values():
        outer: list[int] = []
        # Of spans that begin together the longest is the outermost.
        for event in sorted(track, key=lambda each: (_ns(each)[0], -_ns(each)[1])):
            begin, end = _ns(event)
            assert begin <= end
            while outer and outer[-1] <= begin:
                outer.pop()
            assert not outer or end <= outer[-1], event
            outer.append(end)


def _check_pairs(events: list[Event]) -> None:
    """Whatever begins ends, later."""
    begun = {}
    for event in events:
        if event["ph"] == "b":
            assert event["id2"]["local"] not in begun
            begun[event["id2"]["local"]] = event["ts"]
        elif event["ph"] == "e":
            assert begun.pop(event["id2"]["local"]) <= event["ts"]
    assert not begun
