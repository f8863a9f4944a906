"""Ports for servers that cannot be told to take any."""

from __future__ import annotations

import random
import socket
from pathlib import Path

__all__ = ["free_port"]


def free_port() -> int:
    """Return a port of loopback that is free now, below those that the kernel gives to clients.

    Between now and the moment at which somebody listens there, the kernel gives it to nobody. Where
    the kernel gives nearly all, it is one of them.
    """
    limits = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    first_ephemeral = int(limits[0])
    for attempt in range(1000):
        is_below = first_ephemeral > 11_000 and attempt < 999
        port = random.SystemRandom().randrange(10_000, first_ephemeral) if is_below else 0
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(listener.getsockname()[1])
    raise RuntimeError("no free port on 127.0.0.1")
