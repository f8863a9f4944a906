"""What a user does first, with the wheel alone. usage: use_wheel.py ENDPOINT [--with-command]"""

import importlib.metadata
import importlib.util
import pathlib
import subprocess
import sys
import tempfile

import headrace


def use(store: headrace.Store) -> None:
    """Write, list, stat, read and delete."""
    objects = {f"dir/{i}": bytes([i]) * (i * 1000) for i in range(40)}
    for name, data in objects.items():
        written = store.write(name, data)
        assert written.size_bytes == len(data), written
    infos = list(store.list())
    assert sorted(info.name for info in infos) == sorted(objects)
    for info, sample in zip(infos, store.read_many(infos), strict=True):
        assert sample.bytes() == objects[info.name], info.name
    assert store.stat("dir/none", missing_ok=True) is None
    try:
        store.read("dir/none")
    except headrace.NotFoundError as error:
        assert "dir/none" in str(error), error
    else:
        raise AssertionError("reading an object that does not exist raised nothing")
    store.delete("dir/7")
    assert not store.exists("dir/7")


def use_command(folder: str, *, is_installed: bool) -> None:
    """The command lists what `use` has left, or says in one line what it lacks."""
    command = pathlib.Path(sys.executable).with_name("headrace")
    done = subprocess.run([command, "ls", "-r", folder], capture_output=True, text=True)
    if is_installed:
        assert (done.returncode, len(done.stdout.splitlines())) == (0, 39), done
    else:
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done
        assert "pip install 'headrace[cli]'" in done.stderr, done


def main() -> None:
    for module in ("torch", "numpy"):
        assert importlib.util.find_spec(module) is None, f"{module} is not part of a bare system"
    entries = importlib.metadata.entry_points(group="fsspec.specs")
    protocols = {each.name for each in entries}
    assert protocols >= {f"headrace+{each}" for each in ("ais", "file", "gs", "s3")}, protocols
    use(headrace.Store("gs://bucket/", endpoint=sys.argv[1], credentials="anonymous"))
    with tempfile.TemporaryDirectory() as folder:
        use(headrace.Store(folder))
        use_command(folder, is_installed="--with-command" in sys.argv)
    print(f"headrace {headrace.__version__} works from {pathlib.Path(headrace.__file__).parent}")


if __name__ == "__main__":
    main()
