"""The commands and their options, as typer sees them."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_type_hints

import typer

import headrace
from headrace import InvalidArgumentError
from headrace._cli.location import Connection, Location
from headrace._cli.report import Report
from headrace._store.location import scheme_of

__all__ = ["app"]

app = typer.Typer(
    name="headrace",
    help="Object storage from the command line: list, print, copy, delete, pack, measure.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 permission denied, "
    "130 Ctrl-C, 141 broken pipe.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_SHARED = {
    "endpoint": Annotated[
        str | None,
        typer.Option(metavar="URL", help="Another service that speaks the same protocol."),
    ],
    "anonymous": Annotated[bool, typer.Option("--anonymous", help="Use no credentials.")],
    "user_project": Annotated[
        str | None, typer.Option(metavar="PROJECT", help="gs://: bill this project for requests.")
    ],
    "requester_pays": Annotated[
        bool, typer.Option("--requester-pays", help="s3://: bill your own account for requests.")
    ],
    "region": Annotated[
        str | None, typer.Option(metavar="REGION", help="s3://: where buckets are; found out.")
    ],
    "temporary_prefix": Annotated[
        str | None,
        typer.Option(metavar="PREFIX", help="Where temporary objects go in a bucket; its root."),
    ],
    "attempts": Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Attempts of one request, at most; 10.")
    ],
    "literal": Annotated[
        bool,
        typer.Option("--literal", help="Take *, ? and [ in URLs as parts of names."),
    ],
    "verbose": Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Say what it took; show where errors come from."),
    ],
}
_DEFAULTS: dict[str, Any] = {
    "endpoint": None,
    "anonymous": False,
    "user_project": None,
    "requester_pays": False,
    "region": None,
    "temporary_prefix": None,
    "attempts": None,
    "literal": False,
    "verbose": False,
}


def _shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that may stand before and behind its name.

    `command` has a parameter ``context``, whose ``obj`` is then the `Connection`.
    """
    own = get_type_hints(command, include_extras=True)
    parameters = [
        parameter.replace(annotation=own[parameter.name])
        for parameter in inspect.signature(command).parameters.values()
    ]
    shared = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS[name], annotation=annotation
        )
        for name, annotation in _SHARED.items()
    ]

    @functools.wraps(command)
    def run(context: typer.Context, **options: Any) -> None:
        given = {name: options.pop(name) for name in _SHARED}
        context.obj = (context.obj or Connection()).joined(**given)
        command(context=context, **options)

    del run.__dict__["__wrapped__"]  # what follows is the signature, not the one of `command`
    run.__signature__ = inspect.Signature([*parameters, *shared])  # type: ignore[attr-defined]
    run.__annotations__ = own | _SHARED
    return run


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"headrace {headrace.__version__}")
        raise typer.Exit


