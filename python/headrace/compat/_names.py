"""Makes ``import dataflux_pytorch`` and ``import dataflux_core`` find headrace's."""

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

# Holds a package of each name that calls `install`. Processes that multiprocessing starts get this
# process's sys.path before they import the main module again; nothing else reaches them so early.
_IMPORT_PATH = Path(__file__).resolve().parent / "_import_path"


def install(*, force: bool = False) -> None:
    """Let ``import dataflux_pytorch`` and ``import dataflux_core`` find headrace's, from now on.

    It holds for this process and for those that multiprocessing starts, by every start method. A
    second call does nothing.

    Args:
        force: do so even if the originals are installed or imported. What was imported from them
            before stays what it is.

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
    # In front, for a child in which the originals could be found.
    sys.path.insert(0, str(_IMPORT_PATH))


def _find_original(package: str) -> str | None:
    """Return where `package` would come from without headrace, or None."""
    path = [each for each in sys.path if each != str(_IMPORT_PATH)]
    spec = PathFinder.find_spec(package, path)
    # A folder without __init__.py that happens to have the name is no package of anybody's.
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
    """Gives the module of headrace itself: one module by two names, not two."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(f"{__package__}.{spec.name}")
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just put the alias's in its place.
        module.__spec__ = self._own_spec
