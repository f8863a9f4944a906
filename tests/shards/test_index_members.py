"""An index of the members of shards: what it has, and what it costs."""

from __future__ import annotations

import array
import io
import logging
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

import headrace
from headrace import ObjectIndex
from testing.faultserver.client import FaultServer
from tests.shards.tars import by_webdataset, fill, media, samples_of, tar

SIZES = st.one_of(
    st.just(0), st.integers(0, 2000), st.integers(0, 70_000), st.integers(60_000, 300_000)
)
NAMES = st.one_of(
    st.from_regex(r"[a-z0-9]{1,20}(/[a-z]{1,10}){0,2}\.[a-z]{1,4}", fullmatch=True),
    st.from_regex(r"[a-z]{101,300}\.jpg", fullmatch=True),
    st.from_regex(r"[äßλ字]{1,60}\.png", fullmatch=True),
)
KINDS = st.sampled_from("fffffffdhs")  # files, folders, hard and symbolic links


@st.composite
def archives(draw: st.DrawFn) -> bytes:
    out = io.BytesIO()
    tar_format = draw(st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
    with tarfile.open(fileobj=out, mode="w", format=tar_format) as archive:
        files: list[str] = []
        for i in range(draw(st.integers(0, 25))):
            kind = draw(KINDS)
            info = tarfile.TarInfo(f"{i}{draw(NAMES)}")
            if draw(st.booleans()):
                info.mtime = 1.5  # type: ignore[assignment]  # has an extended header, in pax
            if kind == "d":
                info.type = tarfile.DIRTYPE
            elif kind == "s":
                info.type, info.linkname = tarfile.SYMTYPE, "somewhere"
            elif kind == "h" and files:
                info.type, info.linkname = tarfile.LNKTYPE, draw(st.sampled_from(files))
            else:
                info.size = draw(SIZES)
                files.append(info.name)
            content = bytes([i + 1]) * info.size
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def contents(store: headrace.Store, index: ObjectIndex) -> list[tuple[str, bytes]]:
    reader = headrace._engine.IndexReader(index, [store._open()[1]])
    samples = reader.start(range(len(index))).take(return_errors=False)
    return [
        (name, bytes(sample)) for name, sample in zip(index.column("member"), samples, strict=True)
    ]


def entries(index: ObjectIndex) -> list[tuple[str, Any, str]]:
    return [(index.url(i), index.range(i), name) for i, name in enumerate(index.column("member"))]


@hypothesis.settings(max_examples=60)
@hypothesis.given(st.lists(archives(), min_size=1, max_size=3))
def test_it_has_the_files_that_tarfile_finds(shards: list[bytes]) -> None:
    wanted = []
    with tempfile.TemporaryDirectory() as folder:
        for i, shard in enumerate(shards):
            Path(folder, f"{i}.tar").write_bytes(shard)
            with tarfile.open(fileobj=io.BytesIO(shard)) as archive:
                for member in archive:
                    if member.isfile() or member.islnk():
                        file = archive.extractfile(member)
                        assert file is not None
                        wanted.append((member.name, file.read()))
        assert contents(headrace.Store(folder), headrace.index_members(folder)) == wanted


# ---- what it costs


@pytest.mark.parametrize("size_bytes", [100 * 1024, 150 * 1024, 400_000])
def test_of_large_files_it_reads_one_hundredth(
    gcs: headrace.Store, server: FaultServer, size_bytes: int
) -> None:
    members = [(f"{i}.bin", bytes(size_bytes)) for i in range(40)]
    for i in range(2):
        gcs.write(f"{i}.tar", tar(members))
    total_bytes = sum(info.size_bytes for info in gcs.list())
    index = headrace.index_members(gcs)
    assert len(index) == 80
    assert sum(media(server)) <= total_bytes / 100
    assert len(media(server)) <= 2 * 41


def test_of_large_files_that_webdataset_wrote_it_reads_three_blocks_each(
    gcs: headrace.Store, server: FaultServer
) -> None:
    shard = by_webdataset({"__key__": f"{i}", "bin": bytes(200 * 1024)} for i in range(40))
    gcs.write("a.tar", shard)
    assert len(headrace.index_members(gcs)) == 40
    assert sum(media(server)) <= len(shard) / 100
    assert len(media(server)) <= 42


def test_of_samples_of_a_large_file_and_a_small_one_it_sends_one_request_each(
    gcs: headrace.Store, server: FaultServer
) -> None:
    gcs.write("a.tar", tar(samples_of(0, 50, 120_000)))
    assert len(headrace.index_members(gcs)) == 100
    assert len(media(server)) <= 53
    assert sum(media(server)) <= 6_000_000 / 50


def test_small_files_are_read_on_through(gcs: headrace.Store, server: FaultServer) -> None:
    shard = tar(samples_of(0, 1000, 1000))
    gcs.write("a.tar", shard)
    assert len(headrace.index_members(gcs)) == 2000
    assert len(media(server)) <= 9  # of 2.6 MB
    assert sum(media(server)) <= len(shard)


def test_shards_that_are_named_are_asked_for_and_no_more_is_listed(
    gcs: headrace.Store, server: FaultServer
) -> None:
    fill(gcs, 4, 2)
    url, options = "gs://bucket/shard-{000..002}.tar", {"endpoint": server.url}
    assert len(headrace.index_members(url, **options)) == 12
    kinds = [each["kind"] for each in server.log() if each["method"] == "GET"]
    assert sorted(kinds) == ["get"] * 3 + ["media"] * 3


def test_a_pattern_lists_what_begins_as_it_does(gcs: headrace.Store, server: FaultServer) -> None:
    fill(gcs, 4, 2)
    gcs.write("other.tar", tar(samples_of(0, 1)))
    assert len(headrace.index_members("gs://bucket/shard-00[13].tar", endpoint=server.url)) == 8
    listings = [each["target"] for each in server.log() if each["kind"] == "list"]
    assert len(listings) == 1
    assert "prefix=shard-00&" in f"{listings[0]}&"


# ---- which shards


@pytest.mark.every_store
def test_shards_are_named_in_many_ways(store: headrace.Store, tmp_path: Path) -> None:
    fill(store, 3, 2)
    store.write("notes.txt", b"not a shard")
    whole = headrace.index_members(store)
    assert whole.columns == ("member",)
    assert len(whole) == 12
    assert whole.column("member", [0, 1]) == ["000000.jpg", "000000.cls"]
    for source in (
        "shard-{000..002}.tar",
        "shard-*.tar",
        "shard-00[0-2].tar",
        ["shard-000.tar", "shard-00{1,2}.tar"],
        ["shard-000.tar", "shard-00[12].tar"],
        store.index().filter(suffix=".tar"),
        [store.index("shard-000"), "shard-001.tar", store.index("shard-002")],
        ObjectIndex.from_names([f"shard-{i:03d}.tar" for i in range(3)]),
    ):
        index = headrace.index_members(source, store=store)
        assert entries(index) == entries(whole), source
        # S3 tells checksums of objects that are named, and none of those that it lists.
        assert index.fingerprint == whole.fingerprint or store.url.startswith("s3"), source
    if store.url.startswith("file"):
        for text in (
            store.url,
            str(tmp_path),
            f"{tmp_path}/*.tar",
            tmp_path / "shard-00{0..2}.tar",
        ):
            assert headrace.index_members(text).fingerprint == whole.fingerprint


def test_a_path_without_a_folder_is_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(headrace.Store(tmp_path), 2, 2)
    monkeypatch.chdir(tmp_path)
    for source in ("*.tar", "shard-{000,001}.tar", "."):
        assert len(headrace.index_members(source)) == 8


def test_several_stores_become_one_index(gcs: headrace.Store, file: headrace.Store) -> None:
    fill(gcs, 1, 2)
    fill(file, 2, 3)
    index = headrace.index_members([gcs, file])
    assert index.roots == (gcs.url, f"{file.url}")
    assert len(index) == 4 + 12


def test_stores_of_one_url_and_different_settings_are_refused(file: headrace.Store) -> None:
    fill(file, 2, 3)
    assert len(headrace.index_members([file, headrace.Store(file.url)])) == 24
    with pytest.raises(headrace.InvalidArgumentError, match="different settings"):
        headrace.index_members([file, file._derived(on_change="reread")])


def test_what_is_not_there_is_an_error(store: headrace.Store) -> None:
    fill(store, 2, 2)
    store.write("other/notes.txt", b"not a shard")
    for source, text in (
        ("shard-{000..002}.tar", "shard-002.tar"),
        ("shards-*.tar", "no object matches the pattern"),
        ("other", "no object whose name ends with .tar"),
    ):
        with pytest.raises(headrace.NotFoundError, match=text):
            headrace.index_members(source, store=store)
    for wrong, text in (
        (3, "the source is a int"),
        ([], "the source is a list"),
        ("shard-{0", "a brace is not closed"),
        ("shard-0}", "a brace is closed"),
        ("gs://*/a.tar", "a bucket is no pattern"),
        (store.index("none"), "the index of shards is empty"),
    ):
        with pytest.raises(headrace.InvalidArgumentError, match=text):
            headrace.index_members(wrong)  # type: ignore[arg-type]
    with pytest.raises(headrace.InvalidArgumentError, match="on_error is 'ignore'"):
        headrace.index_members(store, on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(headrace.InvalidArgumentError, match="give store="):
        headrace.index_members(ObjectIndex.from_names(["a.tar"]))
    with pytest.raises(headrace.InvalidArgumentError, match="belong to the Store"):
        headrace.index_members(store, endpoint="http://127.0.0.1:1")


# ---- bad shards


def bad_shards() -> dict[str, tuple[bytes, type[Exception], str]]:
    whole = tar(samples_of(0, 3, 5000))
    lying = bytearray(whole)
    lying[124:136] = b"00077777777\0"
    lying[148:156] = b" " * 8
    lying[148:156] = b"%06o\0 " % sum(lying[:512])
    sparse = bytearray(tar([("holes", b"x" * 512)], tar_format=tarfile.GNU_FORMAT))
    sparse[156:157] = b"S"
    sparse[386:410] = b"00000000000\0" + b"00000001000\0"
    sparse[483:495] = b"00000021450\0"
    sparse[148:156] = b" " * 8
    sparse[148:156] = b"%06o\0 " % sum(sparse[:512])
    corrupt, invalid = headrace.CorruptDataError, headrace.InvalidArgumentError
    return {
        "text": (b"no tar at all" * 1000, corrupt, "before byte 512"),
        "empty": (b"", corrupt, "empty"),
        "cut": (whole[:3000], corrupt, r"'000000.jpg', whose header is at byte 0, has 5000 bytes"),
        "cut-header": (whole[: 512 + 5120 + 100], corrupt, "torn|ends"),
        "lying": (bytes(lying), corrupt, "ends after"),
        "sparse": (bytes(sparse), invalid, "'holes', whose header is at byte 0, is a sparse file"),
        "gzip": (b"\x1f\x8b\x08" + bytes(600), invalid, "compressed by gzip"),
        "zstd": (b"\x28\xb5\x2f\xfd" + bytes(600), invalid, "compressed by zstd"),
    }


@pytest.mark.parametrize("name", bad_shards())
def test_a_bad_shard_is_an_error_that_names_it(store: headrace.Store, name: str) -> None:
    content, error, text = bad_shards()[name]
    fill(store, 2, 2)
    store.write(f"{name}.tar", content)
    with pytest.raises(error, match=text) as caught:
        headrace.index_members(store)
    assert store.url_of(f"{name}.tar") in str(caught.value)


@pytest.mark.every_store
def test_bad_shards_are_skipped_and_reported(
    store: headrace.Store, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 3, 2)
    for name, (content, _, _) in bad_shards().items():
        store.write(f"{name}.tar", content)
    errors: list[headrace.HeadraceError] = []
    index = headrace.index_members(store, on_error=errors.append)
    assert len(index) == 12
    assert sorted(error.url for error in errors) == sorted(
        store.url_of(f"{name}.tar") for name in bad_shards()
    )
    assert not caplog.records
    with caplog.at_level(logging.WARNING, "headrace"):
        assert headrace.index_members(store, on_error="skip").fingerprint == index.fingerprint
    assert [str(record.args[0]) for record in caplog.records] == [str(error) for error in errors]


@pytest.mark.every_store
def test_shards_that_may_have_more_are_read_and_named(
    store: headrace.Store, caplog: pytest.LogCaptureFixture
) -> None:
    whole = tar(samples_of(0, 3, 100))
    link = tarfile.TarInfo("hard")
    link.type, link.linkname = tarfile.LNKTYPE, "soft"
    soft = tarfile.TarInfo("soft")
    soft.type, soft.linkname = tarfile.SYMTYPE, "somewhere"
    linked = soft.tobuf(tarfile.USTAR_FORMAT) + link.tobuf(tarfile.USTAR_FORMAT) + whole
    for name, content in (
        ("good", whole),
        ("joined", whole + whole),
        ("linked", linked),
        ("stopped", whole[: 4 * 1024]),  # as the writer leaves it that is killed
    ):
        store.write(f"{name}.tar", content)
    with caplog.at_level(logging.WARNING, "headrace"):
        index = headrace.index_members(store)
    assert len(index) == 6 + 6 + 6 + 4
    told = {str(record.args[0]).split(": ")[0]: record.message for record in caplog.records}
    assert sorted(told) == [store.url_of(f"{name}.tar") for name in ("joined", "linked", "stopped")]
    assert "at byte 7168" in told[store.url_of("joined.tar")]
    assert "'hard'" in told[store.url_of("linked.tar")]
    assert "after 4096 bytes without" in told[store.url_of("stopped.tar")]


@pytest.mark.every_store
@pytest.mark.parametrize("on_change", ["error", "reread"])
def test_a_shard_that_changed_after_it_was_listed_is_an_error(
    store: headrace.Store, on_change: str
) -> None:
    fill(store, 2, 2)
    shards = store.index()
    store.write("shard-001.tar", tar(samples_of(5, 2)))  # of the same size
    with pytest.raises(headrace.PreconditionFailedError, match=r"shard-001\.tar"):
        headrace.index_members(shards, store=store._derived(on_change=on_change))


def test_a_member_of_a_shard_that_changed_after_indexing_is_an_error(store: headrace.Store) -> None:
    fill(store, 1, 2)
    index = headrace.index_members(store)
    store.write("shard-000.tar", tar(samples_of(5, 2, 1000)))
    with pytest.raises(headrace.PreconditionFailedError, match=r"shard-000\.tar"):
        contents(store, index)


# ---- progress, and keeping it


def test_progress_counts_shards(store: headrace.Store) -> None:
    fill(store, 5, 2)
    told: list[tuple[int, None]] = []
    headrace.index_members(store, progress=lambda *each: told.append(each))
    assert told[-1] == (5, None)


def test_what_progress_raises_ends_it(store: headrace.Store) -> None:
    fill(store, 5, 2)

    def stop(*_: Any) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        headrace.index_members(store, progress=stop)


@pytest.mark.every_store
def test_it_is_saved_selected_and_loaded_as_any_index(store: headrace.Store) -> None:
    fill(store, 2, 3)
    index = headrace.index_members(store)
    index.save("members", store=store)
    loaded = ObjectIndex.load("members", store=store)
    assert loaded == index
    pictures = [i for i, name in enumerate(index.column("member")) if name.endswith(".jpg")]
    some = loaded.select(array.array("q", pictures))
    assert [name for name, _ in contents(store, some)] == [f"{i:06d}.jpg" for i in range(6)]


def test_an_outage_is_no_broken_shard(server: FaultServer, gcs: headrace.Store) -> None:
    for shard in range(2):
        gcs.write(f"{shard}.tar", tar([("a.txt", b"a")]))
    store = headrace.Store(
        gcs.url, endpoint=server.url, retry=headrace.RetryOptions(max_attempts=1)
    )
    told: list[Any] = []
    for status, error in ((403, headrace.PermissionDeniedError), (503, headrace.UnavailableError)):
        server.faults(
            [{"match": {"kind": "media", "path_contains": "1.tar"}, "action": {"status": status}}]
        )
        with pytest.raises(error):
            headrace.index_members(store, on_error=told.append)
    assert told == []
    server.faults([])
