"""headrace under the names of other packages: ``dataflux_pytorch`` and ``dataflux_core``, and
``aistore.pytorch`` of AIStore's SDK.

Change an import::

    from headrace.compat.dataflux_pytorch import dataflux_mapstyle_dataset
    from headrace.compat.aistore.pytorch import AISMapDataset

or change nothing: call ``headrace.compat.install()`` before the first import of these packages, or
run the unchanged script with ``python -m headrace.compat script.py``.
``docs/guide/from_dataflux.md`` and ``docs/guide/aistore_plugin.md`` list the differences.
"""

from headrace.compat._names import install

__all__ = ["install"]
