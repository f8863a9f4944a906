"""CPU of reading one object through `headrace.open`, with and without the sum of the whole.

usage: python bench/scripts/cost_of_whole_sums.py [SIZE_MIB [PAIRS]]; prints JSON.
COST_CERT and COST_KEY (with SSL_CERT_FILE) serve by https.
"""

import json
import os
import statistics
import sys
import time

import headrace
from testing.faultserver.client import FaultServer

SIZE_MIB = int(sys.argv[1]) if len(sys.argv) > 1 else 256
PAIRS = int(sys.argv[2]) if len(sys.argv) > 2 else 15
SIZE = SIZE_MIB << 20
buffer = bytearray(SIZE)


def at_once(file):
    assert file.readinto(buffer) == SIZE


def by_pieces(file):
    while file.read(1 << 20):
        pass


def by_records(file):
    while file.read(10_000):
        pass


def cost(store, way):
    with headrace.open("a", store=store) as file:
        before = time.process_time()
        way(file)
        return time.process_time() - before


cert, key = os.environ.get("COST_CERT"), os.environ.get("COST_KEY")  # for https
with FaultServer(tls_cert=cert, tls_key=key) as server:
    server.put("bucket", "a", os.urandom(SIZE))
    stores = [
        headrace.Store("gs://bucket", endpoint=server.url, verify=verify)
        for verify in (False, True)
    ]
    found = {}
    for way in (at_once, by_pieces, by_records):
        pairs = []
        for i in range(PAIRS + 1):
            order = (0, 1) if i % 2 else (1, 0)
            pair = [0.0, 0.0]
            for which in order:
                pair[which] = cost(stores[which], way)
            if i:
                pairs.append(pair)
        ratios = sorted(after / before for before, after in pairs)
        found[way.__name__] = {
            "without_s": statistics.median(p[0] for p in pairs),
            "with_s": statistics.median(p[1] for p in pairs),
            "least_without_s": min(p[0] for p in pairs),
            "least_with_s": min(p[1] for p in pairs),
            "median_ratio": statistics.median(ratios),
            "pairs": pairs,
        }
    print(json.dumps({"size_mib": SIZE_MIB, "ways": found}, indent=1))
