"""What one read costs in instructions that hold a cache line against all other cores.

valgrind counts every instruction of `headrace-bench-reads` that is executed, and objdump tells
which of them are locked: atomic changes of memory, mutexes among them. On two cores they hardly
show in any time; on many they are what limits the rate. Two runs of different length are
subtracted, so that the start and the end of a program do not count.
"""

from __future__ import annotations

import collections
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.faultserver.client import FaultServer

OBJECTS = 128
SHORT, LONG = 4, 12  # batches of all objects

# These lock once in 20 ms, and valgrind is slow: their share says how long a run took.
BY_TIME = ("headrace::Admission::report(", "headrace::IoThread::arm_sweep(")

LOCKED = re.compile(r"\s+([0-9a-f]+):\s+(?:lock\b|xchg\s.*\()")


def program() -> str:
    """Built beside the package that is tested."""
    root = Path(__file__).resolve().parents[2]
    found = root / "build" / "release" / "bench" / "headrace-bench-reads"
    # `make build` builds it. A skip would let CI pass without any count.
    assert found.exists(), f"{found} is not built: run `make build`"
    return str(found)


class Counts:
    """Executed instructions by object file and address, and calls by caller and callee."""

    def __init__(self, file: Path) -> None:
        self.instructions: collections.Counter[tuple[str, int]] = collections.Counter()
        self.calls: collections.Counter[tuple[str, str]] = collections.Counter()
        self.functions: dict[tuple[str, int], str] = {}
        binary = function = callee = ""
        is_cost_of_call = False
        for line in file.read_text().splitlines():
            if line.startswith("ob="):
                binary = line[3:]
            elif line.startswith("fn="):
                function = line[3:]
            elif line.startswith("cfn="):
                callee = line[4:]
            elif line.startswith("calls="):
                self.calls[function, callee] += int(line[6:].split()[0])
                is_cost_of_call = True
            elif line.startswith("0x"):
                if not is_cost_of_call:
                    address, _, cost = line.split()
                    self.instructions[binary, int(address, 16)] += int(cost)
                    self.functions[binary, int(address, 16)] = function
                is_cost_of_call = False


def counted(url: str, batches: int, folder: Path) -> tuple[int, Counts]:
    """How many objects were read, and what that took."""
    file = folder / f"callgrind.{batches}"
    options = ["--tool=callgrind", "--dump-instr=yes", f"--callgrind-out-file={file}"]
    options += ["--compress-strings=no", "--compress-pos=no"]
    done = subprocess.run(
        ["valgrind", *options, program(), "gs://bucket", url, str(batches)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout), Counts(file)


def locked_addresses(binary: str) -> set[int]:
    """Of all locked instructions of a program or library."""
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", binary],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return {int(found[1], 16) for found in map(LOCKED.match, listing.splitlines()) if found}


class PerRead:
    """What a read takes, on average."""

    def __init__(self, url: str, folder: Path) -> None:
        short_reads, short = counted(url, SHORT, folder)
        long_reads, long = counted(url, LONG, folder)
        reads = long_reads - short_reads
        assert reads == (LONG - SHORT) * OBJECTS
        executed = long.instructions
        executed.subtract(short.instructions)
        self.instructions = sum(executed.values()) / reads
        binaries = {binary for binary, _ in executed if Path(binary).is_file()}
        locked = {(each, at) for each in binaries for at in locked_addresses(each)}
        by_function: collections.Counter[str] = collections.Counter()
        for place in locked & long.functions.keys():
            by_function[long.functions[place]] += executed[place]
        self.locked = sum(by_function.values()) / reads
        # What the engine itself changes is there for several threads.
        self.locked_by_engine = {
            name: count / reads
            for name, count in by_function.items()
            if "headrace::" in name and not name.startswith("boost::asio::") and count > 0
        }
        long.calls.subtract(short.calls)
        self.mutexes_by_engine = {
            caller: count / reads
            for (caller, callee), count in long.calls.items()
            if callee.startswith("pthread_mutex_lock")
            and caller.startswith("headrace::")
            and not caller.startswith(BY_TIME)
            and count > 0
        }


@pytest.fixture
def server() -> Iterator[FaultServer]:
    for tool in ("valgrind", "objdump"):
        assert shutil.which(tool), f"{tool} is missing: run `make deps`"
    with FaultServer(threads=2, log_capacity=1, md5=False) as running:
        running.bucket("bucket")
        yield running


@pytest.mark.parametrize("size_bytes", [1 << 10, 100 << 10], ids=["1 KiB", "100 KiB"])
def test_a_read_hardly_writes_to_what_threads_share(
    server: FaultServer, tmp_path: Path, size_bytes: int
) -> None:
    for i in range(OBJECTS):
        server.put("bucket", f"object-{i:03d}", i.to_bytes(4, "big") * (size_bytes // 4))
    read = PerRead(server.url, tmp_path)
    report = (
        f"{read.instructions:.0f} instructions, {read.locked:.2f} of them locked\n"
        f"{read.locked_by_engine}\n{read.mutexes_by_engine}"
    )
    print(report)
    # The bounds below would hold as well if nothing had been counted.
    assert read.instructions > 1000, report
    assert read.locked > 1, report
    assert read.locked_by_engine, report
    assert read.mutexes_by_engine, report
    # One to end the flight of each read, and one to give its block back; all else is for many.
    assert sum(read.locked_by_engine.values()) <= 3.0, report
    assert sum(read.mutexes_by_engine.values()) <= 0.5, report
    # With the mutex of Asio's queue, which other threads only take to post, and those of malloc.
    assert read.locked <= 24, report
