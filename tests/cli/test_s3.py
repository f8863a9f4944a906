"""Every command on s3://. Keys and the endpoint come from the environment."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from testing.faultserver.client import FaultServer
from testing.servers import MinioServer
from testing.servers import minio as minio_module
from tests.cli.conftest import ODD_NAMES, Run, kinds
from tests.cli.test_cp import make, stored, tree
from tests.keys import S3_KEYS

MiB = 1 << 20


@pytest.fixture
def s3(s3_server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> FaultServer:
    """The fault server, which s3:// is, with two empty buckets."""
    s3_server.bucket("bucket")
    s3_server.bucket("other")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", S3_KEYS.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", S3_KEYS.secret_access_key)
    return s3_server


def test_objects_are_listed_told_shown_and_deleted(s3: FaultServer, run: Run) -> None:
    etags = {
        name: s3.put("bucket", name, name.encode(), checksumAlgorithm="CRC32C")["etag"]
        for name in ("a.txt", "d/b.txt", "d/c.png")
    }
    assert run("ls", "s3://bucket").lines == ["s3://bucket/a.txt", "s3://bucket/d/"]
    assert run("ls", "s3://bucket/**.txt").lines == ["s3://bucket/a.txt", "s3://bucket/d/b.txt"]
    assert run("ls", "-l", "s3://bucket/a.txt").lines[0].split()[0] == "5"
    [facts] = run("stat", "--json", "s3://bucket/d/b.txt").json
    assert (facts["size_bytes"], facts["generation"]) == (7, etags["d/b.txt"])
    assert facts["crc32c"] is not None
    assert run("stat", "--json", "s3://bucket/d/b*").json == [facts]
    assert run("du", "s3://bucket").lines[0].split() == ["19", "3", "s3://bucket"]
    assert run("cat", "s3://bucket/d/*", "--range", "2:4").out == b"b.c."
    assert run("rm", "s3://bucket/a.txt").code == 0
    assert run("rm", "-r", "s3://bucket/d").code == 0
    assert s3.names("bucket") == []


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC64NVME"])
def test_a_large_download_is_compared_with_whatever_crc_the_service_keeps(
    s3: FaultServer, tmp_path: Path, run: Run, algorithm: str
) -> None:
    data = random.Random(3).randbytes(65 * MiB)
    s3.put("bucket", "large", data, checksumAlgorithm=algorithm)
    assert run("cp", "s3://bucket/large", tmp_path / "large").code == 0
    assert (tmp_path / "large").read_bytes() == data
    again = run("cp", "-r", "s3://bucket/large", tmp_path)
    assert "copied 0 objects" in again.err
    [facts] = run("stat", "--json", "s3://bucket/large").json
    assert facts["crc32c"] is None
    assert facts["checksum"]["kind"] == algorithm.lower()
    s3.faults([{"match": {"kind": "media"}, "action": {"flip_byte": 5}}])
    broken = run("cp", "s3://bucket/large", tmp_path / "broken")
    assert broken.code != 0
    assert f"the bytes that came have {algorithm} " in broken.err
    assert [path.name for path in tmp_path.iterdir()] == ["large"]


def test_an_index_is_saved_and_objects_are_read_as_in_training(
    s3: FaultServer, tmp_path: Path, run: Run
) -> None:
    for i in range(100):
        s3.put("bucket", f"train/{i}", b"x" * 1000, checksumAlgorithm="CRC32C")
    assert run("index", "s3://bucket/train/", tmp_path / "local").code == 0
    assert run("index", "s3://bucket/train/", "s3://bucket/train.index").code == 0
    assert s3.get("bucket", "train.index") == (tmp_path / "local").read_bytes()
    [measured] = run("bench", "s3://bucket/train/", "--epochs", 1, "--json").json
    assert (measured["objects"], measured["checksums_verified"]) == (100, 100)


def test_cleaning_a_bucket_leaves_what_is_not_ours(s3: FaultServer, run: Run) -> None:
    s3.put("bucket", "data", b"1", ageSeconds=10**6)
    done = run("clean", "s3://bucket", "--checkpoints")
    assert done.code == 0, done.err
    assert s3.names("bucket") == ["data"]