@app.callback()
@_shared_options
def _headrace(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


_Suffix = Annotated[
    list[str] | None,
    typer.Option("--suffix", metavar="TEXT", help="Only names that end so; may be repeated."),
]
_Hidden = Annotated[
    bool,
    typer.Option("--hidden", help="Also names with a part that begins with a dot, or __MACOSX."),
]
_Json = Annotated[bool, typer.Option("--json", help="JSON, one object a line; errors, too.")]
_Recursive = Annotated[
    bool, typer.Option("--recursive", "-r", "-R", help="Everything below, not one level.")
]
_NoClobber = Annotated[
    bool, typer.Option("--no-clobber", "-n", help="Skip what is there already, whatever it is.")
]
_Parallel = Annotated[
    int, typer.Option(min=1, max=1024, metavar="N", help="Objects written at a time.")
]
_Summary = Annotated[
    bool, typer.Option("--json", help="The summary as JSON on stdout; errors, too.")
]
_URLS = "gs://bucket/name, s3://bucket/name, file:///path or a path; wildcards: * ? [] **"


@app.command()
@_shared_options
def ls(
    context: typer.Context,
    urls: Annotated[list[str], typer.Argument(metavar="URL", help=_URLS)],
    long: Annotated[
        bool, typer.Option("--long", "-l", help="Sizes in bytes, times, and the total.")
    ] = False,
    recursive: _Recursive = False,
    json_: _Json = False,
) -> None:
    """List an object, or what lies below a URL, or else what begins with it."""
    from headrace._cli.listing import ls

    def work(connection: Connection, report: Report) -> None:
        locations = _parsed(urls, connection)
        ls(locations, report, recursive=recursive, long=long, as_json=json_)

    _run(context, work, as_json=json_)


@app.command()
@_shared_options
def cat(
    context: typer.Context,
    urls: Annotated[list[str], typer.Argument(metavar="URL", help=_URLS)],
    range_: Annotated[
        str,
        typer.Option("--range", metavar="BEGIN:END", help="Only these bytes; END not included."),
    ] = "",
) -> None:
    """Write objects to stdout, one after the other."""
    from headrace._cli.reading import cat
    from headrace._cli.wildcards import expanded

    def work(connection: Connection, report: Report) -> None:
        begin, end = _range(range_)
        cat(expanded(_parsed(urls, connection), prefixes=False), report, begin=begin, end=end)

    _run(context, work)


@app.command()
@_shared_options
def cp(
    context: typer.Context,
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE", help=f"{_URLS}; '-' is stdin.")],
    destination: Annotated[
        str,
        typer.Argument(
            metavar="DESTINATION", help="The new name; ends with '/': a folder; '-' is stdout."
        ),
    ],
    recursive: _Recursive = False,
    no_clobber: _NoClobber = False,
    parallel: _Parallel = 64,
    json_: _Summary = False,
) -> None:
    """Copy objects between any two stores, verified.

    It goes on when an object fails. Run again, it goes on where it was interrupted.
    """
    from headrace._cli.copying import copy_stdin, cp
    from headrace._cli.reading import cat
    from headrace._cli.wildcards import expanded

    def work(connection: Connection, report: Report) -> None:
        if "-" in sources and (len(sources) > 1 or destination == "-" or recursive):
            raise InvalidArgumentError("'-' is stdin only as the one SOURCE")
        if destination == "-" and (recursive or no_clobber):
            raise InvalidArgumentError("'-' as DESTINATION takes neither -r nor --no-clobber")
        if destination == "-":
            found = expanded(_parsed(sources, connection), prefixes=False)
            cat(found, report, begin=None, end=None)
            return
        target = Location.parse(destination, connection)
        if sources == ["-"]:
            copy_stdin(target, connection, report, no_clobber=no_clobber)
            return
        cp(
            _parsed(sources, connection),
            target,
            connection,
            report,
            recursive=recursive,
            no_clobber=no_clobber,
            parallel=parallel,
        )

    _run(context, work, as_json=json_)


@app.command()
@_shared_options
def mv(
    context: typer.Context,
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE", help=_URLS)],
    destination: Annotated[
        str, typer.Argument(metavar="DESTINATION", help="The new name; ends with '/': a folder.")
    ],
    recursive: _Recursive = False,
    no_clobber: _NoClobber = False,
    parallel: _Parallel = 64,
    json_: _Summary = False,
) -> None:
    """Move objects: copy each, verified, then delete its source.

    What could not be copied stays. Run again, it goes on where it was interrupted.
    """
    from headrace._cli.copying import cp

    def work(connection: Connection, report: Report) -> None:
        cp(
            _parsed(sources, connection),
            Location.parse(destination, connection),
            connection,
            report,
            recursive=recursive,
            no_clobber=no_clobber,
            parallel=parallel,
            moves=True,
        )

    _run(context, work, as_json=json_)


@app.command()
@_shared_options
def sync(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A folder.")],
    destination: Annotated[str, typer.Argument(metavar="DESTINATION", help="A folder.")],
    delete: Annotated[
        bool, typer.Option("--delete", help="Then delete what lies below DESTINATION only.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Say what would be done; do nothing.")
    ] = False,
    parallel: _Parallel = 64,
    json_: _Json = False,
) -> None:
    """Copy what lies below SOURCE, and is not equal below DESTINATION.

    With --delete the two are equal then. Nothing is deleted if SOURCE is empty or something failed.
    """
    from headrace._cli.syncing import sync

    def work(connection: Connection, report: Report) -> None:
        sync(
            Location.parse(source, connection),
            Location.parse(destination, connection),
            connection,
            report,
            delete=delete,
            dry_run=dry_run,
            parallel=parallel,
        )

    _run(context, work, as_json=json_)


@app.command()
@_shared_options
def rm(
    context: typer.Context,
    urls: Annotated[list[str], typer.Argument(metavar="URL", help=_URLS)],
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", "-R", help="Delete what lies below, too.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", "--yes", "-f", "-y", help="Do not ask; missing objects are fine."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Say what would be deleted; delete nothing.")
    ] = False,
    json_: _Json = False,
) -> None:
    """Delete objects or files. On a terminal, ask first if -r or a wildcard is given."""
    from headrace._cli.removing import rm

    def work(connection: Connection, report: Report) -> None:
        locations = _parsed(urls, connection)
        rm(locations, report, recursive=recursive, force=force, dry_run=dry_run)

    _run(context, work, as_json=json_)


