"""Several ranks, each a process, talking by gloo over loopback."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import tempfile
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

from tests.torchrun import NOT_MET

# Its children have these imported already. They are no daemons: some start processes themselves.
CONTEXT = multiprocessing.get_context("forkserver")
PRELOAD = [
    "pytest",
    "torch",
    "torch.distributed.checkpoint",
    "torch.distributed.tensor",
    "torch._dynamo",  # DTensor imports it when first used
    "headrace.checkpoint._distributed",
]
CONTEXT.set_forkserver_preload(PRELOAD)


class NotMetError(Exception):
    """Some ranks have not found each other, and none has run anything (tests/torchrun.py)."""


class RankError(Exception):
    """What some ranks have raised, by rank."""

    def __init__(self, errors: dict[int, str]) -> None:
        super().__init__("\n".join(f"rank {rank}: {text}" for rank, text in errors.items()))
        self.errors = errors


def run_ranks(
    world_size: int, function: Callable[..., Any], *args: Any, init: bool = True
) -> list[Any]:
    """Return what ``function(rank, *args)`` returns in each rank.

    A rank that ends without an answer counts as one that has raised.

    Args:
        init: have the ranks in a process group before the function is called.
    """
    for _ in range(2):
        with contextlib.suppress(NotMetError):
            return _run_once(world_size, function, args, init)
    return _run_once(world_size, function, args, init)


def _run_once(
    world_size: int, function: Callable[..., Any], args: tuple[Any, ...], init: bool
) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        processes, pipes = [], []
        for rank in range(world_size):
            ours, theirs = CONTEXT.Pipe(duplex=False)
            process = CONTEXT.Process(
                target=_main,
                args=(rank, world_size, f"{folder}/meet" if init else None, function, args, theirs),
            )
            process.start()
            theirs.close()
            processes.append(process)
            pipes.append(ours)
        results: list[Any] = [None] * world_size
        errors, not_met = {}, False
        for rank, pipe in enumerate(pipes):
            try:
                said, value = pipe.recv()
            except EOFError:
                said, value = "raised", "ended without an answer"
            if said == "returned":
                results[rank] = value
            else:
                errors[rank] = value
                not_met = not_met or said == "not met"
        for process in processes:
            process.join()
    if not_met:
        raise NotMetError(errors)
    if errors:
        raise RankError(errors)
    return results


def _main(
    rank: int,
    world_size: int,
    meeting_point: str | None,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    pipe: Connection,
) -> None:
    import torch
    import torch.distributed as dist

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    # With the barrier, none goes on where one has not met the others.
    os.environ.update(GLOO_SOCKET_IFNAME="lo", MASTER_ADDR="127.0.0.1", TORCH_DIST_INIT_BARRIER="1")
    try:
        if meeting_point is not None:
            try:
                dist.init_process_group(
                    "gloo",
                    init_method=f"file://{meeting_point}",
                    rank=rank,
                    world_size=world_size,
                    timeout=timedelta(seconds=50),
                )
            except RuntimeError as error:
                pipe.send(("not met", str(error)))
                return
        pipe.send(("returned", function(rank, *args)))
    except BaseException as error:
        text = "".join(traceback.format_exception_only(error)) + str(error)
        # Where the function has the ranks meet, such as by a Trainer.
        pipe.send(("not met" if meeting_point is None and NOT_MET in text else "raised", text))
    finally:
        pipe.close()
        if dist.is_initialized():
            dist.destroy_process_group()
