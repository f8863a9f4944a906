"""Which target has an object, as headrace computes it and as a real cluster of three says it."""

from __future__ import annotations

from collections import Counter

import pytest

import headrace
from testing.servers import AistoreCluster

# Plain, deep, and with characters that redirects of this server lose.
NAMES = [f"object-{i:06d}" for i in range(300)]
NAMES += ["a/b c/d", "q?q", "h#h", "p%q", "\N{LATIN SMALL LETTER E WITH ACUTE}/+&="]


@pytest.mark.parametrize("namespace", ["", "#training"], ids=["no-namespace", "namespace"])
def test_every_object_is_asked_for_at_the_target_to_which_the_proxy_would_send(
    ais_cluster_of_three: AistoreCluster, namespace: str
) -> None:
    cluster = ais_cluster_of_three
    bucket = cluster.make_bucket(namespace=namespace)
    url = f"ais://{namespace}/{bucket}" if namespace else f"ais://{bucket}"
    provider = headrace.AisOptions(get_batch="never")
    store = headrace.Store(url, endpoint=cluster.url, provider=provider)
    for name in NAMES:
        store.write(name, name.encode())
    infos = list(store.list())
    assert sorted(info.name for info in infos) == sorted(NAMES)
    store.read(NAMES[0])  # by now the map is here
    before = headrace.metrics().requests_total
    assert [sample.bytes() for sample in store.read_many(infos)] == [
        info.name.encode() for info in infos
    ]
    # Another target would have refused, and two more requests would have followed. A map that has
    # become old meanwhile costs one.
    assert headrace.metrics().requests_total - before - len(NAMES) in (0, 1)
    targets = Counter(cluster.target_of(bucket, name, namespace=namespace) for name in NAMES[:100])
    assert len(targets) == 3
