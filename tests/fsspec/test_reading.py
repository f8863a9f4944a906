"""What is read, by how many requests, and what a wrong path raises."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import fsspec
import hypothesis
import hypothesis.strategies as st
import numpy
import pytest

import headrace
from headrace.fsspec import FolderFileSystem, GcsFileSystem, StoreFileSystem
from testing.faultserver.client import FaultServer
from tests.conftest import Child
from tests.fsspec.conftest import Place

DATA = bytes(range(256)) * 400


def kinds(server: FaultServer, since: int = 0) -> list[str]:
    """Return the kinds of requests that have come."""
    return [entry["kind"] for entry in server.log()[since:]]


# ---- what there is


def test_info_tells_objects_from_folders(place: Place) -> None:
    place.fs.pipe_file(place.at("a/b.bin"), DATA)
    found = place.fs.info(place.at("a/b.bin"))
    assert (found["name"], found["size"], found["type"]) == (place.at("a/b.bin"), 102400, "file")
    assert found["generation"]
    assert found["updated"].timestamp() == found["mtime"]
    folder = {"name": place.at("a"), "size": 0, "type": "directory"}
    assert place.fs.info(place.at("a")) == folder
    assert place.fs.info(place.at("a/")) == folder
    assert place.fs.info(place.path)["type"] == "directory"
    with pytest.raises(FileNotFoundError, match=r"no such object or folder.*a/c"):
        place.fs.info(place.at("a/c"))
    assert place.fs.isfile(place.at("a/b.bin"))
    assert not place.fs.isfile(place.at("a"))
    assert place.fs.isdir(place.at("a"))
    assert not place.fs.isdir(place.at("a/b.bin"))
    assert not place.fs.exists(place.at("b"))
    assert place.fs.modified(place.at("a/b.bin")) == found["updated"]


def test_listings_have_names_in_order_with_folders(place: Place) -> None:
    for name in ("z", "a/2", "a/1", "a/b/c/d", "a-"):
        place.fs.pipe_file(place.at(name), name.encode())
    below = [place.at(name) for name in ("a", "a-", "z")]
    assert sorted(place.fs.ls(place.path, detail=False)) == below
    sizes = {entry["name"]: entry["size"] for entry in place.fs.ls(place.at("a"))}
    assert sizes == {place.at("a/1"): 3, place.at("a/2"): 3, place.at("a/b"): 0}
    assert place.fs.ls(place.at("z"), detail=False) == [place.at("z")]
    files = [place.at(name) for name in ("a-", "a/1", "a/2", "a/b/c/d", "z")]
    assert place.fs.find(place.path) == files
    folders = [place.path, *(place.at(name) for name in ("a", "a/b", "a/b/c"))]
    assert place.fs.find(place.path, withdirs=True) == sorted([*files, *folders])
    assert place.fs.find(place.path, maxdepth=2) == [f for f in files if "/c" not in f]
    assert place.fs.find(place.at("z")) == [place.at("z")]
    assert place.fs.find(place.at("missing")) == []
    assert place.fs.glob(place.at("a/*")) == [place.at(n) for n in ("a/1", "a/2", "a/b")]
    assert place.fs.glob(place.at("**/d")) == [place.at("a/b/c/d")]
    assert place.fs.glob(place.at("a/?")) == [place.at(n) for n in ("a/1", "a/2", "a/b")]
    assert place.fs.du(place.path) == 2 + 3 + 3 + 7 + 1
    walked = [
        (root, sorted(dirs), sorted(files)) for root, dirs, files in place.fs.walk(place.path)
    ]
    assert walked[:2] == [(place.path, ["a"], ["a-", "z"]), (place.at("a"), ["b"], ["1", "2"])]
    with pytest.raises(FileNotFoundError):
        place.fs.ls(place.at("missing"))


NAMES = st.lists(st.sampled_from(["a", "b", "ab", "*", "é", "x y"]), min_size=1, max_size=4)


@hypothesis.given(paths=st.sets(NAMES.map("/".join), min_size=1, max_size=8))
@hypothesis.settings(max_examples=30)
def test_one_listing_finds_what_a_walk_finds(fault_server: FaultServer, paths: set[str]) -> None:
    fault_server.reset()
    fault_server.bucket("bucket")
    for path in paths:
        fault_server.put("bucket", path, b"1")
    fs = GcsFileSystem(endpoint=fault_server.url)
    for top in ("bucket", *(f"bucket/{path.partition('/')[0]}" for path in paths)):
        for withdirs in (False, True):
            found = fs.find(top, withdirs=withdirs, detail=True)
            walked = super(StoreFileSystem, fs).find(top, withdirs=withdirs, detail=True)
            # A name may be an object and a folder: a walk finds both, and keeps the last.
            doubled = {f"bucket/{path}" for path in paths} & {
                f"bucket/{'/'.join(path.split('/')[:i])}"
                for path in paths
                for i in range(1, path.count("/") + 1)
            }
            assert set(found) - doubled == set(walked) - doubled
            assert all(found[n]["type"] == walked[n]["type"] for n in set(found) - doubled)


def test_a_placeholder_of_a_folder_is_a_folder(counted: Place, server: FaultServer) -> None:
    server.put(counted.path, "made/", b"")
    server.put(counted.path, "made/by hand/", b"")
    assert counted.fs.isdir(counted.at("made"))
    assert counted.fs.ls(counted.at("made"), detail=False) == [counted.at("made/by hand")]
    assert counted.fs.ls(counted.at("made/by hand")) == []
    assert counted.fs.find(counted.path) == []
    assert counted.fs.find(counted.path, withdirs=True) == [
        counted.path, counted.at("made"), counted.at("made/by hand")
    ]  # fmt: skip
    counted.fs.rm(counted.at("made"), recursive=True)
    assert server.names(counted.path) == []


def test_asking_costs_one_request_for_what_is_there(counted: Place, server: FaultServer) -> None:
    server.put(counted.path, "a", DATA)
    begin = len(server.log())
    assert counted.fs.isfile(counted.at("a"))
    assert counted.fs.info(counted.at("a"))["size"] == len(DATA)
    assert counted.fs.exists(counted.at("a"))
    assert kinds(server, begin) == ["get"] * 3
    begin = len(server.log())
    assert counted.fs.find(counted.path) == [counted.at("a")]
    assert kinds(server, begin) == ["list"]
    begin = len(server.log())
    assert counted.fs.du(counted.path) == len(DATA)
    assert kinds(server, begin) == ["list"]


def test_a_bucket_must_be_named(counted: Place) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="which bucket"):
        counted.fs.ls("")
    assert counted.fs.isdir("")
    assert not counted.fs.isfile("")
    with pytest.raises(IsADirectoryError, match="it is a bucket"):
        counted.fs.open(counted.path)


def test_a_missing_bucket_is_told(counted: Place) -> None:
    assert not counted.fs.exists("no-such-bucket/a")
    assert not counted.fs.isdir("no-such-bucket")
    assert counted.fs.find("no-such-bucket") == []
    with pytest.raises(FileNotFoundError):
        counted.fs.ls("no-such-bucket")


# ---- bytes


def test_cat_takes_slices_as_python_has_them(place: Place) -> None:
    place.fs.pipe_file(place.at("a"), DATA)

    @hypothesis.given(
        start=st.none() | st.integers(-110_000, 110_000),
        end=st.none() | st.integers(-110_000, 110_000),
    )
    @hypothesis.settings(max_examples=40)
    def check(start: int | None, end: int | None) -> None:
        assert place.fs.cat_file(place.at("a"), start, end) == DATA[start:end]

    check()
    edges = [None, 0, 1, len(DATA) - 1, len(DATA), len(DATA) + 1, -1, -len(DATA), -len(DATA) - 1]
    pairs = [(start, end) for start in edges for end in edges]
    found = place.fs.cat_ranges([place.at("a")] * len(pairs), *map(list, zip(*pairs, strict=True)))
    assert found == [DATA[start:end] for start, end in pairs]


def test_cat_reads_many_objects_by_a_request_each_and_nothing_else(
    counted: Place, server: FaultServer
) -> None:
    for i in range(20):
        server.put(counted.path, f"{i:02}", bytes([i]) * 1000)
    begin = len(server.log())
    paths = [counted.at(f"{i:02}") for i in range(20)]
    assert counted.fs.cat(paths) == {p: bytes([i]) * 1000 for i, p in enumerate(paths)}
    assert kinds(server, begin) == ["media"] * 20
    begin = len(server.log())
    assert counted.fs.cat(counted.at("0[0-4]")) == {
        p: bytes([i]) * 1000 for i, p in enumerate(paths[:5])
    }
    # One to see that nothing has the pattern for its name, and one that lists what may match.
    assert sorted(kinds(server, begin)) == sorted(["list", "list", *["media"] * 5])
    assert counted.fs.cat(paths[3]) == bytes([3]) * 1000
    assert counted.fs.cat(counted.path, recursive=True)[paths[7]] == bytes([7]) * 1000


def test_ranges_that_lie_together_are_one_request(counted: Place, server: FaultServer) -> None:
    server.put(counted.path, "a", DATA)
    path = counted.at("a")
    begin = len(server.log())
    starts = list(range(0, 100_000, 10_000))
    ends = [start + 1000 for start in starts]
    assert counted.fs.cat_ranges([path] * 10, starts, ends) == [
        DATA[a:b] for a, b in zip(starts, ends, strict=True)
    ]
    assert kinds(server, begin) == ["media"] * 10
    begin = len(server.log())
    counted.fs.cat_ranges([path] * 10, starts, ends, max_gap=9000)
    assert kinds(server, begin) == ["media"]
    # One number is for all of them.
    assert counted.fs.cat_ranges([path] * 2, 5, 8) == [DATA[5:8]] * 2


def test_ranges_are_cut_off_at_the_end_of_their_object(counted: Place, server: FaultServer) -> None:
    server.put(counted.path, "a", DATA)
    path, size = counted.at("a"), len(DATA)
    begin = len(server.log())
    found = counted.fs.cat_ranges([path] * 3, [0, size - 5, size + 5], [10, size + 5, size + 9])
    assert found == [DATA[:10], DATA[-5:], b""]
    # The first range is read once; of the others the size is asked for.
    assert kinds(server, begin).count("get") == 2


@pytest.mark.parametrize("decided", [False, True])
def test_ranges_that_are_dropped_leave_their_pages_to_the_next_ones(
    tmp_path: Path, run_child: Child, decided: bool
) -> None:
    """Else the system clears as many pages for each call as it has bytes."""
    (tmp_path / "data").write_bytes(bytes(32 << 20))
    done = run_child(
        """
        import resource, sys
        from headrace.fsspec import FolderFileSystem
        fs, path = FolderFileSystem(), sys.argv[1]
        def faults():
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for turn in range(8):
            before = faults()
            begins = list(range(0, 32 << 20, 2 << 20))
            found = fs.cat_ranges([path] * 16, begins, [each + (2 << 20) for each in begins])
            assert sum(map(len, found)) == 32 << 20
            del found
        print(faults() - before)
        """,
        str(tmp_path / "data"),
        **({"MALLOC_TRIM_THRESHOLD_": "131072"} if decided else {}),
    )
    assert (int(done.stdout) > 16 * 512 / 2) == decided


def test_errors_are_in_their_places_or_raised(place: Place) -> None:
    place.fs.pipe({place.at("a"): b"aaa", place.at("b"): b"bb"})
    paths = [place.at("a"), place.at("missing"), place.at("b")]
    found = place.fs.cat_ranges(paths, 1, 2)
    assert (found[0], found[2]) == (b"a", b"b")
    assert isinstance(found[1], FileNotFoundError)
    assert place.at("missing") in str(found[1])
    with pytest.raises(FileNotFoundError):
        place.fs.cat_ranges(paths, 1, 2, on_error="raise")
    with pytest.raises(FileNotFoundError):
        place.fs.cat(paths)
    assert place.fs.cat(paths, on_error="omit") == {paths[0]: b"aaa", paths[2]: b"bb"}
    assert isinstance(place.fs.cat(paths, on_error="return")[paths[1]], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        place.fs.cat_file(place.at("missing"), 5, 5)
    with pytest.raises(TypeError, match="must be a list"):
        place.fs.cat_ranges(place.at("a"), 0, 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="2 paths, 1 starts"):
        place.fs.cat_ranges([place.at("a")] * 2, [0], [1, 2])


def test_whole_objects_are_compared_with_their_checksum(
    counted: Place, server: FaultServer
) -> None:
    server.put(counted.path, "a", DATA)
    server.faults([{"match": {"kind": "media"}, "action": {"flip_byte": 5}}])
    with pytest.raises(headrace.CorruptDataError):
        counted.fs.cat_file(counted.at("a"))


def test_an_object_larger_than_the_memory_budget_is_read_all_the_same(
    tmp_path: Any, run_child: Any
) -> None:
    (tmp_path / "large").write_bytes(DATA * 100)
    script = """
    import sys
    import headrace, headrace.fsspec
    headrace.configure(memory_budget_bytes=4 << 20)
    fs = headrace.fsspec.FolderFileSystem()
    data = bytes(range(256)) * 40_000
    assert fs.cat_file(sys.argv[1]) == data
    whole, part = fs.cat_ranges([sys.argv[1]] * 2, [None, 100], [None, -100])
    assert whole == data and part == data[100:-100]
    """
    run_child(script, str(tmp_path / "large"))


# ---- files


def test_a_file_that_is_read_has_what_fsspec_users_ask_of_it(place: Place) -> None:
    place.fs.pipe_file(place.at("a"), DATA)
    with place.fs.open(place.at("a")) as file:
        assert (file.size, file.path, file.mode) == (len(DATA), place.at("a"), "rb")
        assert file.full_name == f"{place.url}/a"
        assert file.details["size"] == len(DATA)
        file.seek(100)
        with pickle.loads(pickle.dumps(file)) as again:
            assert (again.tell(), again.read(10)) == (100, DATA[100:110])
        assert file.read() == DATA[100:]
    with place.fs.open(place.at("a"), "r", encoding="latin-1", newline="") as text:
        assert text.read() == DATA.decode("latin-1")
    assert place.fs.head(place.at("a"), 5) == DATA[:5]
    assert place.fs.tail(place.at("a"), 5) == DATA[-5:]
    assert place.fs.read_block(place.at("a"), 100, 5) == DATA[100:105]


def test_a_pickled_file_is_not_another_generation(place: Place) -> None:
    place.fs.pipe_file(place.at("a"), b"before")
    with place.fs.open(place.at("a")) as file:
        pickled = pickle.dumps(file)
    place.fs.pipe_file(place.at("a"), b"after it")
    with pytest.raises(headrace.PreconditionFailedError):
        pickle.loads(pickled)


@pytest.mark.parametrize("cache", ["readahead", "bytes", "blockcache", "all", "first", "none"])
def test_caches_of_fsspec_can_be_asked_for(place: Place, cache: str) -> None:
    place.fs.pipe_file(place.at("a"), DATA)
    with place.fs.open(place.at("a"), cache_type=cache, block_size=10_000) as file:
        file.seek(9_990)
        assert file.read(20) == DATA[9_990:10_010]
        assert file.read() == DATA[10_010:]
        assert file.details["size"] == len(DATA)


def test_parts_that_a_caller_has_are_not_read_again(counted: Place, server: FaultServer) -> None:
    server.put(counted.path, "a", DATA)
    known = {(1000, 2000): DATA[1000:2000]}
    with counted.fs.open(
        counted.at("a"), cache_type="parts", cache_options={"data": known}
    ) as file:
        begin = len(server.log())
        file.seek(1200)
        assert file.read(100) == DATA[1200:1300]
        assert kinds(server, begin) == []


def test_a_folder_cannot_be_read(place: Place) -> None:
    place.fs.pipe_file(place.at("a/b"), b"")
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        place.fs.open(place.at("a"))
    with pytest.raises(FileNotFoundError):
        place.fs.open(place.at("c"))
    with pytest.raises(FileNotFoundError):
        place.fs.cat_file(place.at("a"))


def test_who_may_not_read_is_told_so(counted: Place, server: FaultServer) -> None:
    server.put(counted.path, "a", DATA)
    server.faults([{"match": {}, "action": {"status": 403}}])
    calls: list[Any] = [
        counted.fs.cat_file, counted.fs.open, counted.fs.info, counted.fs.exists,
        counted.fs.isfile, counted.fs.isdir, counted.fs.ls, counted.fs.find, counted.fs.rm,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(PermissionError):
            call(counted.at("a"))


# ---- other layers of fsspec


@pytest.mark.filterwarnings(  # its "blockcache" leaves a file open
    "ignore:Exception ignored in. <_io.FileIO:pytest.PytestUnraisableExceptionWarning"
)
def test_fsspec_caches_files_of_ours(place: Place, tmp_path: Any) -> None:
    place.fs.pipe_file(place.at("a"), DATA)
    protocol = place.fs.protocol
    for layer in ("simplecache", "filecache", "blockcache"):
        options = {protocol: place.options, layer: {"cache_storage": str(tmp_path / layer)}}
        url = f"{layer}::{protocol}://{place.at('a')}"
        with fsspec.open(url, **options) as file:
            assert file.read() == DATA


def test_a_mapping_of_keys_reads_and_writes_objects(place: Place) -> None:
    mapper = place.fs.get_mapper(place.at("store"))
    mapper["a/b"] = b"1"
    mapper.setitems({"c": b"2", "d": b"3"})
    assert sorted(mapper) == ["a/b", "c", "d"]
    assert mapper.getitems(["c", "d", "e"], on_error="omit") == {"c": b"2", "d": b"3"}
    del mapper["a/b"]
    assert "a/b" not in mapper
    with pytest.raises(KeyError):
        mapper["a/b"]


def test_a_directory_file_system_lies_upon_ours(place: Place) -> None:
    from fsspec.implementations.dirfs import DirFileSystem

    below = DirFileSystem(place.path, place.fs)
    below.pipe({"x/a": b"1", "x/b": b"2"})
    assert below.find("") == ["x/a", "x/b"]
    assert below.cat(["x/a", "x/b"]) == {"x/a": b"1", "x/b": b"2"}


def test_paths_may_have_their_scheme_or_not() -> None:
    strip = GcsFileSystem._strip_protocol
    for text in ("headrace+gs://b/a/", "gs://b/a", "b/a", "/b/a", "headrace+gs::b/a"):
        assert strip(text) == "b/a"
    assert strip(["b/c", "gs://b"]) == ["b/c", "b"]
    assert strip("b/https://x/y") == "b/https://x/y"
    assert strip("") == ""
    assert FolderFileSystem._strip_protocol("headrace+file:///a/../b/") == "/b"
    assert FolderFileSystem._strip_protocol("file:///") == "/"
    assert FolderFileSystem._strip_protocol("headrace+file://a/b") == "/a/b"
    assert FolderFileSystem._strip_protocol("a") == os.path.abspath("a")


@pytest.mark.parametrize("end", [1 << 36, 1 << 62, 1 << 63, 1 << 70])
def test_an_end_that_no_object_has_needs_no_memory(place: Place, end: int) -> None:
    place.fs.pipe_file(place.at("a"), b"0123456789")
    assert place.fs.cat_file(place.at("a"), 2, end) == b"23456789"
    found = place.fs.cat_ranges([place.at("a")] * 3, [0, 9, 20], [5, end, end])
    assert found == [b"01234", b"9", b""]


# ---- as a file of Python's own

LINES = b"".join(b"%d %s\n" % (i, b"x" * (i * 7 % 90)) for i in range(2000))
PLACES = st.one_of(
    st.integers(-5, 200), st.integers(-len(LINES) - 5, len(LINES) + 5), st.integers(-5, 5)
)
SIZES = st.one_of(st.integers(-1, 200), st.integers(0, len(LINES) + 5))
CALLS = st.one_of(
    st.tuples(st.just("seek"), PLACES, st.integers(-1, 2)),
    st.tuples(st.sampled_from(["read", "readinto", "readinto1", "read1"]), SIZES),
    st.tuples(st.sampled_from(["readline", "readlines", "peek"]), st.integers(-1, 300)),
    st.tuples(st.sampled_from(["tell", "read", "readline", "__next__", "seekable", "isatty"])),
    st.tuples(st.sampled_from(["readable", "writable", "flush"])),
)
# Of what fsspec's own class of cached files has otherwise: its lines, and wrong arguments.
WRONG_CALLS = st.one_of(
    st.tuples(st.sampled_from(["read", "seek"]), st.sampled_from([1.5, "1", -2])),
    st.tuples(st.sampled_from(["write", "readinto"]), st.just(b"1")),
    st.tuples(st.just("truncate")),
    st.tuples(st.just("readline"), st.none()),
    st.tuples(st.just("readinto"), st.just("an array of none")),
)


def _answer(file: Any, call: tuple[Any, ...]) -> Any:
    """Return what a call answers or raises, and where the file is then."""
    what, *arguments = call
    buffer: Any = None
    if what.startswith("readinto") and arguments[0] != b"1":
        is_array = isinstance(arguments[0], str)
        buffer = numpy.zeros((0, 3)) if is_array else bytearray(max(0, arguments[0]))
        arguments = [buffer]
    before = file.tell()
    try:
        found = getattr(file, what)(*arguments)
    except (OSError, ValueError, TypeError, StopIteration) as error:
        found = type(error)
    if what in ("read1", "peek", "readinto1"):
        # As many as are at hand: at least one, if there is one.
        data = bytes(buffer[:found]) if what == "readinto1" else found
        assert data == LINES[before : before + len(data)]
        assert file.tell() == before + (0 if what == "peek" else len(data))
        file.seek(before)
        found = bool(data)
    return found, None if buffer is None else bytes(buffer), file.tell()


@pytest.mark.parametrize("how", ["headrace.open", "fs", "cached"])
def test_files_that_are_read_answer_as_pythons_own(tmp_path: Path, how: str) -> None:
    (tmp_path / "a").write_bytes(LINES)
    (tmp_path / "empty").write_bytes(b"")
    fs = FolderFileSystem()
    options = {"cache_type": "readahead", "block_size": 1 << 12} if how == "cached" else {}

    @hypothesis.given(
        name=st.sampled_from(["a", "a", "a", "empty"]),
        calls=st.lists(CALLS if how == "cached" else st.one_of(CALLS, WRONG_CALLS), max_size=25),
    )
    def check(name: str, calls: list[tuple[Any, ...]]) -> None:
        path = str(tmp_path / name)
        opened = headrace.open(path) if how == "headrace.open" else fs.open(path, "rb", **options)
        with opened as file, open(path, "rb") as expected:
            for call in calls:
                if how == "cached" and (call[0] in ("read1", "readinto1", "peek", "__next__")):
                    continue
                assert _answer(file, call) == _answer(expected, call), call

    check()


def test_an_empty_object_is_no_archive(place: Place) -> None:
    place.fs.pipe_file(place.at("a"), b"")
    for options in ({}, {"cache_type": "readahead"}):
        with place.fs.open(place.at("a"), **options) as file:
            assert not zipfile.is_zipfile(file)
