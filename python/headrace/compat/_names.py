"""Redirects imports of other packages to headrace: ``dataflux_pytorch``, ``dataflux_core``, and
``aistore.pytorch``.

The first two replace their originals. The third is one package of AIStore's SDK, whose other
packages (clients, buckets, objects) stay the installed ones.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

__all__ = ["PACKAGES", "PLUGIN", "install"]

PACKAGES = ("dataflux_core", "dataflux_pytorch")
PLUGIN = "aistore.pytorch"
_SDK = "aistore"

# Has a package of each name that calls `install`. Processes that multiprocessing starts receive
# this process's sys.path before they import the main module; nothing else reaches them so early.
_IMPORT_PATH = Path(__file__).resolve().parent / "_import_path"


def install(*, force: bool = False) -> None:
    """Redirect ``import dataflux_pytorch``, ``import dataflux_core`` and ``import aistore.pytorch``
    to headrace from now on.

    This applies to this process and to those that multiprocessing starts, by every start method. A
    second call does nothing.

    ``aistore.pytorch`` is a part of AIStore's SDK: an installed one is hidden unless it is imported
    already, and the rest of the SDK stays as it is. Without the SDK, ``import aistore`` finds a
    package that has nothing but this part.

    Args:
        force: do so even if the originals are installed or imported. Names imported from them
            before stay the originals'.

    Raises:
        ImportError: one of dataflux's packages is installed, or the original ``aistore.pytorch`` is
            imported already, and not `force`.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    if not force:
        for package in PACKAGES:
            where = _find_original(package)
            if where is not None:
                raise ImportError(
                    f"{package} is installed ({where}) and headrace does not hide it unasked: "
                    "uninstall gcs-torch-dataflux, or call headrace.compat.install(force=True)",
                    name=package,
                )
        if PLUGIN in sys.modules:
            raise ImportError(
                f"{PLUGIN} is imported already, and what was imported from it would stay: call "
                "headrace.compat.install() before, or headrace.compat.install(force=True)",
                name=PLUGIN,
            )
    for name in filter(_is_redirected, list(sys.modules)):  # other threads import, too
        del sys.modules[name]
    sdk = sys.modules.get(_SDK)
    if sdk is not None and hasattr(sdk, "pytorch"):
        del sdk.pytorch
    sys.meta_path.insert(0, _Finder())
    # In front, because a child might find the originals.
    sys.path.insert(0, str(_IMPORT_PATH))


def _is_redirected(name: str) -> bool:
    return name.partition(".")[0] in PACKAGES or f"{name}.".startswith(f"{PLUGIN}.")


def _find_original(package: str) -> str | None:
    """Return where `package` would come from without headrace, or None."""
    spec = _original_spec(package)
    # A folder without __init__.py that happens to have this name is not a package.
    return None if spec is None else spec.origin


def _original_spec(package: str) -> ModuleSpec | None:
    path = [each for each in sys.path if each != str(_IMPORT_PATH)]
    return PathFinder.find_spec(package, path)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == _SDK:
            spec = _original_spec(fullname)
            if spec is not None and spec.origin is not None:
                return spec
        elif not _is_redirected(fullname):
            return None
        ours = importlib.util.find_spec(f"{__package__}.{fullname}")
        if ours is None:
            return None
        return ModuleSpec(
            fullname,
            _Loader(),
            origin=ours.origin,
            is_package=ours.submodule_search_locations is not None,
        )


class _Loader(Loader):
    """Loads headrace's own module: one module with two names, not two modules."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(f"{__package__}.{spec.name}")
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just replaced it by the alias's.
        module.__spec__ = self._own_spec
