"""Shards that tasks on a Ray cluster pack.

The job lies in the object store once, and each worker process unpickles it once. Ray does not
repeat a task that was lost; we do, because the second one has to look at what the first one left.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
import pickle
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from headrace._base.contexts import context
from headrace._base.errors import CancelledError, HeadraceError, InvalidArgumentError, portable
from headrace._pack.place import Record
from headrace._pack.shard import Events, Job, pack_shard

__all__ = ["OWN_CLUSTER", "own_environment", "pack_shards", "require_usable"]

_TICK_S = 0.2
_STOP_S = 5.0
_CONNECT_S = 10.0
_TASKS_PER_CPU = 2
_MOST_ATTEMPTS = 4
_LOST = (
    "LocalRayletDiedError", "NodeDiedError", "ObjectLostError", "OutOfMemoryError",
    "WorkerCrashedError",
)  # fmt: skip
"""What Ray raises if a process or a machine is gone, or what it had to say."""
OWN_CLUSTER = {
    # All processes listen on 127.0.0.1, as they do elsewhere than on Linux.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Else Ray tells, after a while, that there is no agent for metrics.
    "RAY_enable_metrics_collection": "0",
}
"""The environment of a cluster that we start."""


def require_usable(job: Job) -> None:
    """Make sure, before anything is written, that other machines can do it.

    Raises:
        InvalidArgumentError: the job cannot be sent to them.
        HeadraceError: Ray is not installed.
    """
    _ray()
    _pickled(job.function, (job.function, job.stores, job.place))


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise HeadraceError("executor='ray' needs Ray: pip install 'headrace[ray]'") from error


def pack_shards(job: Job, numbers: Sequence[int], workers: int | None, events: Events) -> None:
    """Pack these shards, so many at a time.

    Raises:
        InvalidArgumentError: a worker cannot have the job's function.
        HeadraceError: there is no Ray at ``RAY_ADDRESS``; a shard was lost again and again.
        Exception: what the first one that failed raised; the others were ended.
    """
    ray = _ray()
    pickled = _pickled(job.function, job)
    with _cluster(ray):
        lost = tuple(getattr(ray.exceptions, name) for name in _LOST)
        # In a list, tasks are given the reference instead of the bytes.
        held = [ray.put(pickled)]
        task = ray.remote(num_cpus=1, max_retries=0, scheduling_strategy="SPREAD")(_pack_one)
        left = iter(numbers)
        under_way: dict[Any, tuple[int, int]] = {}
        try:
            while True:
                most = workers or _TASKS_PER_CPU * _cpus(ray)
                while len(under_way) < most and (number := next(left, None)) is not None:
                    under_way[task.remote(held, number, 0)] = number, 0
                if not under_way:
                    break
                done, _ = ray.wait(list(under_way), timeout=_TICK_S)
                for each in done:
                    number, attempt = under_way.pop(each)
                    try:
                        outcome = ray.get(each)
                    except lost as error:
                        if attempt + 1 == _MOST_ATTEMPTS:
                            raise HeadraceError(
                                f"shard {number} was begun {_MOST_ATTEMPTS} times, and each time "
                                f"its process was lost ({_first_line(error)}). Shards that are "
                                "whole stay; the same call goes on"
                            ) from error
                        under_way[task.remote(held, number, attempt + 1)] = number, attempt + 1
                        continue
                    except ray.exceptions.TaskCancelledError as error:
                        raise CancelledError("packing was stopped: Ray cancelled it") from error
                    except ray.exceptions.RayError as error:
                        raise HeadraceError(f"Ray cannot pack shard {number}: {error}") from error
                    if isinstance(outcome, Exception):
                        raise outcome
                    events.packed(number, outcome)
                    events.arrived(job.plan.source_bytes(*job.plan.shard(number)))
                events.tick()
        finally:
            _cancel(ray, list(under_way))  # after an error, also after Ctrl-C


def _cancel(ray: Any, tasks: list[Any]) -> None:
    """End tasks so that they put away what they write; after a while, by ending their processes."""
    for each in tasks:
        ray.cancel(each)
    if tasks:
        _, left = ray.wait(tasks, num_returns=len(tasks), timeout=_STOP_S)
        for each in left:
            ray.cancel(each, force=True)


def _cpus(ray: Any) -> int:
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


@context
def _cluster(ray: Any) -> Iterator[None]:
    """Use the cluster that the user is connected to, or connect to one, or start one."""
    if ray.is_initialized():
        yield
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    address = os.environ.get("RAY_ADDRESS", "")
    if address == "local" or not _connects(ray, address, quiet):
        with own_environment():
            ray.init(address="local", include_dashboard=False, **quiet)
    try:
        yield
    finally:
        ray.shutdown()


def _connects(ray: Any, address: str, quiet: dict[str, Any]) -> bool:
    """Connect to a cluster; without an address, to one that runs here. False: none does.

    Raises:
        HeadraceError: there is none at the address.
    """
    _require_reachable(address)
    try:
        ray.init(address=address or "auto", **quiet)
    except ConnectionError as error:
        if address:
            raise HeadraceError(f"there is no Ray at {address} (RAY_ADDRESS)") from error
        return False
    return True


def _require_reachable(address: str) -> None:
    """Make sure that somebody listens there: Ray itself tries for minutes, and says so in its logs.

    Raises:
        HeadraceError: nobody does.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():  # "auto", or what Ray knows by itself
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise HeadraceError(f"there is no Ray at {address} (RAY_ADDRESS): {error}") from error


