"""headrace under the names of other packages: ``dataflux_pytorch`` and ``dataflux_core``.

Change an import::

    from headrace.compat.dataflux_pytorch import dataflux_mapstyle_dataset

or change nothing: call ``headrace.compat.install()`` before the first import of these packages, or
run the unchanged script with ``python -m headrace.compat script.py``.
``docs/guide/from_dataflux.md`` lists the differences.
"""

from headrace.compat._names import install

__all__ = ["install"]