@app.command()
@_shared_options
def stat(
    context: typer.Context,
    urls: Annotated[list[str], typer.Argument(metavar="URL", help=_URLS)],
    json_: _Json = False,
) -> None:
    """Show what the store knows of objects: size, time, generation, checksum, type."""
    from headrace._cli.telling import stat

    def work(connection: Connection, report: Report) -> None:
        stat(_parsed(urls, connection), report, as_json=json_)

    _run(context, work, as_json=json_)


@app.command()
@_shared_options
def du(
    context: typer.Context,
    urls: Annotated[list[str], typer.Argument(metavar="URL", help=_URLS)],
    depth: Annotated[
        int,
        typer.Option("--depth", "-d", min=0, metavar="N", help="Show N levels below, too."),
    ] = 0,
    json_: _Json = False,
) -> None:
    """Add up bytes and objects at and below a URL."""
    from headrace._cli.telling import du

    def work(connection: Connection, report: Report) -> None:
        du(_parsed(urls, connection), report, depth=depth, as_json=json_)

    _run(context, work, as_json=json_)


@app.command()
@_shared_options
def index(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help=f"The objects below it: {_URLS}")],
    destination: Annotated[
        str, typer.Argument(metavar="DESTINATION", help="The object or file to write.")
    ],
    members: Annotated[
        bool,
        typer.Option(
            "--members",
            help="The files in the tar shards at URL, which may have braces (t-{00..99}.tar); "
            "reads their headers.",
        ),
    ] = False,
    skip_errors: Annotated[
        bool,
        typer.Option("--skip-errors", help="With --members: leave out shards that are broken."),
    ] = False,
    suffix: _Suffix = None,
    hidden: _Hidden = False,
    json_: _Json = False,
) -> None:
    """List once and save the index, so that training jobs need not list."""
    from headrace._cli.telling import index, members_index
    from headrace._store.chosen import Chosen

    def work(connection: Connection, report: Report) -> None:
        target = Location.parse(destination, connection)
        if members:
            if suffix is not None:
                raise InvalidArgumentError("--suffix is not for --members, which reads .tar")
            members_index(
                url, target, connection, report,
                hidden=hidden, skip_errors=skip_errors, as_json=json_,
            )  # fmt: skip
            return
        if skip_errors:
            raise InvalidArgumentError("--skip-errors is for --members")
        [location] = _parsed([url], connection)
        index(location, target, connection, report, Chosen(suffix, hidden=hidden), as_json=json_)

    _run(context, work, as_json=json_)


