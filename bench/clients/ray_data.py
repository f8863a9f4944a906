"""Files as datasets of Ray Data: headrace's, and Ray's own `read_binary_files`."""

from __future__ import annotations

from typing import Any

from bench.clients.measure import Answer, check_all, measured, objects_of


def _cluster_cpu_s() -> float:
    """CPU seconds of this process and of every process of the cluster that it has started."""
    import psutil

    this = psutil.Process()
    total = 0.0
    for process in (this, *this.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        # Of children that have ended, too: Ray ends workers that it does not need.
        total += times.user + times.system
        if process != this:
            total += times.children_user + times.children_system
    return total


def _dataset(request: Answer, times: int) -> Any:
    """A dataset that has the folder so many times, as if it were so much larger."""
    import ray.data

    import headrace.ray

    folders = [request["folder"]] * times
    if request["way"] == "headrace":
        return headrace.ray.read_objects(folders)
    return ray.data.read_binary_files(folders, include_paths=True)


def read(request: Answer) -> Answer:
    """Read a folder once and check every row; then, measured, a dataset that has it `times`."""
    import logging

    import ray

    from headrace._pack.on_ray import own_environment

    with own_environment():
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=512 << 20,
        )
        ray.data.DataContext.get_current().enable_progress_bars = False
        names, sums = objects_of(request)
        column = "url" if request["way"] == "headrace" else "path"
        rows = {
            row[column].rsplit("/", 1)[1]: row["bytes"] for row in _dataset(request, 1).take_all()
        }
        check_all(names, (rows[name.rsplit("/", 1)[-1]] for name in names), sums)
        del rows

        def take(_: float) -> tuple[int, int]:
            object_count = size_bytes = 0
            dataset = _dataset(request, request["times"])
            for batch in dataset.iter_batches(batch_size=None, batch_format="pyarrow"):
                object_count += batch.num_rows
                size_bytes += batch.column("bytes").nbytes
            return object_count, size_bytes

        answer = measured(take, 0, cpu=_cluster_cpu_s)
        ray.shutdown()
    assert answer["objects"] == request["times"] * len(names)
    return answer
