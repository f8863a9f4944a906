"""Folders of checkpoints: complete or none, whatever happens to the upload."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace import CorruptDataError, HeadraceError, InvalidArgumentError, NotFoundError
from headrace._checkpoints.manifest import (
    MANIFEST_NAME,
    FileSum,
    manifest_of,
    parse_manifest,
    step_of,
)
from headrace.huggingface import CheckpointUploads, download, latest, resume
from headrace.huggingface import _uploads as uploads_module
from headrace.huggingface._scratch import Scratch
from testing.faultserver.client import FaultServer
from tests.killed import kill_when_written

Save = Callable[[int, str], Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Makes a local folder, as a trainer does."""

    def made(step: int, text: str) -> Path:
        folder = tmp_path / "out" / f"checkpoint-{step}"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "sub").mkdir(parents=True)
        (folder / "model.safetensors").write_text(text * 1000)
        (folder / "sub" / "state.json").write_text(text)
        (folder / "empty").write_bytes(b"")
        return folder

    return made


def upload(store: headrace.Store, *folders: Path, **options: Any) -> None:
    with CheckpointUploads("run", store=store, **options) as uploads:
        for folder in folders:
            uploads.submit(folder)


def text_of(folder: Path) -> str:
    text = (folder / "sub" / "state.json").read_text()
    assert (folder / "model.safetensors").read_text() == text * 1000
    assert (folder / "empty").read_bytes() == b""
    assert len(list(folder.rglob("*"))) == 4
    return text


def newest(store: headrace.Store) -> str | None:
    found = latest("run", store=store)
    return found and found.removeprefix(store.url_of("run/"))


@pytest.mark.every_store
def test_the_newest_checkpoint_is_resumed_from(
    store: headrace.Store, save: Save, tmp_path: Path
) -> None:
    assert newest(store) is None
    assert resume("run", tmp_path / "new", store=store) is None
    upload(store, save(9, "nine"), save(10, "ten"))
    assert newest(store) == "checkpoint-10"
    folder = resume("run", tmp_path / "new", store=store)
    assert folder == str(tmp_path / "new" / "checkpoint-10")
    assert text_of(Path(folder)) == "ten"
    download("run/checkpoint-9", tmp_path / "old", store=store)
    assert text_of(tmp_path / "old") == "nine"
    assert os.listdir(tmp_path / "new") == ["checkpoint-10"]


def test_a_local_folder_with_the_right_files_is_kept(
    server: FaultServer, gcs: headrace.Store, save: Save
) -> None:
    folder = save(1, "one")
    upload(gcs, folder)
    before = len(server.log())
    assert resume("run", folder.parent, store=gcs) == str(folder)
    asked = [each["target"] for each in server.log(before) if each["kind"] == "media"]
    assert ["headrace-checkpoint.json" in target for target in asked] == [True] * len(asked)
    (folder / "model.safetensors").write_text("half")
    assert resume("run", folder.parent, store=gcs) == str(folder)
    assert text_of(folder) == "one"


