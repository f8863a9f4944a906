"""The names of the originals: found when asked for, never taken from them unasked."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace.compat
from headrace.compat._names import PACKAGES, PLUGIN
from testing.faultserver.client import FaultServer
from tests.scripts import RunScript

PLAIN: tuple[str, ...] = ()


@pytest.fixture
def installed(without_plugin: None) -> Iterator[None]:
    path, finders, modules = [*sys.path], [*sys.meta_path], dict(sys.modules)
    headrace.compat.install()
    yield
    sys.path[:], sys.meta_path[:] = path, finders
    for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
        if name not in modules:
            del sys.modules[name]


@pytest.fixture
def without_plugin() -> Iterator[None]:
    """As if nobody had imported the original ``aistore.pytorch``, as other tests do."""
    kept = {name: sys.modules[name] for name in [*sys.modules] if name.startswith(PLUGIN)}
    sdk = sys.modules.get("aistore")
    plugin = getattr(sdk, "pytorch", None)
    for name in kept:
        del sys.modules[name]
    yield
    sys.modules.update(kept)
    if sdk is not None and plugin is not None:
        sdk.pytorch = plugin


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """A folder in which somebody has installed a package of the original's name."""
    package = tmp_path / "site" / "dataflux_pytorch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("whose = 'original'\n")
    return package.parent


def test_the_names_are_not_there_unasked() -> None:
    with pytest.raises(ModuleNotFoundError, match="dataflux_pytorch"):
        import dataflux_pytorch  # noqa: F401


def test_both_names_give_one_module(installed: None) -> None:
    import dataflux_core.download as short_download
    from dataflux_pytorch import dataflux_iterable_dataset, dataflux_mapstyle_dataset

    import headrace.compat.dataflux_core
    import headrace.compat.dataflux_pytorch.dataflux_iterable_dataset as iterable

    assert dataflux_iterable_dataset is iterable
    assert short_download is headrace.compat.dataflux_core.download
    assert dataflux_mapstyle_dataset.dataflux_core.download is short_download
    assert sys.modules["dataflux_core"] is headrace.compat.dataflux_core
    assert iterable.__spec__ is not None
    assert iterable.__spec__.name == iterable.__name__


def test_a_second_call_does_nothing(installed: None) -> None:
    path, finders = [*sys.path], [*sys.meta_path]
    headrace.compat.install()
    headrace.compat.install(force=True)
    assert (sys.path, sys.meta_path) == (path, finders)


@pytest.mark.parametrize(
    "name",
    [
        "dataflux_pytorch.dataflux_checkpoint",
        "dataflux_pytorch.lightning",
        "dataflux_pytorch.lightning.gcs_filesystem",
        "dataflux_pytorch.lightning.path_utils",
        "dataflux_pytorch.multipart_upload",
        "dataflux_pytorch.multipart_upload.multipart",
    ],
)
def test_checkpoints_and_lightning_are_one_module_by_two_names(installed: None, name: str) -> None:
    assert importlib.import_module(name) is importlib.import_module(f"headrace.compat.{name}")


def test_what_nobody_has_is_not_found(installed: None) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"dataflux_core\.nothing"):
        __import__("dataflux_core.nothing")


def test_an_installed_original_is_not_hidden_unasked(
    original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(original)
    with pytest.raises(ImportError, match=r"uninstall gcs-torch-dataflux, or call .*force=True"):
        headrace.compat.install()
    assert "dataflux_pytorch" not in sys.modules


def test_force_takes_the_name_of_an_installed_original(
    original: Path, run_script: RunScript
) -> None:
    script = """
        import sys
        sys.path.insert(0, sys.argv[1])
        import dataflux_pytorch as theirs
        import headrace.compat
        headrace.compat.install(force=True)
        import dataflux_pytorch as ours
        import dataflux_pytorch.dataflux_mapstyle_dataset
        print(theirs.whose, ours.__name__)
    """
    printed = run_script(script, original, command=PLAIN)
    assert printed == "original headrace.compat.dataflux_pytorch\n"


def test_the_command_refuses_an_original_unless_forced(
    original: Path, run_script: RunScript
) -> None:
    path = os.pathsep.join([str(original), os.environ.get("PYTHONPATH", "")])
    script = "import dataflux_core.user_agent as agent; print(agent.__name__)"
    assert "uninstall gcs-torch-dataflux" in run_script(script, expect_code=1, PYTHONPATH=path)
    forced = ("-m", "headrace.compat", "--force")
    printed = run_script(script, command=forced, PYTHONPATH=path)
    assert printed == "headrace.compat.dataflux_core.user_agent\n"


def test_the_command_runs_a_script_as_python_does(run_script: RunScript, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("value = 7\n")
    script = """
        import os, sys
        import beside
        assert __name__ == "__main__" and os.path.basename(__file__) == "script.py"
        assert sys.modules["__main__"].beside is beside
        print(sys.argv[1:], beside.value)
        sys.exit(3)
    """
    assert run_script(script, "--force", "-m", expect_code=3) == "['--force', '-m'] 7\n"


def test_the_command_runs_a_module(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import sys, dataflux_core\nprint(__name__, sys.argv[1:])\n")
    done = subprocess.run(
        [sys.executable, "-m", "headrace.compat", "-m", "job", "--epochs", "2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("__main__ ['--epochs', '2']\n", "")


def test_the_command_says_when_there_is_no_such_script() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headrace.compat", "nowhere.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "there is no file 'nowhere.py'" in done.stderr


def test_importing_what_lists_and_downloads_brings_neither_torch_nor_google(
    run_script: RunScript,
) -> None:
    script = """
        import sys
        before = set(sys.modules)
        import headrace.compat.dataflux_core
        new = set(sys.modules) - before
        heavy = {"torch", "numpy", "google", "google.auth", "google.api_core"}
        print(sorted(heavy & new))
    """
    assert run_script(script, command=PLAIN) == "[]\n"


def test_importing_the_datasets_brings_nothing_of_googles(run_script: RunScript) -> None:
    script = """
        import sys
        import headrace.compat.dataflux_pytorch.dataflux_iterable_dataset
        import headrace.compat.dataflux_pytorch.dataflux_mapstyle_dataset
        print(sorted(name for name in sys.modules if name.startswith("google")))
    """
    assert run_script(script, command=PLAIN) == "[]\n"


def test_reading_needs_no_package_of_google_cloud(
    server: FaultServer, objects: dict[str, bytes], run_script: RunScript
) -> None:
    script = """
        import sys
        for name in ("google.api_core", "google.cloud", "google.cloud.storage"):
            sys.modules[name] = None  # as if it were not installed
        import headrace
        from dataflux_core import download, fast_list
        pairs = fast_list.ListingController(1, "project", "bucket").run()
        print(len(download.dataflux_download("project", "bucket", pairs)))
        try:
            download.download_single(None, "bucket", "missing")
        except headrace.NotFoundError as error:
            print(type(error).__name__)
        try:
            download.compose("project", "bucket", "composite", pairs[:2])
        except ImportError as error:
            print(error.name)
    """
    assert run_script(script).split() == ["40", "NotFoundError", "google.cloud.storage"]