@context
def own_environment() -> Iterator[None]:
    """Let a cluster that is started now be one for this machine alone, which sends nothing."""
    constants: Any = importlib.import_module("ray._private.ray_constants")
    before = {name: os.environ.get(name) for name in OWN_CLUSTER}
    enabled = getattr(constants, "ENABLE_RAY_CLUSTER", True)
    os.environ.update(OWN_CLUSTER)
    constants.ENABLE_RAY_CLUSTER = False  # it has read the variable already
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = enabled
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _pickled(function: Any, what: object) -> bytes:
    """Return `what`, and with it `function`, if that is in a module of the current folder."""
    cloudpickle = importlib.import_module("ray.cloudpickle")
    module = _module_of(function)
    by_value = (
        module is not None
        and _is_here(module)
        and module.__name__ not in cloudpickle.list_registry_pickle_by_value()
    )
    if by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(what))
    except Exception as error:
        raise InvalidArgumentError(
            f"executor='ray' cannot send the job to other machines: {error}"
        ) from error
    finally:
        if by_value:
            cloudpickle.unregister_pickle_by_value(module)


def _module_of(function: Any) -> ModuleType | None:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__module__", None) or type(function).__module__
    return sys.modules.get(name)


def _is_here(module: ModuleType) -> bool:
    """Return whether a module is a file of the current folder, which other machines do not have."""
    file = getattr(module, "__file__", None)
    if file is None:
        return False
    path = Path(file).resolve()
    return path.is_relative_to(Path.cwd()) and not path.is_relative_to(Path(sys.prefix).resolve())


# ---- in the workers

_jobs: dict[str, Job] = {}
"""The job that this process packs shards of, by the id of the object that has it."""


def _pack_one(held: list[Any], number: int, attempt: int) -> Record | Exception:
    """Pack a shard. An error is returned: if it is raised, Ray wraps it into one of its own."""
    try:
        job = _job_of(held[0])
        if attempt > 0:  # it may have been packed before its process was lost
            record = job.place.look_again(number)
            if record is not None:
                return record
        return pack_shard(job, number)
    except KeyboardInterrupt:  # Ray's cancel
        raise
    except BaseException as error:
        return portable(error)


def _job_of(reference: Any) -> Job:
    name = reference.hex()
    if name not in _jobs:
        _jobs.clear()
        pickled = _ray().get(reference)
        try:
            _jobs[name] = pickle.loads(pickled)
        except Exception as error:
            raise InvalidArgumentError(
                f"executor='ray': a worker cannot have the function ({error}): each machine needs "
                "the modules that it imports"
            ) from error
    return _jobs[name]
