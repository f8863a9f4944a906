"""The name ``aistore.pytorch``: headrace's when asked for; the SDK stays the installed one."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

WITHOUT_SDK = """
import sys, importlib.machinery

original = importlib.machinery.PathFinder.find_spec
def find_spec(name, path=None, target=None):
    spec = original(name, path, target)
    if name == "aistore" and spec is not None and "_import_path" not in str(spec.origin):
        return None
    return spec
importlib.machinery.PathFinder.find_spec = staticmethod(find_spec)
"""


def run(script: str, *arguments: object, command: tuple[str, ...] = ("-c",), code: int = 0) -> str:
    script = textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, *command, script, *map(str, arguments)],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_plugin_is_ours_and_the_sdk_the_installed_one() -> None:
    script = """
        import headrace.compat
        headrace.compat.install()
        headrace.compat.install()
        import aistore, aistore.sdk, aistore.pytorch
        from aistore.pytorch import AISMapDataset
        from aistore.pytorch import base_iter_dataset, batch_iter_dataset, iter_dataset, utils
        import aistore.pytorch.shard_reader as shard_reader
        import headrace.compat.aistore.pytorch.shard_reader as ours
        print(aistore.pytorch.__name__, AISMapDataset.__module__)
        print(shard_reader is ours, "site-packages" in aistore.__file__, aistore.Client.__module__)
    """
    assert run(script).splitlines() == [
        "headrace.compat.aistore.pytorch headrace.compat.aistore.pytorch.map_dataset",
        "True True aistore.sdk.client",
    ]


def test_without_a_call_the_plugin_is_the_sdks() -> None:
    script = """
        import headrace.compat.aistore.pytorch
        import aistore.pytorch
        print(aistore.pytorch.__name__)
    """
    assert run(script) == "aistore.pytorch\n"


def test_an_imported_original_is_hidden_only_by_force() -> None:
    script = """
        import aistore.pytorch as theirs
        import headrace.compat
        try:
            headrace.compat.install()
        except ImportError as error:
            print(error)
        headrace.compat.install(force=True)
        from aistore import pytorch as attribute
        import aistore.pytorch as ours
        print(theirs.__name__, ours.__name__, attribute is ours)
    """
    told, names = run(script).splitlines()
    assert "install() before, or headrace.compat.install(force=True)" in told
    assert names == "aistore.pytorch headrace.compat.aistore.pytorch True"


@pytest.mark.parametrize(
    "method",
    ["spawn", *(pytest.param(each, marks=pytest.mark.soak) for each in ("fork", "forkserver"))],
)
def test_the_command_reaches_the_workers_of_every_start_method(folder: Path, method: str) -> None:
    script = """
        import sys
        import aistore
        from aistore.pytorch import AISMapDataset
        from torch.utils.data import DataLoader

        class Named(AISMapDataset):
            def __getitem__(self, index):
                name, content = super().__getitem__(index)
                return name, AISMapDataset.__module__, aistore.__name__

        if __name__ == "__main__":
            loader = DataLoader(
                Named(sys.argv[1]), batch_size=None, num_workers=1,
                multiprocessing_context=sys.argv[2],
            )
            print({tuple(each[1:]) for each in loader}, len(loader))
    """
    file = folder.parent / f"script-{method}.py"
    file.write_text(textwrap.dedent(script))
    printed = run(str(file), folder, method, command=("-m", "headrace.compat"))
    assert printed == "{('headrace.compat.aistore.pytorch.map_dataset', 'aistore')} 10\n"


def test_without_the_sdk_the_datasets_work_on_urls(folder: Path) -> None:
    script = f"""{textwrap.indent(WITHOUT_SDK, "        ")}
        import headrace.compat
        headrace.compat.install()
        from aistore.pytorch import AISMapDataset, AISIterDataset, DynamicBatchSampler
        from aistore.pytorch.batch_iter_dataset import AISBatchIterDataset
        from torch.utils.data import DataLoader
        dataset = AISMapDataset(sys.argv[1])
        loader = DataLoader(AISIterDataset(sys.argv[1]), batch_size=None, num_workers=2)
        print(len(dataset), dataset[2], len(list(loader)))
        print(len(list(AISBatchIterDataset(sys.argv[1], None))))
        print(list(DynamicBatchSampler(dataset, 20)))
        try:
            import aistore.sdk
        except ModuleNotFoundError as error:
            print(error)
        print(any(name.startswith("aistore.sdk") for name in sys.modules))
    """
    printed = [line for line in run(script, folder).splitlines() if "0 bytes" not in line]
    assert printed == [
        "10 ('2.bin', b'22') 10",
        "10",
        "[[1, 2, 3, 4, 5], [6, 7], [8, 9]]",
        "No module named 'aistore.sdk'",
        "False",
    ]


def test_importing_the_plugin_brings_nothing_of_the_sdk() -> None:
    script = """
        import sys
        import headrace.compat.aistore.pytorch
        print([name for name in sys.modules if name.partition(".")[0] in ("aistore", "requests")])
    """
    assert run(script) == "[]\n"
