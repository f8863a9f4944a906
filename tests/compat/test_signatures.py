"""Every public name of gcs-torch-dataflux 1.4.0 that we stand in for, with its parameters.

The table holds facts read from that package by `inspect.signature`. ``CPUS`` is ``os.cpu_count()``,
``DATASET_RETRY`` and ``LIBRARY_RETRY`` are retry policies.
"""

from __future__ import annotations

import importlib
import inspect
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headrace.compat._retry import Retry

MAP = "dataflux_pytorch.dataflux_mapstyle_dataset"
ITERABLE = "dataflux_pytorch.dataflux_iterable_dataset"
DOWNLOAD = "dataflux_core.download"
LIST = "dataflux_core.fast_list"
SPLIT = "dataflux_core.range_splitter"

_DATASET = (
    "project_name, bucket_name, config=Config(), data_format_fn=data_format_default, "
    "storage_client=None"
)
_CONFIG = (
    "sort_listing_results=False, max_composite_object_size=100000000, num_processes=CPUS, "
    "prefix=None, max_listing_retries=3, {}disable_compose=False, "
    "list_retry_config=DATASET_RETRY, download_retry_config=DATASET_RETRY"
)
_DOWNLOADS = (
    "project_name, bucket_name, objects, storage_client=None, "
    "dataflux_download_optimization_params=None, {}retry_config=LIBRARY_RETRY"
)
_QUEUES = (
    "name, gcs_project, bucket, send_work_stealing_needed_queue, heartbeat_queue, "
    "direct_work_available_queue, idle_queue, unidle_queue, results_queue, metadata_queue, "
    "error_queue, start_range, end_range, retry_config=LIBRARY_RETRY, client=None, "
    "skip_compose=True, "
)
_CLASSES = "allowed_storage_classes=['STANDARD']"

CALLABLES = {
    f"{MAP}.Config": _CONFIG.format("threads_per_process=1, "),
    f"{MAP}.DataFluxMapStyleDataset": _DATASET,
    f"{MAP}.DataFluxMapStyleDataset.__len__": "self",
    f"{MAP}.DataFluxMapStyleDataset.__getitem__": "self, idx",
    f"{MAP}.DataFluxMapStyleDataset.__getitems__": "self, indices",
    f"{MAP}.DataFluxMapStyleDataset._list_GCS_blobs_with_retry": "self",
    f"{MAP}.DataFluxMapStyleDataset.__getstate__": "self",
    f"{MAP}.DataFluxMapStyleDataset.__setstate__": "self, state",
    f"{MAP}.data_format_default": "data",
    f"{ITERABLE}.Config": _CONFIG.format(""),
    f"{ITERABLE}.DataFluxIterableDataset": _DATASET,
    f"{ITERABLE}.DataFluxIterableDataset.__iter__": "self",
    f"{ITERABLE}.DataFluxIterableDataset._list_GCS_blobs_with_retry": "self",
    f"{ITERABLE}.data_format_default": "data",
    f"{DOWNLOAD}.DataFluxDownloadOptimizationParams": "max_composite_object_size",
    f"{DOWNLOAD}.clean_composed_object": "composed_object",
    f"{DOWNLOAD}.compose": (
        "project_name, bucket_name, destination_blob_name, objects, storage_client=None, "
        "retry_config=LIBRARY_RETRY"
    ),
    f"{DOWNLOAD}.decompose": (
        "project_name, bucket_name, composite_object_name, objects, storage_client=None, "
        "retry_config=LIBRARY_RETRY"
    ),
    f"{DOWNLOAD}.dataflux_download": _DOWNLOADS.format("threading_enabled=False, "),
    f"{DOWNLOAD}.dataflux_download_lazy": _DOWNLOADS.format("threading_enabled=False, "),
    f"{DOWNLOAD}.dataflux_download_parallel": _DOWNLOADS.format("parallelization=1, "),
    f"{DOWNLOAD}.dataflux_download_threaded": _DOWNLOADS.format("threads=1, "),
    f"{DOWNLOAD}.df_download_thread": "results_queue, " + _DOWNLOADS.format(""),
    f"{DOWNLOAD}.download_single": (
        "storage_client, bucket_name, object_name, retry_config=LIBRARY_RETRY"
    ),
    f"{DOWNLOAD}.term_signal_handler": "signal_num, frame",
    f"{LIST}.ListWorker": (
        f"{_QUEUES}list_directory_objects=False, prefix='', {_CLASSES}, max_retries=5"
    ),
    f"{LIST}.ListWorker.wait_for_work": "self",
    f"{LIST}.ListWorker.run": "self",
    f"{LIST}.ListingController": (
        "max_parallelism, project, bucket, sort_results=False, skip_compose=True, prefix='', "
        f"{_CLASSES}, retry_config=LIBRARY_RETRY"
    ),
    f"{LIST}.ListingController.run": "self",
    f"{LIST}.remove_prefix": "text, prefix",
    f"{LIST}.run_list_worker": f"{_QUEUES}prefix='', {_CLASSES}",
    f"{SPLIT}.GenerateSplitsOpts": "min_int_range, num_splits, start_range, end_range",
    f"{SPLIT}.MinimalIntRange": "start_int, end_int, min_len",
    f"{SPLIT}.RangeSplitter": "alphabet_map, sorted_alphabet",
    f"{SPLIT}.RangeSplitter.split_range": "self, start_range, end_range, num_splits",
    f"{SPLIT}.RangeSplitter.generate_splits": "self, opts",
    f"{SPLIT}.RangeSplitter.int_to_string": "self, split_point, string_len",
    f"{SPLIT}.RangeSplitter.string_to_minimal_int_range": (
        "self, start_range, end_range, num_splits"
    ),
    f"{SPLIT}.RangeSplitter.is_range_equal_with_padding": "self, start_range, end_range",
    f"{SPLIT}.RangeSplitter.add_characters_to_alphabet": "self, characters",
    f"{SPLIT}.get_char_or_default": "characters, index, default_char",
    f"{SPLIT}.new_rangesplitter": "alphabet",
    "dataflux_core.user_agent.add_dataflux_user_agent": "storage_client",
}

