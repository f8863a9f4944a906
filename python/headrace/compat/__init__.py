"""headrace under the names of other packages: ``dataflux_pytorch`` and ``dataflux_core``.

Change an import::

    from headrace.compat.dataflux_pytorch import dataflux_mapstyle_dataset

or none: call ``headrace.compat.install()`` before the first of them, or run the script, as it is,
by ``python -m headrace.compat script.py``. ``docs/guide/from_dataflux.md`` tells what is the same
and what differs.
"""

from headrace.compat._names import install

__all__ = ["install"]
