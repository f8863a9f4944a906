"""What every client measures with: the clocks, and the check that the bytes are the right ones."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import google_crc32c

Answer = dict[str, Any]

# As many objects as are compared before the clock starts.
CHECKED_OBJECTS = 256


def status_bytes(field: str) -> int:
    """Of this process's memory: VmRSS is what it has, VmHWM the most since `forget_peak`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) << 10
    raise KeyError(field)


def forget_peak() -> None:
    """From now on VmHWM is what is reached from here: importing takes more than small work does."""
    Path("/proc/self/clear_refs").write_text("5")


def cpu_s() -> float:
    """CPU seconds of this process so far, user and system, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def family_cpu_s() -> float:
    """The same with all children, those that run now and those that were waited for."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    children = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread has ended
            children += (task / "children").read_text().split()
    ticks = 0
    for child in children:
        # The name, in parentheses, may hold anything; utime and stime are the 14th and 15th field.
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return cpu_s() + ended.ru_utime + ended.ru_stime + ticks / os.sysconf("SC_CLK_TCK")


def measured(
    read: Callable[[float], tuple[int, int]],
    duration_s: float,
    *,
    cpu: Callable[[], float] = cpu_s,
) -> Answer:
    """`read` starts objects for that many seconds and gives their number and bytes when all came"""
    begin_cpu_s, begin_s = cpu(), time.perf_counter()
    object_count, size_bytes = read(duration_s)
    return {
        "objects": object_count,
        "bytes": size_bytes,
        "wall_s": time.perf_counter() - begin_s,
        "cpu_s": cpu() - begin_cpu_s,
    }


def connections(endpoint: str) -> int:
    """Connections to the endpoint's port that are established now, by the kernel's own table."""
    remote = f":{int(endpoint.rsplit(':', 1)[1]):04X}"
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return sum(row[2].endswith(remote) and row[3] == "01" for row in rows)


def batches_for(items: Sequence[Any], batch_size: int, duration_s: float) -> Iterator[list[Any]]:
    """Batches of the items, round and round, until the time is over."""
    until = time.perf_counter() + duration_s
    begin = 0
    while time.perf_counter() < until:
        end = begin + batch_size
        batch = list(items[begin:end])
        # The last batch of a round goes on with the first items, so that all are of one size.
        while len(batch) < batch_size:
            batch += items[: batch_size - len(batch)]
        begin = end % len(items)
        yield batch


def objects_of(request: Answer) -> tuple[list[str], list[int]]:
    """Names and CRC32Cs of the objects that a client reads which does not list."""
    names, sums = json.loads(Path(request["objects_file"]).read_text())
    return names, sums


def check(name: str, body: Any, crc32c: int) -> None:
    """Compare with the sum of the bytes that the bench has made, by another implementation."""
    # google_crc32c takes bytes and no view.
    if google_crc32c.value(bytes(body)) != crc32c:
        raise AssertionError(f"{name} was read with other bytes than listed")


def check_all(names: Iterable[str], bodies: Iterable[Any], sums: Iterable[int]) -> None:
    """The same for many, which come in the order of their names."""
    for name, body, crc32c in zip(names, bodies, sums, strict=True):
        check(name, body, crc32c)
