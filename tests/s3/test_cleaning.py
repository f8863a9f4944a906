"""Unfinished uploads on S3, which does not tell who began them: listed, and aborted if asked to."""

from __future__ import annotations

import pytest

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import MinioServer
from testing.servers import minio as minio_module
from testing.servers.s3_client import client_of
from tests.cli.conftest import Run, nursery, run, start  # noqa: F401 - fixtures
from tests.keys import S3_KEYS
from tests.killed import kill_when_written

PART = 5 << 20
DAY_S = 86400

SCRIPT = """
import sys
import headrace
store = headrace.Store(
    "s3://bucket/run", endpoint=sys.argv[1], credentials=headrace.AwsKeys(*sys.argv[2:4])
)
with headrace.open(sys.argv[4], "wb", store=store, part_bytes=5 << 20) as file:
    while True:
        file.write(bytes(11 << 20))
        print("written", flush=True)
"""


@pytest.fixture
def store(s3_server: FaultServer) -> headrace.Store:
    """A folder of the bucket."""
    s3_server.bucket("bucket")
    return headrace.Store("s3://bucket/run", endpoint=s3_server.url, credentials=S3_KEYS)


def leave_upload(server: FaultServer, name: str) -> None:
    """Begin an upload below the folder, and be killed."""
    keys = (S3_KEYS.access_key_id, S3_KEYS.secret_access_key)
    kill_when_written(server, SCRIPT, *keys, name, times=2)


def names_of(server: FaultServer) -> list[str]:
    return sorted(each["name"] for each in server.uploads()["multipart"])


def test_what_sigkill_leaves_is_listed_and_aborted_only_when_asked_for(
    store: headrace.Store, s3_server: FaultServer
) -> None:
    store.write("large", b"before")
    leave_upload(s3_server, "large")
    assert names_of(s3_server) == ["run/large"]
    assert headrace.clean(store) == headrace.Cleaned()
    s3_server.age_uploads(2 * DAY_S)
    (found,) = headrace.clean(store).unfinished
    assert found.name == "run/large"
    assert found.began is not None
    dry = headrace.clean(store, uploads=True, dry_run=True)
    assert dry.uploads == ["run/large"]
    assert names_of(s3_server) == ["run/large"]
    done = headrace.clean(store, uploads=True)
    assert (done.uploads, done.unfinished, done.failed) == (["run/large"], [], [])
    assert names_of(s3_server) == []
    assert store.read("large").bytes() == b"before"


def begin(server: FaultServer, *names: str) -> None:
    """Begin uploads, as somebody might."""
    key = {"access_key": S3_KEYS.access_key_id, "secret_key": S3_KEYS.secret_access_key}
    with client_of(server.url, key=key) as client:
        for name in names:
            client.create_multipart_upload(Bucket="bucket", Key=name)


def test_only_what_is_below_the_root_is_touched(
    store: headrace.Store, s3_server: FaultServer
) -> None:
    begin(s3_server, "run/a", "run2/a", "other", "run/b")
    s3_server.age_uploads(2 * DAY_S)
    assert headrace.clean(store, uploads=True).uploads == ["run/a", "run/b"]
    assert names_of(s3_server) == ["other", "run2/a"]


def test_an_upload_to_a_name_of_an_unfinished_save_is_ours(
    store: headrace.Store, s3_server: FaultServer
) -> None:
    ours = f"run/__0_0-{7:032x}.distcp"
    begin(s3_server, ours, "run/__0_0.distcp", "run/a")
    s3_server.age_uploads(2 * DAY_S)
    done = headrace.clean(store, checkpoints=True)
    assert done.uploads == [ours]
    assert sorted(each.name for each in done.unfinished) == ["run/__0_0.distcp", "run/a"]
    assert names_of(s3_server) == ["run/__0_0.distcp", "run/a"]


def test_one_that_cannot_be_aborted_is_told_and_the_others_are_aborted(
    store: headrace.Store, s3_server: FaultServer
) -> None:
    begin(s3_server, "run/a", "run/b")
    rule = {"match": {"kind": "multipart_abort", "path_contains": "run/a"}}
    s3_server.faults([{**rule, "action": {"status": 403}}])
    done = headrace.clean(store, older_than_s=0, uploads=True)
    ((name, error),) = done.failed
    assert name == "run/a"
    assert isinstance(error, headrace.PermissionDeniedError)
    assert done.uploads == ["run/b"]


def test_who_may_not_list_uploads_is_told(store: headrace.Store, s3_server: FaultServer) -> None:
    s3_server.bucket("bucket", denied_permissions=["s3:ListBucketMultipartUploads"])
    ((_, error),) = headrace.clean(store).failed
    assert isinstance(error, headrace.PermissionDeniedError)


def test_pages_of_uploads_are_followed(store: headrace.Store, s3_server: FaultServer) -> None:
    names = [f"run/{i:04}" for i in range(1001)]
    begin(s3_server, *names)
    found = headrace.clean(store, older_than_s=0).unfinished
    assert [each.name for each in found] == names
    kinds = [entry["kind"] for entry in s3_server.log()]
    assert kinds.count("multipart_list") == 2


def test_the_command_lists_them_and_says_how_to_abort_them(
    store: headrace.Store,
    s3_server: FaultServer,
    run: Run,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", S3_KEYS.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", S3_KEYS.secret_access_key)
    begin(s3_server, "run/a", "other")
    s3_server.age_uploads(2 * DAY_S)
    done = run("clean", "s3://bucket/run")
    assert (done.code, done.err) == (0, "")
    assert done.lines[0].startswith("unfinished upload of s3://bucket/run/a, begun 20")
    assert done.lines[1:] == [
        "TOTAL: deleted 0 objects, 0 bytes (0 B)",
        "left alone: 1 unfinished upload, which anybody may have begun: --uploads aborts all that "
        "are older than --older-than",
    ]
    upload, summary = run("clean", "s3://bucket/run", "--json").json
    assert (upload["type"], upload["name"]) == ("unfinished_upload", "run/a")
    assert summary["unfinished_uploads"] == 1
    done = run("clean", "s3://bucket/run", "--uploads")
    assert done.lines == [
        "TOTAL: deleted 0 objects, 0 bytes (0 B)",
        "aborted 1 unfinished upload",
    ]
    assert names_of(s3_server) == ["other"]


def test_minio_lists_and_aborts_them(minio: MinioServer, minio_bucket: str) -> None:
    keys = headrace.AwsKeys(minio_module.ACCESS_KEY, minio_module.SECRET_KEY)
    store = headrace.Store(f"s3://{minio_bucket}/run", endpoint=minio.url, credentials=keys)
    for name in ("run/a", "other"):
        assert minio.request("POST", f"/{minio_bucket}/{name}?uploads")[0] == 200
    (found,) = headrace.clean(store, older_than_s=0).unfinished
    assert found.name == "run/a"
    assert headrace.clean(store, older_than_s=0, uploads=True).uploads == ["run/a"]
    bucket = headrace.Store(f"s3://{minio_bucket}", endpoint=minio.url, credentials=keys)
    assert [each.name for each in headrace.clean(bucket, older_than_s=0).unfinished] == ["other"]
    assert headrace.clean(bucket, older_than_s=0, uploads=True).uploads == ["other"]