def test_odd_names_go_everywhere_and_come_back(
    server: FaultServer, s3: FaultServer, tmp_path: Path, run: Run
) -> None:
    expected = make(tmp_path / "files", ODD_NAMES)
    steps = [
        (f"{tmp_path}/files/", "s3://bucket/x"),
        ("s3://bucket/x/", "s3://bucket/y"),  # by the server
        ("s3://bucket/y/", "s3://other"),
        ("s3://other", "gs://bucket"),
        ("gs://bucket", "s3://other/z"),
        ("s3://other/z", f"file://{tmp_path}/back"),
    ]
    for source, destination in steps:
        done = run("cp", "-r", source, destination)
        assert (done.code, done.out) == (0, b""), done.err
        assert done.err.startswith(f"headrace: copied {len(ODD_NAMES)} objects, ")
    assert stored(server, "bucket") == expected
    assert tree(tmp_path / "back") == expected
    assert kinds(s3)["copy"] == len(ODD_NAMES)


def test_type_and_encoding_go_with_an_object_to_another_store(
    server: FaultServer, s3: FaultServer, run: Run
) -> None:
    """A listing of S3 does not tell them."""
    s3.put("bucket", "a", b"zipped", contentType="x/y", contentEncoding="gzip")
    assert run("cp", "s3://bucket/a", "gs://bucket/b").code == 0
    assert run("cp", "-r", "s3://bucket", "gs://bucket/all").code == 0
    assert run("cp", "gs://bucket/b", "s3://other/c").code == 0
    for url in ("gs://bucket/b", "gs://bucket/all/a", "s3://other/c"):
        [facts] = run("stat", "--json", url).json
        assert (facts["content_type"], facts["content_encoding"]) == ("x/y", "gzip"), url


def test_a_copy_that_is_run_again_skips_what_is_equal(
    s3: FaultServer, tmp_path: Path, run: Run
) -> None:
    """The sums are asked for object by object: that is less than sending them."""
    make(tmp_path / "files", ["a", "b", "d/c"])
    up = ("cp", "-r", "--json", tmp_path / "files/", "s3://bucket/x")
    assert run(*up).json[0]["copied"] == 3
    (tmp_path / "files" / "b").write_bytes(b"changed" * 100)
    (tmp_path / "files" / "a").write_bytes(b"c" * 100)  # as long as before
    done = run(*up).json[0]
    assert (done["copied"], done["skipped"]) == (2, 1)
    down = ("cp", "-r", "--json", "s3://bucket/x/", tmp_path / "back")
    assert run(*down).json[0]["copied"] == 3
    assert tree(tmp_path / "back") == tree(tmp_path / "files")
    s3.reset(keep_buckets=True)
    done = run(*down).json[0]
    assert (done["copied"], done["skipped"]) == (0, 3)
    assert "media" not in kinds(s3)
    across = ("cp", "-r", "--json", "s3://bucket/x/", "s3://other/x")
    assert [run(*across).json[0]["copied"] for _ in range(2)] == [3, 0]


def test_a_large_object_goes_up_in_parts_and_comes_back_verified(
    s3: FaultServer, tmp_path: Path, run: Run
) -> None:
    data = random.Random(3).randbytes(65 * MiB)
    (tmp_path / "large").write_bytes(data)
    # Memory for parts of 1 MiB: S3 takes none below 5 MiB.
    little = {"HEADRACE_MEMORY_BUDGET_BYTES": str(64 * MiB)}
    assert run("cp", tmp_path / "large", "s3://bucket", **little).code == 0
    assert s3.get("bucket", "large") == data
    assert kinds(s3)["multipart_part"] == 13
    assert run("cp", "s3://bucket/large", tmp_path / "back").code == 0
    assert (tmp_path / "back").read_bytes() == data
    s3.faults([{"match": {"kind": "media"}, "from": 3, "action": {"flip_byte": 5}}])
    done = run("cp", "s3://bucket/large", tmp_path / "wrong")
    assert (done.code, done.err.startswith("headrace: CorruptDataError: s3://")) == (1, True)
    assert not (tmp_path / "wrong").exists()


