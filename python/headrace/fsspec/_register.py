"""Who serves which scheme in fsspec."""

from __future__ import annotations

import importlib.util

from fsspec import register_implementation
from fsspec.registry import known_implementations, registry

from headrace.fsspec import _plain, _schemes

__all__ = ["register"]

_OWN = (
    _schemes.AisFileSystem,
    _schemes.GcsFileSystem,
    _schemes.FolderFileSystem,
    _schemes.S3FileSystem,
)
_PLAIN = (_plain.AisFileSystem, _plain.GcsFileSystem, _plain.S3FileSystem)


def register(*, override: bool = False) -> tuple[str, ...]:
    """Have headrace serve ``gs://``, ``gcs://``, ``s3://``, ``s3a://`` and ``ais://`` in fsspec.

    The same with ``headrace+`` before it, and ``headrace+file://``, is ours at any rate.

    No import does that. File systems that somebody has made already stay what they are. Whoever
    registers last serves a scheme: call it again after another package has taken it.

    Args:
        override: take the place of whoever serves a scheme now. Otherwise only schemes that nobody
            serves are taken: those for which no class is registered, and for which the package that
            fsspec would use (gcsfs, s3fs) is not installed.

    Returns:
        The schemes that headrace serves now, without those that begin with ``headrace+``.

    Raises:
        ImportError: from the import of this module, where fsspec is missing or too old.

    Examples:
        >>> headrace.fsspec.register(override=True)  # doctest: +SKIP
        ('ais', 'gs', 'gcs', 's3', 's3a')
    """
    for own in _OWN:
        for protocol in own._protocols():
            register_implementation(protocol, own, clobber=True)
    served = []
    for plain in _PLAIN:
        for protocol in plain._protocols():
            if override or not _is_served(protocol):
                register_implementation(protocol, plain, clobber=True)
            if registry.get(protocol) is plain:
                served.append(protocol)
    return tuple(served)


def _is_served(protocol: str) -> bool:
    if protocol in registry:
        return True
    # Not imported: that takes its time, and runs may have no use for it.
    known = known_implementations.get(protocol, {}).get("class", "")
    package = known.partition(".")[0]
    return bool(package) and importlib.util.find_spec(package) is not None
