"""Members of shards, which the servers take out."""

from __future__ import annotations

import io
import tarfile
import zipfile
from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import AistoreCluster
from tests.ais.conftest import Open, know_the_map
from tests.faults.conftest import FAST

MEMBERS = {
    "a.jpg": b"first",
    "empty.txt": b"",
    "d/b.jpg": bytes(i * 7 % 251 for i in range(300_000)),
    "with space": b"1",
    "100%": b"2",
    "%41": b"3",
    "a#b?c=1&d+e": b"4",
    "ünï/日本語": b"5",
    "x" * 120 + "/" + "y" * 120: b"6",
}


def tar(members: dict[str, bytes], mode: str = "w", **options: Any) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, **options) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def of(*names: str, shard: str = "s/a.tar") -> list[tuple[str, str]]:
    return [(shard, name) for name in names]


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "by-the-proxy"])
@pytest.mark.parametrize("personality", ["A", "B"])
def test_every_member_comes_whole_and_in_order(
    ais_server: FaultServer, open_store: Open, personality: str, direct: bool
) -> None:
    ais_server.cluster(personality=personality)
    store = open_store(direct=direct)
    store.write("s/a.tar", tar(MEMBERS))
    names = [*reversed(MEMBERS), "a.jpg", "a.jpg"]
    samples = store.read_members(of(*names))
    assert [sample.bytes() for sample in samples] == [MEMBERS[name] for name in names]
    assert samples[-1].url == "ais://bucket/s/a.tar/a.jpg"
    assert samples[-1].name == "s/a.tar/a.jpg"
    assert samples[-1].generation == ""
    assert store.read_members([]) == []


def test_each_member_is_one_request_and_only_its_bytes_come(
    ais_server: FaultServer, open_store: Open
) -> None:
    ais_server.cluster(personality="A")
    store = open_store()
    know_the_map(ais_server, store)
    store.write("s/a.tar", tar(MEMBERS))
    began = len(ais_server.log())
    store.read_members(of("a.jpg", "d/b.jpg", "a.jpg"))
    log = ais_server.log()[began:]
    assert [line["kind"] for line in log] == ["media"] * 3
    assert all(line["node"] != 0 for line in log)
    assert sum(line["bytes_sent"] for line in log) < 310_000


@pytest.mark.parametrize("personality", ["A", "B"])
def test_a_missing_member_is_told_from_a_missing_shard(
    ais_server: FaultServer, open_store: Open, personality: str
) -> None:
    ais_server.cluster(personality=personality)
    store = open_store()
    store.write("s/a.tar", tar(MEMBERS))
    wanted = [("s/a.tar", "a.jpg"), ("s/a.tar", "none"), ("s/b.tar", "a.jpg"), ("s/b.tar", "c")]
    first, member, shard, again = store.read_members(wanted, on_error="return")
    assert isinstance(first, headrace.Sample)
    assert isinstance(member, headrace.NotFoundError)
    assert member.url == "ais://bucket/s/a.tar/none"
    assert "the shard has no member 'none'" in str(member)
    for error in (shard, again):
        assert isinstance(error, headrace.NotFoundError)
        assert error.url == "ais://bucket/s/b.tar"
        assert "there is no such shard" in str(error)
        assert error.http_status == 404
    with pytest.raises(headrace.NotFoundError, match="no member 'none'") as caught:
        store.read_members(wanted)
    assert caught.value.__notes__ == [
        "2 other members of the 4 that were read together failed, too"
    ]


def test_what_is_missing_is_looked_for_once_for_each_shard(
    ais_server: FaultServer, open_store: Open
) -> None:
    ais_server.cluster(personality="A")
    store = open_store(direct=False)
    store.write("s/a.tar", tar(MEMBERS))
    began = len(ais_server.log())
    store.read_members(of("1", "2", "3") + of("1", shard="s/b.tar"), on_error="return")
    looks = [
        line for line in ais_server.log()[began:] if line["kind"] == "get" and line["node"] == 0
    ]
    assert len(looks) == 2


