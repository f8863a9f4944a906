"""Ports for servers that cannot be told to take any."""

from __future__ import annotations

import random
import socket
from pathlib import Path

__all__ = ["free_port"]


def free_port() -> int:
    """Return a port of loopback that is free now, below those that the kernel gives to clients.

    Between now and the moment at which somebody listens there, nobody gets it by chance.
    """
    limits = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    while True:
        port = random.SystemRandom().randrange(10_000, int(limits[0]))
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
