"""What a campaign tries: a way of saving, a request of it, and what becomes of that request.

A case has a name that says all of it, ``save/7/reset/once``: the seventh request that the server
sees of a `save` is reset, and everything after it is fine. ``lasting`` is that request and all
after it.
"""

from __future__ import annotations

import datetime
import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Fault:
    """What a server does in place of a good answer."""

    action: dict[str, Any] | str
    curable: bool = True
    """Whether a save succeeds all the same if it comes once."""
    stalls: bool = False
    """One of them is ended by a time-out, so that time-outs must be short."""


FAULTS: dict[str, Fault] = {
    "refused": Fault("refuse"),
    "reset": Fault("reset"),
    "stalled": Fault("stall_head", stalls=True),
    "stalled in the answer": Fault({"stall_after_bytes": 1}, stalls=True),
    "cut request": Fault({"cut_request_after_bytes": 100}),
    "cut answer": Fault({"cut_after_bytes": 1}),
    "lost answer": Fault("lost_answer"),
    "429": Fault({"status": 429}),
    "500": Fault({"status": 500}),
    "503": Fault({"status": 503}),
    "412": Fault({"status": 412}, curable=False),
    "wrong checksum": Fault("wrong_checksum", curable=False),
}


@dataclass(frozen=True)
class Case:
    """One save with one fault."""

    way: str
    position: int
    """Which request of the save, counted from 1 as the server sees them."""
    fault: str
    lasting: bool

    def __str__(self) -> str:
        return f"{self.way}/{self.position}/{self.fault}/{'lasting' if self.lasting else 'once'}"

    @staticmethod
    def named(name: str) -> Case:
        """The case of that name."""
        way, position, fault, how_long = name.split("/")
        if fault not in FAULTS or how_long not in ("once", "lasting"):
            raise ValueError(f"{name!r}: a case is called way/position/fault/once or .../lasting")
        return Case(way, int(position), fault, how_long == "lasting")

    @property
    def needs_short_timeouts(self) -> bool:
        """Whether a time-out ends it. Throttled requests go on until their deadline."""
        return FAULTS[self.fault].stalls or (self.lasting and self.fault == "429")

    def rules(self) -> list[dict[str, Any]]:
        """The rules for the fault server, beginning with the save's first request."""
        window: dict[str, Any] = {"from": self.position}
        if not self.lasting:
            window["count"] = 1
        if self.fault == "refused":
            # Each request on a connection of its own: that of the n-th request is the n-th.
            return [
                {**window, "action": "refuse"},
                {"match": {}, "action": {"close_after": "announced"}},
            ]
        return [{"match": {}, **window, "action": FAULTS[self.fault].action}]


def all_cases(way: str, requests: int) -> Iterator[Case]:
    """Every fault at every request of a save that makes so many."""
    for position in range(1, requests + 1):
        for fault in FAULTS:
            for lasting in (False, True):
                yield Case(way, position, fault, lasting)


def seed_of_today() -> int:
    """``HEADRACE_CAMPAIGN_SEED``, or the date (UTC): tomorrow's sample is another one."""
    given = os.environ.get("HEADRACE_CAMPAIGN_SEED")
    return int(given or datetime.datetime.now(datetime.UTC).strftime("%Y%m%d"))


def sample(way: str, requests: int, count: int, seed: int) -> list[Case]:
    """So many cases of a way, each at most once."""
    cases = list(all_cases(way, requests))
    return random.Random(f"{seed} {way}").sample(cases, min(count, len(cases)))


def shares(weights: Mapping[str, int], total: int) -> dict[str, int]:
    """Deal `total` out by weight, exactly."""
    left, weight_left, dealt = total, sum(weights.values()), {}
    for name, weight in weights.items():
        dealt[name] = round(left * weight / weight_left)
        left, weight_left = left - dealt[name], weight_left - weight
    return dealt
