"""Instances: one for each set of options, in every process."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import pickle
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest

import headrace
from headrace.fsspec import FolderFileSystem, GcsFileSystem, S3FileSystem, register
from headrace.fsspec._package import OLDEST, require_new_enough
from testing.faultserver.client import FaultServer
from tests.fsspec.conftest import Place

Child = Callable[..., subprocess.CompletedProcess[str]]


# ---- options


def test_the_same_options_are_the_same_instance() -> None:
    options = {"endpoint": "http://localhost:1", "retry": headrace.RetryOptions(max_attempts=2)}
    fs = GcsFileSystem(**options)
    assert GcsFileSystem(**options) is fs
    assert fsspec.filesystem("headrace+gs", **options) is fs
    assert fsspec.core.url_to_fs("headrace+gs://bucket/a", **options) == (fs, "bucket/a")
    assert GcsFileSystem(endpoint="http://localhost:2") != fs
    assert GcsFileSystem(**options, skip_instance_cache=True) is not fs


def test_options_that_are_never_printed_count_too() -> None:
    def fs(**options: Any) -> S3FileSystem:
        return S3FileSystem(endpoint="http://localhost:1", **options)

    one, another = (fs(credentials=headrace.AwsKeys("AKID", secret)) for secret in ("a", "b"))
    assert one is not another
    assert one != another
    assert fs(credentials=headrace.AwsKeys("AKID", "a")) is one
    tokens = [GcsFileSystem(credentials=headrace.BearerToken(text)) for text in ("a", "b")]
    assert tokens[0] != tokens[1]
    keys = [fs(provider=headrace.S3Options(customer_key=bytes([i]) * 32)) for i in (1, 2)]
    assert keys[0] != keys[1]
    assert "secret" not in repr(one._fs_token)


def test_an_option_that_nobody_takes_is_refused_with_what_is_right() -> None:
    with pytest.raises(TypeError, match="argument 'anon': give credentials=\"anonymous\""):
        S3FileSystem(anon=True)
    with pytest.raises(TypeError, match="endpoint"):
        S3FileSystem(endpoint_url="http://localhost:1")
    with pytest.raises(TypeError, match=r"headrace\+gs:// has no argument 'max_attempts'.*retry="):
        GcsFileSystem(max_attempts=3)
    with pytest.raises(headrace.InvalidArgumentError, match="provider"):
        GcsFileSystem(provider=headrace.S3Options())
    with pytest.raises(headrace.InvalidArgumentError, match="prefetch_bytes"):
        GcsFileSystem(prefetch_bytes=-1)
    # Those of fsspec itself are fine.
    GcsFileSystem(use_listings_cache=False, listings_expiry_time=5, max_paths=3, batch_size=2)


def test_an_instance_crosses_processes_as_its_options() -> None:
    options = {"endpoint": "http://localhost:1", "credentials": headrace.AwsKeys("AKID", "a")}
    fs = S3FileSystem(**options)
    assert pickle.loads(pickle.dumps(fs)) is fs
    plain = GcsFileSystem(endpoint="http://localhost:1")
    assert fsspec.AbstractFileSystem.from_json(plain.to_json()) is plain
    assert json.loads(plain.to_json())["endpoint"] == "http://localhost:1"


def test_every_option_has_a_form_in_json() -> None:
    join = headrace.GcsOptions(compose_small_objects=headrace.ComposeOptions(max_objects=4))
    instances = [
        S3FileSystem(
            credentials=headrace.AwsKeys("AKID", "hidden"),
            provider=headrace.S3Options(region="a", customer_key=bytes(range(32))),
            retry=headrace.RetryOptions(max_attempts=3),
            endpoint=None,
        ),
        GcsFileSystem(provider=join, timeout=headrace.TimeoutOptions(total_s=3)),
        GcsFileSystem(credentials=headrace.BearerToken("hidden"), prefetch_bytes=5),
        headrace.fsspec.AisFileSystem(provider=headrace.AisOptions(direct=False)),
    ]
    for fs in instances:
        again = fsspec.AbstractFileSystem.from_json(fs.to_json())
        assert again._options == {k: v for k, v in fs._options.items() if v is not None}
        assert again._prefetch_bytes == fs._prefetch_bytes
        assert "hidden" not in fs.to_json(include_password=False)
    assert "hidden" in instances[0].to_json()
    with pytest.raises(headrace.InvalidArgumentError, match="no kind of option"):
        GcsFileSystem(retry={"headrace": "Retry"})
    with pytest.raises(TypeError, match="max_attempt"):
        GcsFileSystem(retry={"headrace": "RetryOptions", "max_attempt": 3})


def _read(fs: GcsFileSystem, path: str) -> tuple[bytes, list[str]]:
    with fs.open(path) as file:
        head = file.read(2)
    fs.pipe({f"{path}-{os.getpid()}": head})
    return fs.cat_file(path), fs.find(path.partition("/")[0])


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_an_instance_that_was_used_works_in_other_processes(counted: Place, method: str) -> None:
    fs, path = counted.fs, counted.at("a")
    fs.pipe({path: b"bytes"})  # the loop, the threads and the engine run
    fs.cat([path])
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        found = pool.starmap(_read, [(fs, path)] * 4)
    assert {data for data, _ in found} == {b"bytes"}
    assert fs.cat_file(path) == b"bytes"


def test_a_forked_child_uses_the_instance_and_the_file_of_its_parent(
    counted: Place, server: FaultServer
) -> None:
    server.put(counted.path, "a", bytes(range(256)) * 4000)
    asyncio.run(_touch(counted))
    file = counted.fs.open(counted.at("a"))
    file.read(10)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert file.read(10) == bytes(range(10, 20))
            counted.fs.put_file(__file__, counted.at("child"))
            counted.fs.get(counted.at("child"), f"/proc/self/fd/{os.open('/dev/null', os.O_RDWR)}")
            asyncio.run(_touch(counted))
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert counted.fs.cat_file(counted.at("child")) == Path(__file__).read_bytes()
    file.close()


async def _touch(place: Place) -> None:
    await place.fs._pipe_file(place.at("touched"), b"")


def test_threads_share_an_instance(place: Place) -> None:
    names = [place.at(f"{i}") for i in range(32)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: place.fs.pipe_file(name, name.encode()), names))
        found = list(pool.map(place.fs.cat_file, names))
    assert found == [name.encode() for name in names]


# ---- coroutines


def test_coroutines_do_what_the_methods_do(place: Place) -> None:
    async def run() -> None:
        options = {"asynchronous": True, **place.options}
        fs = type(place.fs)(**options)
        await fs._pipe({place.at("a/1"): b"one", place.at("a/2"): b"two"})
        assert await fs._cat_file(place.at("a/1"), 1, 3) == b"ne"
        assert await fs._cat_ranges([place.at("a/1")] * 2, [0, 1], [1, 2]) == [b"o", b"n"]
        assert await fs._cat([place.at("a/1")]) == {place.at("a/1"): b"one"}
        assert await fs._glob(place.at("a/*")) == [place.at("a/1"), place.at("a/2")]
        assert await fs._find(place.path) == [place.at("a/1"), place.at("a/2")]
        assert [d async for _, d, _ in fs._walk(place.path)] == [["a"], []]
        assert (await fs._info(place.at("a/1")))["size"] == 3
        assert await fs._isdir(place.at("a"))
        assert await fs._exists(place.at("a/1"))
        assert not await fs._exists(place.at("b"))
        await fs._cp_file(place.at("a/1"), place.at("b"))
        await fs._rm(place.at("a"), recursive=True)
        assert await fs._du(place.path) == 3
        with pytest.raises(FileNotFoundError):
            await fs._cat_file(place.at("a/1"))
        many = await asyncio.gather(*[fs._cat_file(place.at("b")) for _ in range(200)])
        assert set(many) == {b"one"}

    asyncio.run(run())


# ---- who serves a scheme


def test_the_wheel_names_its_protocols() -> None:
    import tomllib

    root = Path(__file__).resolve().parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    specs = project["entry-points"]["fsspec.specs"]
    assert specs == {
        f"headrace+{scheme}": f"headrace.fsspec:{cls}"
        for scheme, cls in (
            ("ais", "AisFileSystem"),
            ("file", "FolderFileSystem"),
            ("gs", "GcsFileSystem"),
            ("s3", "S3FileSystem"),
        )
    }
    for protocol, spec in specs.items():
        assert fsspec.get_filesystem_class(protocol) is getattr(
            headrace.fsspec, spec.partition(":")[2]
        )
    oldest = ".".join(map(str, OLDEST))
    for extra in ("fsspec", "lightning"):
        assert f"fsspec>={oldest}" in project["optional-dependencies"][extra]


SCHEMES = """
import sys
import fsspec
import headrace.fsspec
def served():
    from fsspec.registry import known_implementations, registry
    return {s: getattr(registry.get(s), "__module__", None) for s in ("ais", "gs", "gcs", "s3")}
