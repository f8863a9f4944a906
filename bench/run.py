"""Measures headrace on this machine, beside other clients of the same servers.

    make bench                       everything, some twenty-five minutes
    make bench BENCH=--quick         the same with less of it, to see that it works
    make bench BENCH="--only tls"    one group
    make bench BENCH="--only published"      what others have published, with a page and a picture
    make bench BENCH="--against ../other"    this checkout beside another one, in pairs
    make bench BENCH="--profile 1k"  where the CPU goes, by `perf`

README.md of this folder says what each row means and gives its command line.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import comparison, perf
from bench.groups import FAMILIES, GROUPS, published
from bench.harness import FULL, QUICK, REPOSITORY, SOAK, Bench, peers_python
from bench.table import Row, tables
from testing.circumstances import circumstances as told_circumstances
from testing.circumstances import output_of, versions_of

_PACKAGES = ["headrace", "numpy", "torch", "torchvision", "obstore", "google-cloud-storage"]
_PACKAGES += ["gcsfs", "gcs-torch-dataflux", "boto3", "s3torchconnector", "s3dlio"]
# Of an environment of its own, as its botocore is older than boto3's.
_S3FS_PACKAGES = ["s3fs", "aiobotocore"]


def circumstances(arguments: Sequence[str]) -> dict[str, Any]:
    """What a reader has to know to measure the same again."""
    # The peers' environment has all that ours has.
    versions = versions_of(*_PACKAGES, python=str(peers_python("peers")))
    versions |= versions_of(*_S3FS_PACKAGES, python=str(peers_python("peers-s3fs")))
    yardsticks = REPOSITORY / "build" / "release" / "bench"
    versions["tls"] = output_of(str(yardsticks / "headrace-bench-epoll"), "--tls-library")
    versions["http2"] = output_of(str(yardsticks / "headrace-bench-h2"), "--library")
    versions["nginx"] = output_of("/usr/sbin/nginx", "-v").rsplit("/", 1)[-1]
    versions["wrk"] = (output_of("wrk", "-v").split("\n")[0].split() or ["", ""])[1]
    return told_circumstances(" ".join(["bench/run.py", *arguments]), versions)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument(
        "--soak", action="store_true", help="a million samples once, for the groups that have them"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=[*GROUPS, *FAMILIES],
        default=[],
        help="a group, or several by a name that they share; may be repeated",
    )
    parser.add_argument(
        "--peers",
        type=int,
        metavar="N",
        help="measure other clients N times where they only inform",
    )
    parser.add_argument(
        "--repetitions",
        type=int,
        metavar="N",
        help="measure headrace and what it is compared with N times",
    )
    parser.add_argument(
        "--against",
        type=Path,
        metavar="CHECKOUT",
        help="measure headrace beside that of another checkout, which is built; nobody else",
    )
    parser.add_argument("--json", type=Path, help="where the result goes")
    parser.add_argument(
        "--folder",
        type=Path,
        default=REPOSITORY / "build" / "bench",
        help="where the objects are made and kept (6 GiB)",
    )
    parser.add_argument("--strict", action="store_true", help="fail if a target is missed")
    parser.add_argument("--profile", choices=perf.BUCKETS, help="show where the CPU goes")
    arguments = parser.parse_args()

    arguments.folder.mkdir(parents=True, exist_ok=True)
    effort = QUICK if arguments.quick else SOAK if arguments.soak else FULL
    if arguments.peers is not None:
        if arguments.peers < 1:
            parser.error(f"--peers is {arguments.peers}; it must be at least 1")
        effort = replace(effort, peer_repetitions=arguments.peers)
    if arguments.repetitions is not None:
        if arguments.repetitions < 1:
            parser.error(f"--repetitions is {arguments.repetitions}; it must be at least 1")
        effort = replace(effort, repetitions=arguments.repetitions)
    against = arguments.against.resolve() if arguments.against else None
    if against and not (against / ".venv" / "bin" / "python").exists():
        parser.error(f"{against} has no .venv: run `make build` there")
    bench = Bench(effort, arguments.folder.resolve(), against)
    if arguments.profile:
        print(perf.profile(bench, arguments.profile))
        return 0
    result = circumstances(sys.argv[1:])
    begin_s = time.perf_counter()
    names = [name for only in arguments.only for name in FAMILIES.get(only, (only,))]
    for name in names or GROUPS:
        try:
            GROUPS[name](bench)
        except KeyboardInterrupt:
            print("interrupted: what has been measured is kept", file=sys.stderr)
            break
        except Exception:
            bench.rows.append(Row(group=name, name="", unit="", error=traceback.format_exc()))
    result["took_s"] = round(time.perf_counter() - begin_s, 1)
    result["rows"] = [row.to_json() for row in bench.rows]
    result["measurements"] = bench.measurements
    file = arguments.json or arguments.folder / "results.json"
    result["published"] = [each.to_json() for each in bench.comparisons]
    file.write_text(json.dumps(result, indent=1) + "\n")
    if bench.comparisons:
        comparison.write(published.TABLES, result, file)
    # Of one width wherever it goes: a terminal, a log, a page of docs/measurements.
    console = Console(width=110, highlight=False)
    for table in tables(bench.rows):
        console.print(table, "")
    verdicts = [row.verdict for row in bench.rows]
    print(
        f"\n{verdicts.count('PASS')} PASS, {verdicts.count('MISS')} MISS, "
        f"{verdicts.count('ERROR')} ERROR in {result['took_s']:.0f} s; measurements: {file}"
    )
    return 1 if "ERROR" in verdicts or (arguments.strict and "MISS" in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