def test_only_a_folder_with_its_manifest_and_its_files_counts(
    store: headrace.Store, save: Save, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    upload(store, *(save(step, str(step)) for step in (1, 2, 3, 4, 5)))
    store.delete(f"run/checkpoint-5/{MANIFEST_NAME}")
    assert newest(store) == "checkpoint-4"
    store.write(f"run/checkpoint-4/{MANIFEST_NAME}", b"{")
    assert newest(store) == "checkpoint-3"
    store.delete("run/checkpoint-3/sub/state.json")
    assert newest(store) == "checkpoint-2"
    store.write("run/checkpoint-2/empty", b"x")
    assert newest(store) == "checkpoint-1"
    assert len(caplog.messages) >= 3
    for step in (5, 4):
        with pytest.raises(NotFoundError, match="no complete checkpoint"):
            download(f"run/checkpoint-{step}", tmp_path / "a", store=store)
    with pytest.raises(CorruptDataError, match=r"sub/state\.json: it is missing"):
        download("run/checkpoint-3", tmp_path / "a", store=store)
    assert not (tmp_path / "a").exists()
    assert not list(tmp_path.glob(".headrace-*"))


def test_the_newest_is_that_of_any_other_checkpoint(
    file: headrace.Store, save: Save, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    import headrace.checkpoint

    upload(file, save(10, "ten"), save(9, "nine"))  # 9 is written last
    ten, nine = (file.url_of(f"run/checkpoint-{step}") for step in (10, 9))
    root = Path(file.url.removeprefix("file://")) / "run"
    for i, step in enumerate((10, 9)):
        os.utime(root / f"checkpoint-{step}" / MANIFEST_NAME, (1000 + 10 * i, 1000 + 10 * i))
    for find in (latest, headrace.checkpoint.latest):
        assert find("run", store=file) == ten
        assert find("run", store=file, by="time") == nine
    assert resume("run", tmp_path / "new", store=file, by="time") == str(
        tmp_path / "new" / "checkpoint-9"
    )
    for load in (headrace.checkpoint.load, headrace.checkpoint.open):
        with pytest.raises(InvalidArgumentError, match=r"headrace\.huggingface\.download"):
            load(ten)


@pytest.mark.parametrize("status", [400, 403, 405])
def test_a_manifest_that_the_store_refuses_to_show_is_an_error(
    status: int, server: FaultServer, gcs: headrace.Store, save: Save, tmp_path: Path
) -> None:
    upload(gcs, save(1, "one"), save(2, "two"))
    for find in (
        lambda: latest("run", store=gcs),
        lambda: download("run/checkpoint-2", tmp_path / "new", store=gcs),
    ):
        server.faults([{"match": {"kind": "media"}, "count": 1, "action": {"status": status}}])
        with pytest.raises(HeadraceError) as raised:
            find()
        assert raised.value.http_status == status


def test_a_file_that_is_not_the_uploaded_one_is_an_error(
    store: headrace.Store, save: Save, tmp_path: Path
) -> None:
    upload(store, save(1, "one"))
    store.write("run/checkpoint-1/model.safetensors", b"eno" * 1000)
    with pytest.raises(CorruptDataError, match=r"model\.safetensors: its 3,000 bytes have CRC-32C"):
        resume("run", tmp_path / "new", store=store)
    assert os.listdir(tmp_path / "new") == []


def test_older_checkpoints_are_deleted_when_newer_ones_are_complete(
    store: headrace.Store, save: Save
) -> None:
    store.write("run/checkpoint-0/model.safetensors", b"unfinished")
    store.write("run/notes.txt", b"stay")
    upload(store, *(save(step, str(step)) for step in (1, 2, 10, 11)), keep=2)
    folders = {info.name.split("/")[1] for info in store.list("run/")}
    assert folders == {"checkpoint-0", "checkpoint-10", "checkpoint-11", "notes.txt"}


def test_only_checkpoints_whose_names_differ_in_the_number_alone_are_deleted_as_older(
    file: headrace.Store, save: Save
) -> None:
    made = save(1, "best")
    best = made.rename(made.parent / "best-1")
    upload(file, best)
    upload(file, *(save(step, str(step)) for step in (2, 3)), keep=1)
    folders = {info.name.split("/")[1] for info in file.list("run/")}
    assert folders == {"best-1", "checkpoint-3"}


def test_the_local_folder_may_go_while_it_is_uploaded(
    store: headrace.Store, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go, put = threading.Event(), uploads_module._put

    def waiting(*arguments: Any) -> FileSum:
        assert may_go.wait(120)
        return put(*arguments)

    monkeypatch.setattr(uploads_module, "_put", waiting)
    with CheckpointUploads("run", store=store) as uploads:
        folder = save(1, "one")
        uploads.submit(folder)
        shutil.rmtree(folder)
        assert newest(store) is None
        may_go.set()
        uploads.wait()
        assert newest(store) == "checkpoint-1"
        assert os.listdir(folder.parent) == []


def test_links_in_a_checkpoint_are_uploaded_as_the_files_that_they_lead_to(
    file: headrace.Store, save: Save, tmp_path: Path
) -> None:
    folder = save(1, "one")
    (folder / "model.safetensors").rename(folder / "real")
    (folder / "model.safetensors").symlink_to(folder / "real")
    with CheckpointUploads("run", store=file) as uploads:
        uploads.submit(folder)
        shutil.rmtree(folder)  # what the link led to
    download("run/checkpoint-1", tmp_path / "new", store=file)
    assert (tmp_path / "new" / "model.safetensors").read_text() == "one" * 1000

    (save(2, "two") / "nowhere").symlink_to(folder / "real")
    with pytest.raises(shutil.Error, match="nowhere"):
        upload(file, tmp_path / "out" / "checkpoint-2")
    assert newest(file) == "checkpoint-1"
    assert not list((tmp_path / "out").glob(".headrace-*"))


def test_files_that_are_gone_before_they_are_uploaded_are_an_error(
    file: headrace.Store, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go, put = threading.Event(), uploads_module._put

    def waiting(*arguments: Any) -> FileSum:
        assert may_go.wait(120)
        return put(*arguments)

    upload(file, save(1, "one"))
    monkeypatch.setattr(uploads_module, "_put", waiting)
    uploads = CheckpointUploads("run", store=file, keep=1)
    uploads.submit(save(2, "two"))
    uploads.submit(save(3, "three"))
    (staged,) = (each for each in uploads._staged if text_below(each.files) == "three")
    shutil.rmtree(staged.folder)  # by somebody who needs the room
    may_go.set()
    with pytest.raises(FileNotFoundError):
        uploads.close()
    assert newest(file) == "checkpoint-2"


def text_below(folder: Path) -> str:
    return (folder / "sub" / "state.json").read_text()


def test_what_killed_processes_have_left_is_removed_but_nothing_that_is_in_use(
    file: headrace.Store, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go, put = threading.Event(), uploads_module._put

    def waiting(*arguments: Any) -> FileSum:
        assert may_go.wait(120)
        return put(*arguments)

    monkeypatch.setattr(uploads_module, "_put", waiting)
    folder = save(1, "one")
    left = Scratch(uploads_module.STAGED_PREFIX, folder.parent)
    left._lock.close()  # as the system does when a process is killed
    with (
        CheckpointUploads("run", store=file) as uploads,
        CheckpointUploads("copy", store=file) as others,
    ):
        uploads.submit(folder)
        others.submit(folder)
        assert not left.folder.exists()
        assert len(list(folder.parent.glob(".headrace-*"))) == 2
        may_go.set()

    left = Scratch(".headrace-download-", tmp_path)
    left._lock.close()
    used = Scratch(".headrace-download-", tmp_path)
    for run in ("run", "copy"):
        download(f"{run}/checkpoint-1", tmp_path / run, store=file)
        assert text_of(tmp_path / run) == "one"
    assert list(tmp_path.glob(".headrace-*")) == [used.folder]
    used.close()


def test_whatever_is_in_the_way_of_a_download_is_replaced(
    file: headrace.Store, save: Save, tmp_path: Path
) -> None:
    upload(file, save(1, "one"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to(elsewhere)
    (tmp_path / "nowhere").symlink_to(tmp_path / "nothing")
    (tmp_path / "folder" / "sub").mkdir(parents=True)
    for name in ("file", "link", "nowhere", "folder", "new"):
        download("run/checkpoint-1", tmp_path / name, store=file)
        assert text_of(tmp_path / name) == "one"
        assert (tmp_path / name).stat().st_mode == elsewhere.stat().st_mode
    assert os.listdir(elsewhere) == []
    assert not list(tmp_path.glob(".headrace-*"))


@pytest.mark.parametrize("fault", ["corrupt", "no rename"])
def test_a_download_that_fails_leaves_the_folder_that_was_there(
    fault: str, file: headrace.Store, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(file, save(1, "one"))
    (tmp_path / "there").mkdir()
    (tmp_path / "there/mine").write_bytes(b"mine")
    rename = Path.rename

    def no_rename(path: Path, to: Path) -> Path:
        if path.name == "files":
            raise OSError("no rename here")
        return rename(path, to)

    if fault == "corrupt":
        [name, *_] = [i.name for i in file.list("run/checkpoint-1/") if "json" not in i.name]
        file.write(name, b"xyz")
    else:
        monkeypatch.setattr(Path, "rename", no_rename)
    with pytest.raises((CorruptDataError, OSError)):
        download("run/checkpoint-1", tmp_path / "there", store=file)
    assert [each.name for each in (tmp_path / "there").iterdir()] == ["mine"]
    assert not list(tmp_path.glob(".headrace-*"))


def test_without_links_files_are_copied(
    file: headrace.Store, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: Any) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", no_links)
    upload(file, save(1, "one"))
    download("run/checkpoint-1", tmp_path / "new", store=file)
    assert text_of(tmp_path / "new") == "one"


def test_a_file_that_is_written_meanwhile_is_an_error(
    file: headrace.Store, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save(1, "one")
    fstat = os.fstat
    calls = []

    def changing(descriptor: int) -> Any:
        calls.append(descriptor)
        found = fstat(descriptor)
        if len(calls) % 2 == 0:
            os.utime(descriptor, ns=(0, found.st_mtime_ns + 1))
        return fstat(descriptor)

    monkeypatch.setattr(uploads_module.os, "fstat", changing)
    with pytest.raises(InvalidArgumentError, match="was written while it was uploaded"):
        upload(file, folder)
    monkeypatch.undo()
    assert newest(file) is None


def test_a_file_that_is_written_before_its_upload_begins_is_an_error(
    file: headrace.Store, save: Save
) -> None:
    folder = save(1, "one")
    go_on = threading.Event()
    uploads = CheckpointUploads("run", store=file)
    uploads._work.submit(lambda: go_on.wait(120))
    uploads.submit(folder)
    for path in folder.rglob("*"):
        if path.is_file():
            path.write_text("another")
    go_on.set()
    with pytest.raises(InvalidArgumentError, match="or waited for that"):
        uploads.close()
    assert newest(file) is None


@pytest.mark.parametrize("is_first", [True, False])
def test_with_any_request_failing_no_half_of_a_checkpoint_counts(
    is_first: bool, server: FaultServer, save: Save, tmp_path: Path
) -> None:
    store = headrace.Store(
        "gs://bucket", endpoint=server.url, retry=headrace.RetryOptions(max_attempts=1)
    )
    old, new = save(1, "old"), save(2, "new") if is_first else None
    position, fired = 0, True
    while fired:
        position += 1
        server.reset()
        server.bucket("bucket")
        upload(store, save(1, "old"))
        server.faults([{"match": {}, "from": position, "count": 1, "action": {"status": 403}}])
        uploaded = True
        try:
            # Another step, or the same one again.
            upload(store, new or save(1, "new"))
        except HeadraceError:
            uploaded = False
        fired = bool(server.fault_counts()[0]["fired"])
        server.faults([])
        shutil.rmtree(tmp_path / "new", ignore_errors=True)
        found = resume("run", tmp_path / "new", store=store)
        if found is None:
            assert not is_first
            assert not uploaded
            continue
        assert text_of(Path(found)) == ("new" if uploaded else "old")
        assert not list((old.parent).glob(".headrace-*"))
    assert position > 4


KILLED = """
import pathlib, signal, sys
import headrace
from headrace.huggingface import CheckpointUploads, _uploads

store = headrace.Store("gs://bucket", endpoint=sys.argv[1])
put = _uploads._put

def told(*arguments):
    found = put(*arguments)
    print("written", flush=True)
    if arguments[1].endswith("model.safetensors"):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        signal.sigwait([signal.SIGTERM])  # until it is killed
    return found

_uploads._put = told
with CheckpointUploads("run", store=store) as uploads:
    uploads.submit(sys.argv[2])
"""


@pytest.mark.parametrize("step", [1, 2])
def test_an_upload_that_is_killed_leaves_no_checkpoint(
    step: int, server: FaultServer, gcs: headrace.Store, save: Save, tmp_path: Path
) -> None:
    upload(gcs, save(1, "old"), save(0, "older"))
    kill_when_written(server, KILLED, str(save(step, "new")), times=2)
    found = resume("run", tmp_path / "new", store=gcs)
    assert found is not None
    # The step that was being uploaded again is none; another one is as it was.
    assert text_of(Path(found)) == ("older" if step == 1 else "old")
    upload(gcs, save(step, "new"))
    assert text_of(Path(resume("run", tmp_path / "new", store=gcs) or "")) == "new"


def test_after_an_error_nothing_more_is_uploaded_or_deleted(
    server: FaultServer, gcs: headrace.Store, save: Save
) -> None:
    upload(gcs, save(1, "one"))
    first, second = save(2, "two"), save(3, "three")
    server.faults([{"match": {"kind": "upload"}, "action": {"status": 403}}])
    uploads = CheckpointUploads("run", store=gcs, keep=1)

    def submit_both() -> None:
        for folder in (first, second):
            uploads.submit(folder)
        uploads.wait()

    with pytest.raises(headrace.PermissionDeniedError):
        submit_both()
    server.faults([])
    uploads.close()
    assert newest(gcs) == "checkpoint-1"
    assert not list(first.parent.glob(".headrace-*"))


def test_an_error_of_the_training_is_the_one_to_see(
    server: FaultServer, gcs: headrace.Store, save: Save
) -> None:
    server.faults([{"match": {"kind": "upload"}, "action": {"status": 403}}])

    def train() -> None:
        with CheckpointUploads("run", store=gcs) as uploads:
            uploads.submit(save(1, "one"))
            raise RuntimeError("the training")

    with pytest.raises(RuntimeError, match="the training") as raised:
        train()
    assert "An upload of a checkpoint failed, too" in str(raised.value.__notes__)


def test_what_is_no_checkpoint_is_refused(file: headrace.Store, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="keep is 0"):
        CheckpointUploads("run", store=file, keep=0)
    with CheckpointUploads("run", store=file) as uploads:
        with pytest.raises(InvalidArgumentError, match="is no folder"):
            uploads.submit(tmp_path / "checkpoint-1")
        (tmp_path / "final").mkdir()
        with pytest.raises(InvalidArgumentError, match="must end with the number of its step"):
            uploads.submit(tmp_path / "final")
        (tmp_path / "checkpoint-2" / "sub").mkdir(parents=True)
        with pytest.raises(InvalidArgumentError, match="checkpoint-2 has no files"):
            uploads.submit(tmp_path / "checkpoint-2")
        (tmp_path / "checkpoint-2" / MANIFEST_NAME).write_bytes(b"")
        with pytest.raises(InvalidArgumentError, match="is headrace's own file"):
            uploads.submit(tmp_path / "checkpoint-2")
    assert not list(tmp_path.glob(".headrace-*"))


@given(st.dictionaries(st.from_regex(r"[a-z]{1,3}(/[a-z]{1,3})?", fullmatch=True), st.integers(0)))
def test_manifests_are_read_as_written(sizes: dict[str, int]) -> None:
    files = {name: FileSum(size, size % (1 << 32)) for name, size in sizes.items()}
    assert parse_manifest(manifest_of(files)) == files


@pytest.mark.parametrize("name", ["../a", "/a", "a/../../b", "a//b", ".", "", "a\\b", "a\0"])
def test_a_manifest_cannot_name_a_file_elsewhere(name: str) -> None:
    with pytest.raises(CorruptDataError, match="names no file below it"):
        parse_manifest(manifest_of({name: FileSum(0, 0)}))


@given(
    st.binary(max_size=30)
    | st.recursive(st.integers(), lambda x: st.lists(x)).map(
        lambda found: json.dumps({"version": 1, "files": found}).encode()
    )
)
def test_any_bytes_are_an_error_of_ours_or_a_manifest(data: bytes) -> None:
    try:
        parse_manifest(data)
    except HeadraceError:
        return
    assert json.loads(data)["files"] == {}


@pytest.mark.parametrize("size", ["1e999", "NaN", '"x"', "[]", "{}"])
def test_a_size_that_is_none_is_damage(size: str) -> None:
    text = f'{{"version": 1, "files": {{"a": {{"size_bytes": {size}, "crc32c": "0"}}}}}}'
    with pytest.raises(CorruptDataError, match="it is damaged, or no manifest"):
        parse_manifest(text.encode())


def test_manifests_of_the_future_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="a newer headrace"):
        parse_manifest(b'{"version": 2, "files": {}}')


@pytest.mark.parametrize(
    ("name", "step"),
    [("checkpoint-100", 100), ("checkpoint_7", 7), ("12", 12), ("a1b002", 2), ("final", None)],
)
def test_the_step_is_the_number_at_the_end(name: str, step: int | None) -> None:
    assert step_of(name) == step