assert set(served().values()) == {None}, "an import registers nothing"
"""


def test_register_takes_what_nobody_serves_and_only_when_told_the_rest(
    run_child: Child, tmp_path: Path
) -> None:
    (tmp_path / "gcsfs.py").write_text("raise AssertionError('it is not imported')")
    script = """
sys.path.insert(0, sys.argv[1])
plain = "headrace.fsspec._plain"
class Users(fsspec.AbstractFileSystem):
    pass
fsspec.register_implementation("s3", Users)
assert headrace.fsspec.register() == ("ais", "s3a")
assert served() == {"ais": plain, "gs": None, "gcs": None, "s3": "__main__"}, served()
assert headrace.fsspec.register(override=True) == ("ais", "gs", "gcs", "s3", "s3a")
assert set(served().values()) == {plain}
fs, path = fsspec.core.url_to_fs("gs://bucket/a")
assert fs.unstrip_protocol(path) == "gs://bucket/a"
import pickle
assert pickle.loads(pickle.dumps(fs)) is fs
# Whoever comes last serves it.
fsspec.register_implementation("gs", Users, clobber=True)
assert headrace.fsspec.register() == ("ais", "gcs", "s3", "s3a")
"""
    run_child(SCHEMES + script, str(tmp_path))


def test_without_fsspec_the_import_says_what_to_install(run_child: Child) -> None:
    script = """
    import sys
    sys.modules["fsspec"] = None
    import headrace
    try:
        headrace.fsspec
    except ImportError as error:
        assert error.name == "fsspec"
        print(error)
    """
    told = run_child(script).stdout
    assert told == ("headrace.fsspec needs fsspec: pip install --upgrade 'headrace[fsspec]'\n")


def test_an_old_fsspec_is_refused_with_what_to_install() -> None:
    for version in ("2023.1.0", "2024.9.0"):
        with pytest.raises(ImportError, match=f"2024.10 or newer, and {version} is installed"):
            require_new_enough(version)
    for version in ("2024.10.0", "2031.1.0", "unknown", "0.0.1+g1234"):
        require_new_enough(version)


def test_headrace_alone_imports_no_fsspec(run_child: Child) -> None:
    run_child("import headrace, sys; assert 'fsspec' not in sys.modules")


def test_registering_twice_changes_nothing() -> None:
    assert register() == register()
    assert fsspec.filesystem("headrace+file") is FolderFileSystem()
