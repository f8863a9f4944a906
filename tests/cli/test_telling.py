"""`headrace stat`, `headrace du`, `headrace index`, and wildcards."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.cli.conftest import ODD_NAMES, Run, RunEach, Start, kinds, on_terminal
from tests.shards.tars import fill

NAMES = ("a.png", "b.png", "d/c.png", "d/e/f.png", "d/e/g.txt", "e/c.png")


@pytest.fixture(params=["file", "gs"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL below which `NAMES` are."""
    if request.param == "file":
        for name in NAMES:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(b"x" * 100)
        return f"file://{tmp_path}"
    server: FaultServer = request.getfixturevalue("server")
    for name in NAMES:
        server.put("bucket", name, b"x" * 100)
    return "gs://bucket"


@pytest.mark.parametrize(
    ("pattern", "options", "expected"),
    [
        ("*.png", [], ["a.png", "b.png"]),
        ("*", [], ["a.png", "b.png", "d/", "e/"]),
        ("?.png", [], ["a.png", "b.png"]),
        ("[!a].png", [], ["b.png"]),
        ("*/c.png", [], ["d/c.png", "e/c.png"]),
        ("*/*.png", [], ["d/c.png", "e/c.png"]),
        ("d/*/", [], ["d/e/"]),
        ("d*", ["-r"], ["d/c.png", "d/e/f.png", "d/e/g.txt"]),
        ("**.png", [], ["a.png", "b.png", "d/c.png", "d/e/f.png", "e/c.png"]),
        ("**/c.png", [], ["d/c.png", "e/c.png"]),
        ("d/**", [], ["d/c.png", "d/e/f.png", "d/e/g.txt"]),
    ],
)
def test_wildcards_are_those_of_a_shell(
    root: str, pattern: str, options: list[str], expected: list[str], run: Run
) -> None:
    done = run("ls", *options, f"{root}/{pattern}")
    assert (done.code, done.lines) == (0, [f"{root}/{name}" for name in expected]), done.err


def test_only_what_can_match_is_listed(server: FaultServer, run: Run) -> None:
    server.synthetic("many", 10_000, 10, shape="deep")
    server.put("bucket", "x/1", b"")
    assert run("ls", "gs://bucket/x/*").lines == ["gs://bucket/x/1"]
    # Has anything exactly this name? Then one level.
    assert kinds(server) == {"list": 2}


def test_what_matches_nothing_says_so(
    server: FaultServer, tmp_path: Path, run_each: RunEach
) -> None:
    server.put("bucket", "d/a.png", b"x")
    commands = [
        ["ls", "gs://bucket/*.jpg"],
        ["cat", "gs://bucket/*.jpg"],
        ["cp", "gs://bucket/*.jpg", f"{tmp_path}/"],
        ["cp", "gs://bucket/*", f"{tmp_path}/"],
        ["stat", "gs://bucket/*.jpg"],
        ["du", "gs://bucket/*.jpg"],
        ["rm", "gs://bucket/*.jpg"],
        ["ls", "--literal", "gs://bucket/*"],
    ]
    for arguments, done in zip(commands, run_each(*commands), strict=True):
        assert (done.code, done.out) == (3, b""), arguments
        first = done.err.splitlines()[0]
        assert "pattern" in first or "prefixes" in first or "--literal" in arguments
    [done] = run_each(["ls", "gs://bucket/[a"])
    assert (done.code, "'['" in done.err) == (2, True)


def test_wildcards_copy_what_they_match(server: FaultServer, tmp_path: Path, run: Run) -> None:
    for name in NAMES:
        server.put("bucket", name, name.encode())
    assert run("cp", "gs://bucket/*.png", f"{tmp_path}/a/").code == 0
    assert kinds(server) == {"list": 2, "media": 2}
    assert run("cp", "-r", "gs://bucket/[de]", f"{tmp_path}/b/").code == 0
    assert run("cat", "gs://bucket/?.png").out == b"a.pngb.png"
    assert run("cp", "gs://bucket/*.png", f"{tmp_path}/x").code == 2
    found = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    expected = ["a/a.png", "a/b.png", *(f"b/{name}" for name in NAMES if "/" in name)]
    assert found == expected


def test_odd_names_are_named_as_they_are(server: FaultServer, run: Run) -> None:
    for name in ODD_NAMES:
        server.put("bucket", name, name.encode())
    for options in ([], ["--literal"]):
        done = run("cat", *options, "--", *(f"gs://bucket/{name}" for name in ODD_NAMES))
        assert done.out == "".join(ODD_NAMES).encode()


def test_stat_tells_what_is_known(root: str, run: Run) -> None:
    done = run("stat", f"{root}/a.png", f"{root}/d/*.png")
    assert done.code == 0
    first, second = done.out.decode().split("\n\n")
    assert first.splitlines()[0] == f"{root}/a.png"
    assert second.splitlines()[0] == f"{root}/d/c.png"
    facts = dict(line.split(maxsplit=1) for line in first.splitlines()[1:])
    assert facts["size_bytes:"] == "100"
    assert facts["generation:"]
    [as_json] = run("stat", "--json", f"{root}/a.png").json
    assert as_json == run("ls", "--json", f"{root}/a.png").json[0]
    for missing in ("d", "d/", "none"):
        assert run("stat", f"{root}/{missing}").code == 3