@app.command()
@_shared_options
def pack(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help=f"The objects below it, or tar shards: {_URLS}")
    ],
    destination: Annotated[str, typer.Argument(metavar="DESTINATION", help="A folder.")],
    shard_bytes: Annotated[
        str, typer.Option(metavar="SIZE", help="The size of a shard, at most.")
    ] = "256MiB",
    shard_samples: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Samples of a shard, at most.")
    ] = None,
    shuffle: Annotated[
        bool, typer.Option("--shuffle", help="Pack in the order of --seed.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of the order.")] = 0,
    label: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Add a field cls: a column of an index, or the number of the first 'folder'.",
        ),
    ] = None,
    transform: Annotated[
        str,
        typer.Option(metavar="MODULE:FUNCTION", help="What becomes of the fields of a sample."),
    ] = "",
    tokens: Annotated[
        str,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Make files of tokens instead, of what it returns for the bytes of each object.",
        ),
    ] = "",
    dtype: Annotated[
        str | None, typer.Option(metavar="TYPE", help="The type of tokens; uint16.")
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(metavar="LAYOUT", help="Of tokens: megatron (.bin and .idx) or raw."),
    ] = None,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="How the names of shards begin.")
    ] = "train",
    executor: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="What packs shards: threads; processes, for a transform in Python; or ray.",
        ),
    ] = None,
    ray: Annotated[bool, typer.Option("--ray", help="The same as --executor ray.")] = False,
    ray_address: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="The cluster of --executor ray, or 'local' for a new one. "
            "Default: RAY_ADDRESS, one that runs here, or a new one.",
        ),
    ] = "",
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Shards at a time; as there are cores, or CPUs in the cluster."
        ),
    ] = None,
    index: Annotated[
        bool, typer.Option("--index", help="SOURCE is a saved index (headrace index).")
    ] = False,
    table: Annotated[
        bool,
        typer.Option("--table", help="SOURCE is a CSV or Parquet file that names the objects."),
    ] = False,
    url_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Of a table: the objects' URLs; url.")
    ] = None,
    begin_column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Of a table: the byte where each part begins."),
    ] = None,
    end_column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Of a table: the byte before which it ends."),
    ] = None,
    root: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Of a table: where names that are no URLs lie."),
    ] = None,
    suffix: _Suffix = None,
    hidden: _Hidden = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Delete what was packed there before.")
    ] = False,
    skip_errors: Annotated[
        bool, typer.Option("--skip-errors", help="Leave out what cannot be read or transformed.")
    ] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="The summary as JSON on stdout; errors, too.")
    ] = False,
) -> None:
    """Pack small objects into tar shards, or make files of tokens of them.

    Run again, it goes on where it was interrupted.
    """
    from headrace._cli.packing import Table, pack_command, size_of

    def work(connection: Connection, report: Report) -> None:
        own: dict[str, Any] = {"label": label}
        if tokens:
            if label is not None or transform:
                raise InvalidArgumentError("--tokens takes neither --label nor --transform")
            own = {"dtype": dtype or "uint16", "layout": layout or "megatron"}
        elif dtype is not None or layout is not None:
            raise InvalidArgumentError("--dtype and --layout are for --tokens")
        if ray and executor not in (None, "ray"):
            raise InvalidArgumentError(f"--ray and --executor {executor} are two executors")
        chosen = executor or ("ray" if ray else "threads")
        if ray_address and chosen != "ray":
            raise InvalidArgumentError("--ray-address is for --executor ray")
        given = {"url": url_column, "begin": begin_column, "end": end_column, "root": root}
        columns = {key: value for key, value in given.items() if value is not None}
        if columns and not table:
            raise InvalidArgumentError(
                "--url-column, --begin-column, --end-column and --root are for --table"
            )
        if table and index:
            raise InvalidArgumentError("SOURCE is either a saved index (--index) or a --table")
        pack_command(
            source,
            Location.parse(destination, connection),
            connection,
            report,
            from_index=index,
            table=Table(**columns) if table else None,
            ray_address=ray_address,
            tokens=tokens,
            transform=transform,
            skip_errors=skip_errors,
            as_json=json_,
            shard_bytes=size_of(shard_bytes),
            shard_samples=shard_samples,
            shuffle=shuffle,
            seed=seed,
            name=name,
            executor=chosen,
            workers=workers,
            suffix=suffix,
            hidden=hidden,
            overwrite=overwrite,
            **own,
        )

    _run(context, work, as_json=json_)


@app.command()
@_shared_options
def bench(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="A bucket, prefix or directory.")],
    batch_size: Annotated[int, typer.Option(min=1, metavar="N", help="Objects a batch.")] = 64,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="S",
            help="How long, over as many epochs as it takes; 10, or 2 for each of several.",
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="So many epochs, however long.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the order.")] = 0,
    step_ms: Annotated[
        float,
        typer.Option(min=0.0, metavar="MS", help="Let a step of the trainer take so long."),
    ] = 0.0,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Vary batch size, read-ahead and processes, and write a page of plots.",
        ),
    ] = None,
    repeats: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="--html, --against, --ranks: how often to measure each."
        ),
    ] = 3,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Measure this loader in turn with headrace, on the same objects.",
        ),
    ] = None,
    ranks: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="Let so many processes read, each its share of the objects."
        ),
    ] = 1,
    suffix: _Suffix = None,
    hidden: _Hidden = False,
    json_: _Json = False,
) -> None:
    """Read as a training job reads, in shuffled batches, and say how fast that was."""
    from headrace._cli.bench import bench
    from headrace._store.chosen import Chosen

    def work(connection: Connection, report: Report) -> None:
        bench(
            Location.parse(url, connection),
            report,
            batch_size=batch_size,
            seconds=seconds,
            epochs=epochs,
            seed=seed,
            step_s=step_ms / 1000,
            html=html,
            repeats=repeats,
            against=against,
            ranks=ranks,
            chosen=Chosen(suffix, hidden=hidden),
        )

    _run(context, work, as_json=json_)


@app.command()
@_shared_options
def doctor(
    context: typer.Context,
    url: Annotated[
        str | None, typer.Argument(metavar="[URL]", help="A bucket, prefix or directory to try.")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Also write an object there, and delete it.")
    ] = False,
    json_: _Json = False,
) -> None:
    """Check this installation, and whether a bucket can be used; say what to do if not."""
    from headrace._cli.doctor import doctor

    def work(connection: Connection, report: Report) -> None:
        if write and url is None:
            raise InvalidArgumentError("--write needs the URL of a bucket or directory")
        doctor(url, connection, report, writes=write)

    _run(context, work, as_json=json_)


