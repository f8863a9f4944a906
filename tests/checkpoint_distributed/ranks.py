"""Several ranks, each a process, talking by gloo over loopback."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

from tests.torchrun import NOT_MET, STARTS

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
    for start in range(STARTS):
        try:
            return _run_once(world_size, function, args, init)
        except RankError as error:
            if start + 1 == STARTS or not any(NOT_MET in text for text in error.errors.values()):
                raise
    raise AssertionError("unreachable")


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
        errors = {}
        for rank, pipe in enumerate(pipes):
            try:
                fine, value = pipe.recv()
            except EOFError:
                fine, value = False, "ended without an answer"
            if fine:
                results[rank] = value
            else:
                errors[rank] = value
        for process in processes:
            process.join()
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
    os.environ.update(GLOO_SOCKET_IFNAME="lo", MASTER_ADDR="127.0.0.1")
    try:
        if meeting_point is not None:
            dist.init_process_group(
                "gloo",
                init_method=f"file://{meeting_point}",
                rank=rank,
                world_size=world_size,
                timeout=timedelta(seconds=150),
            )
        pipe.send((True, function(rank, *args)))
    except BaseException as error:
        pipe.send((False, "".join(traceback.format_exception_only(error)) + str(error)))
    finally:
        pipe.close()
        if dist.is_initialized():
            dist.destroy_process_group()
