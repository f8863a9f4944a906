"""Another thread imports an optional package: its module is there, and its names are not yet."""

from __future__ import annotations

from collections.abc import Callable

import pytest

PACKAGES = {
    "google.auth.credentials": """
        headrace.Store("gs://bucket", endpoint="http://127.0.0.1:1")
        headrace.Store("s3://bucket", endpoint="http://127.0.0.1:1")
    """,
    "google.cloud.storage": """
        from headrace.compat._clients import settings_of
        assert settings_of(object()) is None
    """,
    "google.auth.transport.requests": """
        from headrace.compat._clients import _is_googles_session
        assert not _is_googles_session(None)
    """,
    "torch": """
        store = headrace.Store(tempfile.mkdtemp())
        store.write("a", bytearray(b"bytes"))
        assert headrace._base.on_error._of_a_device() == ()
    """,
    "multiprocessing.context": """
        index = headrace.Store(tempfile.mkdtemp()).index()
        assert len(pickle.loads(pickle.dumps(index))) == 0
    """,
    "multiprocessing.util": """
        headrace.Store(tempfile.mkdtemp()).write("a", b"bytes")
    """,
}


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_else_minds(run_child: Callable[..., object], package: str) -> None:
    run_child(
        f"""
        import pickle, sys, tempfile, types
        import headrace
        import headrace._base.on_error
        sys.modules["{package}"] = types.ModuleType("{package}")
        {PACKAGES[package]}
        """
    )
