"""headrace in dlio_benchmark, the benchmark of MLPerf Storage.

Classes that the YAML of a workload names: `DataLoader` for ``reader.data_loader_classname``,
`Reader` for ``reader.reader_classname``, and `Checkpointing` for
``checkpoint.checkpoint_mechanism_classname``. They work with data in folders as they are. For URLs,
``python -m headrace.dlio`` takes the place of ``dlio_benchmark``, with the same arguments; it calls
`install` first.

Of headrace, only this package imports dlio_benchmark. ``docs/guide/dlio.md`` shows whole workloads.
"""

from __future__ import annotations

from headrace._base.face import belong_to
from headrace.dlio._checkpointing import Checkpointing
from headrace.dlio._loader import DataLoader
from headrace.dlio._reader import Reader
from headrace.dlio._storage import Storage, install

__all__ = ["Checkpointing", "DataLoader", "Reader", "Storage", "install"]

belong_to(__name__, __all__, globals())
