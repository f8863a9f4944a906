"""Redirects ``import dataflux_pytorch`` and ``import dataflux_core`` to headrace."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

__all__ = ["PACKAGES", "install"]

PACKAGES = ("dataflux_core", "dataflux_pytorch")

# Has a package of each name that calls `install`. Processes that multiprocessing starts receive
# this process's sys.path before they import the main module; nothing else reaches them so early.
_IMPORT_PATH = Path(__file__).resolve().parent / "_import_path"


def install(*, force: bool = False) -> None:
    """Redirect ``import dataflux_pytorch`` and ``import dataflux_core`` to headrace from now on.

    This applies to this process and to those that multiprocessing starts, by every start method. A
    second call does nothing.

    Args:
        force: do so even if the originals are installed or imported. Names imported from them
            before stay the originals'.

    Raises:
        ImportError: one of the originals is installed, and not `force`.
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
    for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Finder())
    # In front, because a child might find the originals.
    sys.path.insert(0, str(_IMPORT_PATH))


def _find_original(package: str) -> str | None:
    """Return where `package` would come from without headrace, or None."""
    path = [each for each in sys.path if each != str(_IMPORT_PATH)]
    spec = PathFinder.find_spec(package, path)
    # A folder without __init__.py that happens to have this name is not a package.
    return None if spec is None else spec.origin


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in PACKAGES:
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