@app.command()
@_shared_options
def clean(
    context: typer.Context,
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="gs://bucket, s3://bucket/folder, ais://bucket or a directory"
        ),
    ],
    older_than: Annotated[
        str,
        typer.Option(
            metavar="AGE",
            help="Only what is so old: 90s, 30m, 12h, 7d. On ais://, what was unused so long.",
        ),
    ] = "1d",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Say what would be deleted; delete nothing.")
    ] = False,
    checkpoints: Annotated[
        bool,
        typer.Option(
            "--checkpoints",
            help="Also files below URL that unfinished saves of distributed checkpoints left.",
        ),
    ] = False,
    uploads: Annotated[
        bool,
        typer.Option(
            "--uploads",
            help="On s3://, abort all unfinished uploads below URL, whoever began them.",
        ),
    ] = False,
    json_: _Json = False,
) -> None:
    """Delete what killed processes of headrace left in a bucket or directory."""
    from headrace._cli.cleaning import clean, seconds_of

    def work(connection: Connection, report: Report) -> None:
        older_than_s = seconds_of(older_than)
        location = Location.parse(url, connection)
        clean(
            location,
            connection,
            report,
            older_than_s=older_than_s,
            checkpoints=checkpoints,
            uploads=uploads,
            dry_run=dry_run,
            as_json=json_,
        )

    _run(context, work, as_json=json_)


@app.command()
@_shared_options
def demo(
    context: typer.Context,
    url: Annotated[
        str | None,
        typer.Argument(metavar="URL", help="A folder or a prefix in a bucket, with nothing in it."),
    ] = None,
    shards: Annotated[
        bool, typer.Option("--shards", help="Put the images into tar shards.")
    ] = False,
    epochs: Annotated[int, typer.Option(min=1, metavar="N", help="Passes over the images.")] = 4,
    batch_size: Annotated[int, typer.Option(min=1, metavar="N", help="Images a batch.")] = 32,
    stop: Annotated[
        bool, typer.Option(help="Train once more, stopped and killed on the way.")
    ] = True,
    keep: Annotated[bool, typer.Option("--keep", help="Do not delete the objects.")] = False,
    plot: Annotated[str, typer.Option(metavar="FILE", help="Loss and latencies, as PNG.")] = (
        "demo.png"
    ),
    json_: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write what was counted there.")
    ] = None,
) -> None:
    """Train a small network on handwritten digits that lie in a store, and say what it took."""
    connection: Connection = context.obj
    for name in ("anonymous", "user_project", "requester_pays"):
        if getattr(connection, name):
            raise typer.BadParameter(f"the demo does not take --{name.replace('_', '-')}")
    # The demo starts processes of its own, which must find these, too.
    if connection.endpoint:
        is_s3 = scheme_of(url or "") == "s3"
        variable = "AWS_ENDPOINT_URL_S3" if is_s3 else "STORAGE_EMULATOR_HOST"
        os.environ[variable] = connection.endpoint
        os.environ["AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"] = "false"
    if connection.region:
        os.environ["AWS_DEFAULT_REGION"] = connection.region
    # On this thread: what it does with signals is its own.
    raise SystemExit(
        import_module("headrace.demo").main(
            url,
            shards=shards,
            epochs=epochs,
            batch_size=batch_size,
            stop=stop,
            keep=keep,
            plot=plot,
            json=json_,
        )
    )


def _parsed(urls: list[str], connection: Connection) -> list[Location]:
    wildcards = not connection.literal
    return [Location.parse(url, connection, wildcards=wildcards) for url in urls]


def _run(
    context: typer.Context, work: Callable[[Connection, Report], None], *, as_json: bool = False
) -> NoReturn:
    connection: Connection = context.obj
    report = Report(as_json=as_json, verbose=connection.verbose)
    report.run(lambda: work(connection, report))


def _range(text: str) -> tuple[int | None, int | None]:
    if not text:
        return None, None
    begin, colon, end = text.partition(":")
    if not colon or not all(part.isdecimal() or not part for part in (begin, end)):
        raise InvalidArgumentError(
            f"--range is {text!r}; it must be BEGIN:END, in bytes, and either may be left out"
        )
    return int(begin) if begin else None, int(end) if end else None