def test_du_adds_up(root: str, run: Run) -> None:
    def rows(*arguments: str) -> list[tuple[str, str, str]]:
        done = run("du", *arguments)
        assert done.code == 0, done.err
        return [tuple(line.split()) for line in done.lines]  # type: ignore[misc]

    assert rows(f"{root}/d") == [("300", "3", f"{root}/d")]
    assert rows(f"{root}/a.png") == [("100", "1", f"{root}/a.png")]
    assert rows(root + "/")[0][:2] == ("600", "6")
    depth = rows("-d", "1", f"{root}/d/")
    assert depth == [("200", "2", f"{root}/d/e/"), ("300", "3", f"{root}/d/")]
    assert rows(f"{root}/[ab].png", f"{root}/e") == [
        ("100", "1", f"{root}/a.png"),
        ("100", "1", f"{root}/b.png"),
        ("100", "1", f"{root}/e"),
        ("300", "3", "TOTAL"),
    ]
    [as_json] = run("du", "--json", f"{root}/d").json
    assert as_json == {"type": "usage", "url": f"{root}/d", "objects": 3, "size_bytes": 300}
    assert run("du", f"{root}/none").code == 3


def test_an_index_has_the_samples_that_are_asked_for(
    server: FaultServer, tmp_path: Path, run: Run
) -> None:
    for name in ("a.png", "b.txt", ".git/c.png", "d/"):
        server.put("bucket", f"mixed/{name}", b"" if name == "d/" else b"1")
    saved = tmp_path / "saved.index"
    for options, names in (
        ([], ["a.png", "b.txt"]),
        (["--suffix", ".png"], ["a.png"]),
        (["--suffix", ".png", "--hidden"], [".git/c.png", "a.png"]),
        (["--hidden"], [".git/c.png", "a.png", "b.txt"]),
    ):
        assert run("index", *options, "gs://bucket/mixed/", saved).code == 0
        assert [info.name for info in headrace.ObjectIndex.load(saved)] == names, options


def test_an_index_is_saved_for_jobs_that_read(root: str, tmp_path: Path, run: Run) -> None:
    saved = tmp_path.parent / f"{tmp_path.name}.index"
    done = run("index", f"{root}/d", saved)
    assert done.code == 0, done.err
    assert "3 objects, 300 B in all" in done.err
    index = headrace.ObjectIndex.load(saved)
    assert len(index) == 3
    assert index == headrace.Store(f"{root}/d/").index()
    [facts] = run("index", "--json", f"{root}/**.png", saved).json
    assert (facts["objects"], facts["total_size_bytes"]) == (5, 500)
    index = headrace.ObjectIndex.load(saved)
    assert all(info.name.endswith(".png") for info in index)
    assert run("index", f"{root}/none", saved).code == 3


def test_an_index_of_the_members_of_shards_is_saved(root: str, tmp_path: Path, run: Run) -> None:
    saved = tmp_path.parent / f"{tmp_path.name}.index"
    store = headrace.Store(f"{root}/shards/")
    fill(store, 2, 3)
    for pattern in ("shards", "shards/*.tar", "shards/shard-{000..001}.tar"):
        done = run("index", "--members", f"{root}/{pattern}", saved)
        assert done.code == 0, done.err
        assert "12 members, 5.87 KiB in all" in done.err
        assert headrace.ObjectIndex.load(saved) == headrace.index_members(store)
    [facts] = run("index", "--members", "--json", f"{root}/shards/shard-000.tar", saved).json
    assert (facts["members"], facts["total_size_bytes"]) == (6, 3003)
    store.write("shard-002.tar", b"no tar" * 1000)
    broken = run("index", "--members", f"{root}/shards", saved)
    assert broken.code == 1
    assert "shard-002.tar" in broken.err
    skipped = run("index", "--members", "--skip-errors", f"{root}/shards", saved)
    assert skipped.code == 1
    assert "shard-002.tar" in skipped.err
    assert len(headrace.ObjectIndex.load(saved)) == 12
    assert run("index", "--members", f"{root}/none", saved).code == 3
    assert run("index", "--skip-errors", f"{root}/shards", saved).code == 2


def test_a_missing_bucket_is_called_a_bucket(server: FaultServer, run_each: RunEach) -> None:
    commands = [
        *(["ls", url] for url in ("gs://none", "gs://none/x", "gs://none/*")),
        *([command, "gs://none/x"] for command in ("cat", "stat", "du", "rm", "bench")),
        ["rm", "-r", "gs://none/x"],
        ["index", "gs://none/x", "gs://bucket/index"],
    ]
    for arguments, done in zip(commands, run_each(*commands), strict=True):
        errors = [line for line in done.err.splitlines() if "deleted 0" not in line]
        assert (done.code, errors) == (
            3,
            ["headrace: NotFoundError: gs://none: there is no such bucket"],
        ), arguments


def test_long_listings_show_on_a_terminal_how_far_they_are(
    server: FaultServer, tmp_path: Path, start: Start, run: Run
) -> None:
    server.synthetic("many", 2000, 10, shape="flat")
    commands: list[list[object]] = [
        ["index", "gs://many", tmp_path / "index"],
        ["index", "gs://many/**", tmp_path / "index"],
        ["du", "gs://many"],
        ["bench", "gs://many", "--epochs", "1", "--batch-size", "1000"],
    ]
    for command in commands:
        code, shown = on_terminal(start, *command)
        assert (code, b"2,000 objects listed" in shown) == (0, True), command
        code, shown = on_terminal(start, *command, "--json")
        assert (code, shown) == (0, b""), command
        assert "listed" not in run(*command).err


def test_a_folder_is_for_other_commands(server: FaultServer, run: Run) -> None:
    server.put("bucket", "folder/a", b"x")
    done = run("stat", "gs://bucket/folder")
    assert (done.code, "what lies below it is for ls and du" in done.err) == (3, True), done.err
