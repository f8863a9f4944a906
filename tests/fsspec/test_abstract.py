"""fsspec's own suite for file systems, on a folder and on real servers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

from headrace.fsspec import StoreFileSystem
from tests.fsspec.conftest import Place


class Fixtures(AbstractFixtures):  # type: ignore[misc]  # fsspec has no types
    @pytest.fixture
    def fs(self, place: Place) -> StoreFileSystem:
        return place.fs

    @pytest.fixture
    def fs_path(self, place: Place) -> str:
        return place.path

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        return lambda *parts: "/".join(parts)

    @pytest.fixture
    def supports_empty_directories(self, place: Place) -> bool:
        return place.keeps_empty_folders


class TestCopy(Fixtures, AbstractCopyTests):  # type: ignore[misc]
    pass


class TestGet(Fixtures, AbstractGetTests):  # type: ignore[misc]
    pass


class TestOpen(Fixtures, AbstractOpenTests):  # type: ignore[misc]
    pass


class TestPipe(Fixtures, AbstractPipeTests):  # type: ignore[misc]
    pass


class TestPut(Fixtures, AbstractPutTests):  # type: ignore[misc]
    pass