CONSTANTS = {
    f"{MAP}.FORK": "fork",
    f"{MAP}.CREATE": "storage.objects.create",
    f"{MAP}.DELETE": "storage.objects.delete",
    f"{ITERABLE}.FORK": "fork",
    f"{ITERABLE}.CREATE": "storage.objects.create",
    f"{ITERABLE}.DELETE": "storage.objects.delete",
    f"{DOWNLOAD}.COMPOSED_PREFIX": "dataflux-composed-objects/",
    f"{DOWNLOAD}.MAX_NUM_OBJECTS_TO_COMPOSE": 32,
    f"{DOWNLOAD}.current_composed_object": None,
    f"{LIST}.COMPOSED_PREFIX": "dataflux-composed-objects/",
    f"{LIST}.DEFAULT_ALLOWED_CLASS": ["STANDARD"],
    "dataflux_core.user_agent.user_agent_string": "dataflux/1.0",
}

# seconds in all, before the first retry, between two at most; the factor
RETRIES = {
    f"{MAP}.MODIFIED_RETRY": (100000.0, 1.0, 30.0, 1.5),
    f"{ITERABLE}.MODIFIED_RETRY": (100000.0, 1.0, 30.0, 1.5),
    f"{DOWNLOAD}.MODIFIED_RETRY": (300.0, 1.0, 45.0, 1.2),
    f"{LIST}.MODIFIED_RETRY": (300.0, 1.0, 45.0, 1.2),
}

# What the originals reach through their modules, and programs through them.
MODULES = {
    f"{MAP}.dataflux_core": "dataflux_core",
    f"{ITERABLE}.dataflux_core": "dataflux_core",
    "dataflux_core.download": DOWNLOAD,
    "dataflux_core.fast_list": LIST,
    "dataflux_core.range_splitter": SPLIT,
    "dataflux_core.user_agent": "dataflux_core.user_agent",
    MAP: MAP,
}

ATTRIBUTES = {
    f"{MAP}.Config": (
        "sort_listing_results max_composite_object_size num_processes prefix max_listing_retries "
        "threads_per_process list_retry_config download_retry_config"
    ),
    f"{ITERABLE}.Config": (
        "sort_listing_results max_composite_object_size num_processes prefix max_listing_retries "
        "list_retry_config download_retry_config"
    ),
}

# For these the originals' processes and queues would be needed; nothing here has any.
LEFT_OUT = ("manage_tracking_queues", "check_crashed_processes", "cleanup_processes")


def find(dotted: str) -> Any:
    """Return what a name of the originals means here."""
    parts = dotted.split(".")
    thing: Any = importlib.import_module("headrace.compat." + ".".join(parts[:2]))
    for part in parts[2:]:
        thing = getattr(thing, part)
    return thing


def described(parameter: inspect.Parameter) -> str:
    default = parameter.default
    if default is inspect.Parameter.empty:
        return parameter.name
    if isinstance(default, Retry):
        text = "DATASET_RETRY" if default.deadline == 100000.0 else "LIBRARY_RETRY"
    elif parameter.name == "num_processes":
        assert default == os.cpu_count()
        text = "CPUS"
    elif type(default).__name__ == "Config":
        text = "Config()"
    elif inspect.isfunction(default):
        text = default.__name__
    else:
        text = repr(default)
    return f"{parameter.name}={text}"


@pytest.mark.parametrize("name", CALLABLES)
def test_parameters_and_defaults_are_the_originals(name: str) -> None:
    parameters = inspect.signature(find(name)).parameters.values()
    assert ", ".join(map(described, parameters)) == CALLABLES[name]


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_the_originals(name: str) -> None:
    assert find(name) == CONSTANTS[name]


@pytest.mark.parametrize("name", RETRIES)
def test_retry_constants_read_like_the_originals(name: str) -> None:
    policy = find(name)
    assert (policy._deadline, policy._initial, policy._maximum, policy._multiplier) == RETRIES[name]


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_reached_as_in_the_originals(name: str) -> None:
    assert isinstance(find(name), ModuleType)
    assert find(name).__name__ == "headrace.compat." + MODULES[name]


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_config_keeps_its_arguments_as_attributes(name: str) -> None:
    config = find(name)()
    assert set(ATTRIBUTES[name].split()) <= set(vars(config))
    assert not hasattr(config, "disable_compose")
    assert find(name)(disable_compose=True).max_composite_object_size == 0


def test_every_public_name_of_ours_is_in_the_tables() -> None:
    told = {*CALLABLES, *CONSTANTS, *RETRIES}
    aliases = {f"{MAP}.DatafluxMapStyleDataset", f"{ITERABLE}.DatafluxIterableDataset"}
    for module in (MAP, ITERABLE, DOWNLOAD, LIST, SPLIT, "dataflux_core.user_agent"):
        ours = {f"{module}.{name}" for name in find(module).__all__}
        assert ours <= told | aliases


def test_the_guide_tells_what_is_left_out(repository: Path) -> None:
    guide = (repository / "docs/guide/from_dataflux.md").read_text()
    assert [name for name in LEFT_OUT if name not in guide] == []