@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
def test_the_options_of_s3_stand_before_and_behind_the_command(
    s3: FaultServer, run: Run, first: bool
) -> None:
    def listed(*options: str) -> list[str]:
        arguments = ["ls", "s3://bucket"]
        done = run(*options, *arguments) if first else run(*arguments, *options)
        assert done.code == 0, done.err
        return done.lines

    s3.bucket("bucket", region="eu-north-1", requester_pays=True)
    s3.put("bucket", "a", b"1")
    s3.keys({"access_key": S3_KEYS.access_key_id, "secret_key": S3_KEYS.secret_access_key})
    assert run("ls", "s3://bucket", "--region", "eu-north-1").code == 4
    before = len(s3.log())
    assert listed("--region", "eu-north-1", "--requester-pays") == ["s3://bucket/a"]
    assert {line["status"] for line in s3.log()[before:]} == {200}
    assert listed("--requester-pays") == ["s3://bucket/a"]  # its region is found out
    assert 400 in {line["status"] for line in s3.log()[before:]}


def test_options_of_one_provider_do_not_disturb_the_other(
    server: FaultServer, s3: FaultServer, run: Run
) -> None:
    s3.bucket("bucket", requester_pays=True)
    server.bucket("paid", requester_pays=True)
    s3.put("bucket", "a", b"1")
    options = ("--requester-pays", "--user-project", "me")
    assert run("cp", "s3://bucket/a", "gs://paid/b", *options).code == 0
    assert run("cp", "gs://paid/b", "s3://bucket/c", *options).code == 0
    assert s3.get("bucket", "c") == b"1"


def test_a_public_bucket_needs_no_keys_and_others_say_what_to_do(
    s3: FaultServer, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    s3.bucket("bucket", public=True)
    s3.put("bucket", "a", b"1")
    assert run("cat", "s3://bucket/a", "--anonymous").out == b"1"
    for options in ([], ["--anonymous"]):
        done = run("ls", "s3://other", *options)
        assert (done.code, "AWS_ACCESS_KEY_ID" in done.err) == (4, True), done.err
        assert "gcloud" not in done.err


def test_a_missing_bucket_is_told(s3: FaultServer, run: Run) -> None:
    for arguments in (["ls", "s3://none"], ["cat", "s3://none/a"], ["cp", __file__, "s3://none"]):
        done = run(*arguments)
        assert (done.code, "no such bucket" in done.err) == (3, True), done.err


def test_a_real_server(minio: MinioServer, minio_bucket: str, tmp_path: Path, run: Run) -> None:
    # MinIO refuses this one in names.
    names = [name for name in ODD_NAMES if "\\" not in name]
    expected = make(tmp_path / "files", names)
    keys = {
        "AWS_ACCESS_KEY_ID": minio_module.ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": minio_module.SECRET_KEY,
    }
    at = ("--endpoint", minio.url)
    url = f"s3://{minio_bucket}"
    assert run("cp", "-r", tmp_path / "files/", f"{url}/a/", *at, **keys).code == 0
    assert len(run("ls", "-r", "--json", f"{url}/a/", *at, **keys).lines) == len(names)
    assert run("cp", "-r", f"{url}/a/files/", tmp_path / "back", *at, **keys).code == 0
    assert tree(tmp_path / "back") == expected
    done = run("cp", "-r", "--json", tmp_path / "files/", f"{url}/a/files", *at, **keys)
    assert done.json[0]["skipped"] == len(names)
    assert run("cat", f"{url}/a/files/q?x=1&y=2", *at, **keys).out == b"q?x=1&y=2" * 100
    assert run("rm", "-r", f"{url}/a", *at, **keys).code == 0
    assert run("ls", f"{url}/a", *at, **keys).code == 3


@pytest.mark.parametrize(
    ("takes_sums", "proof"),
    [
        (True, "a CRC-32C of the whole object"),
        (False, "Content-MD5 of each request"),
    ],
)
def test_doctor_says_what_proves_a_write_to_this_bucket(
    s3: FaultServer, run: Run, takes_sums: bool, proof: str
) -> None:
    s3.bucket("bucket", checksums=takes_sums)
    done = run("doctor", "s3://bucket/train/", "--write", "--json")
    found = {line["subject"]: line for line in done.json}["checksums"]
    assert found["verdict"] == "ok"
    assert found["detail"] == f"small writes are proved by {proof}, uploads in parts by {proof}"
    assert s3.names("bucket") == []