def test_a_member_is_sent_again_if_its_body_breaks_off(
    ais_server: FaultServer, open_store: Open
) -> None:
    ais_server.cluster(personality="A")
    store = open_store(direct=False, retry=FAST)
    store.write("s/a.tar", tar(MEMBERS))
    ais_server.faults(
        [
            {
                "match": {"kind": "media", "node": "target"},
                "count": 1,
                "action": {"reset_after_bytes": 100_000},
            }
        ]
    )
    (sample,) = store.read_members(of("d/b.jpg"))
    assert sample.bytes() == MEMBERS["d/b.jpg"]
    assert ais_server.fault_counts()[0]["fired"] == 1


def test_other_stores_say_which_do_it(gcs: headrace.Store, file: headrace.Store) -> None:
    for store in (gcs, file):
        with pytest.raises(headrace.InvalidArgumentError, match=r"only AIStore \(ais://\)"):
            store.read_members([("a.tar", "a")])


@pytest.mark.parametrize("pair", [("", "a"), ("a.tar", "")])
def test_a_name_must_not_be_empty(ais: headrace.Store, pair: tuple[str, str]) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="must not be empty"):
        ais.read_members([pair])


@pytest.mark.parametrize("wrong", ["a.tar", ["a.tar"], [("a.tar",)], [("a.tar", 5)], [5]])
def test_what_are_no_pairs_is_refused(ais: headrace.Store, wrong: Any) -> None:
    with pytest.raises(TypeError, match="pairs of the names"):
        ais.read_members(wrong)


# ---- on the real server


@pytest.fixture
def cluster_store(ais_cluster: AistoreCluster, ais_bucket: str) -> headrace.Store:
    return headrace.Store(f"ais://{ais_bucket}", endpoint=ais_cluster.url)


FORMATS: list[tuple[str, Any]] = [
    ("gnu.tar", lambda: tar(MEMBERS, format=tarfile.GNU_FORMAT)),
    ("pax.tar", lambda: tar(MEMBERS, format=tarfile.PAX_FORMAT)),
    ("a.tgz", lambda: tar(MEMBERS, "w:gz")),
    ("a.tar.gz", lambda: tar(MEMBERS, "w:gz")),
    ("a.zip", lambda: zipped(MEMBERS)),
]


@pytest.mark.parametrize(("shard", "made"), FORMATS, ids=[name for name, _ in FORMATS])
def test_on_a_cluster_of_every_format(cluster_store: headrace.Store, shard: str, made: Any) -> None:
    cluster_store.write(shard, made())
    names = [*MEMBERS, "a.jpg"]
    samples = cluster_store.read_members(of(*names, shard=shard))
    assert [sample.bytes() for sample in samples] == [MEMBERS[name] for name in names]
    found = cluster_store.read_members(
        [*of("none", "a.jp", "d", shard=shard), ("no-" + shard, "a.jpg")], on_error="return"
    )
    assert all(isinstance(each, headrace.NotFoundError) for each in found)
    assert ["has no member" in str(each) for each in found] == [True, True, True, False]


def test_on_a_cluster_a_leading_dot_is_part_of_a_name(cluster_store: headrace.Store) -> None:
    cluster_store.write("a.tar", tar({"./a": b"1", "b": b"2"}))
    assert cluster_store.read_members([("a.tar", "./a")])[0].bytes() == b"1"
    for name in ("a", "./b"):
        with pytest.raises(headrace.NotFoundError, match="no member"):
            cluster_store.read_members([("a.tar", name)])


def test_on_a_cluster_what_is_no_shard_is_refused(cluster_store: headrace.Store) -> None:
    cluster_store.write("a.txt", b"text")
    with pytest.raises(headrace.InvalidArgumentError, match="extension"):
        cluster_store.read_members([("a.txt", "a")])
    cluster_store.write("torn.tar", tar(MEMBERS)[:100_000])
    with pytest.raises(headrace.InvalidArgumentError, match="unexpected EOF"):
        cluster_store.read_members([("torn.tar", "with space")])  # after where it ends
