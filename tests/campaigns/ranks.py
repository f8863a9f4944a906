"""Processes that save together, case after case: torch is imported, and they have met, once."""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any

from tests.checkpoint_distributed.ranks import CONTEXT, PRELOAD

# Each kill takes new processes, and what they import is most of the time.
CONTEXT.set_forkserver_preload(
    [*PRELOAD, "headrace.lightning", "headrace.compat.dataflux_pytorch.lightning", __name__]
)

# A case takes a second at most; a rank that is silent for so long is stuck.
_PATIENCE_S = 120.0


class World:
    """`size` ranks that stay, and do what they are told.

    Args:
        in_group: whether they are ranks of a process group; if not, they are just processes.
    """

    def __init__(self, size: int, *, in_group: bool = True) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.processes: list[Any] = []
        self._pipes: list[Connection] = []
        for rank in range(size):
            ours, theirs = CONTEXT.Pipe()
            process = CONTEXT.Process(
                target=_serve,
                args=(rank, size if in_group else 0, f"{self._folder.name}/meet", theirs),
            )
            process.start()
            theirs.close()
            self.processes.append(process)
            self._pipes.append(ours)

    def begin(self, function: Callable[..., Any], *args: Any, ranks: int) -> None:
        """Have the first ranks call it. `answers` waits for them."""
        for pipe in self._pipes[:ranks]:
            pipe.send((function, args))

    def is_done(self, *, within_s: float) -> bool:
        """Whether any rank has an answer, or has died; waits for that so long."""
        return bool(wait(self._pipes, timeout=within_s))

    def answers(self, ranks: int) -> list[str | None]:
        """What each rank's call raised, as text; None where it returned. "died" if it did."""
        left = dict(enumerate(self._pipes[:ranks]))
        found: list[str | None] = [None] * ranks
        while left:
            ready = wait(list(left.values()), timeout=_PATIENCE_S)
            if not ready:
                raise TimeoutError(f"ranks {sorted(left)} say nothing")
            for rank, pipe in list(left.items()):
                if pipe in ready:
                    del left[rank]
                    try:
                        found[rank] = pipe.recv()
                    except (EOFError, ConnectionResetError):
                        found[rank] = "died"
        return found

    def end(self, victim: int) -> list[str | None]:
        """Kill all ranks once one other than `victim` has an answer; return what they had to say.

        The others may wait for the victim, or for whoever has heard of its death, as long as their
        group is patient; what starts jobs kills them then, too.
        """
        if others := self._pipes[:victim] + self._pipes[victim + 1 :]:
            wait(others, timeout=_PATIENCE_S)
        for process, pipe in zip(self.processes, self._pipes, strict=True):
            if not pipe.poll():
                process.kill()
        return self.answers(len(self._pipes))

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self.processes:
            process.join(timeout=40)
            if process.is_alive():
                process.kill()
                process.join()
        self._folder.cleanup()


def _serve(rank: int, size: int, meeting_point: str, pipe: Connection) -> None:
    import torch
    import torch.distributed as dist

    from tests.campaigns import ways

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ.update(GLOO_SOCKET_IFNAME="lo", MASTER_ADDR="127.0.0.1")
    # Errors are answers here; torch prints each of them, with where it came by.
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 2)
    if size:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{meeting_point}",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=_PATIENCE_S),
        )
        ways.make_groups()
    with ways.in_miniature(), contextlib.suppress(EOFError):
        while True:
            function, args = pipe.recv()
            try:
                function(*args)
                answer = None
            except BaseException as error:
                answer = f"{type(error).__name__}: {error}"
            pipe.send(answer)
    pipe.close()
    # What a peer that was killed has left of a group is not worth an orderly end.
    os._exit(0)
