"""The command as a whole: how it is called, what it needs."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace._cli import main
from tests.cli.conftest import Run


def test_it_says_which_version_it_is(run: Run) -> None:
    done = run("--version")
    assert (done.code, done.lines) == (0, [f"headrace {headrace.__version__}"])


def test_help_names_every_command(run: Run) -> None:
    for arguments in (["--help"], ["-h"]):
        done = run(*arguments)
        assert done.code == 0
        assert all(
            command in done.out.decode()
            for command in (
                "ls",
                "stat",
                "du",
                "cat",
                "cp",
                "rm",
                "index",
                "pack",
                "bench",
                "doctor",
                "clean",
                "demo",
            )
        )
    for command in ("ls", "cp"):
        text = run(command, "--help", COLUMNS="200").out.decode()
        assert "--endpoint" in text
        assert "--user-project" in text


def test_a_cluster_that_is_named_nowhere_is_asked_for(run: Run) -> None:
    for arguments in (("ls", "ais://bucket"), ("cp", __file__, "ais://bucket/a")):
        done = run(*arguments)
        assert done.code in (1, 2)
        assert "AIS_ENDPOINT" in done.err


def test_an_option_of_another_provider_is_refused(run: Run) -> None:
    done = run("ls", "ais://bucket", "--user-project", "p")
    assert done.code == 2
    assert "GcsOptions is for another provider" in done.err


def test_a_scheme_that_is_unknown_is_named(run: Run) -> None:
    done = run("ls", "gopher://bucket")
    assert done.code == 2
    assert "unknown scheme 'gopher'" in done.err


def test_importing_the_package_leaves_the_command_alone() -> None:
    script = """
        import sys
        import headrace
        assert not {"typer", "rich", "click", "pydantic", "headrace._cli"} & set(sys.modules)
        import headrace._cli
        assert not {"typer", "rich", "click", "pydantic"} & set(sys.modules)
    """
    child(script)


def test_without_typer_it_says_what_to_install() -> None:
    script = """
        import sys
        sys.modules["typer"] = None
        from headrace._cli import main
        sys.exit(main())
    """
    done = child(script, code=2)
    assert done.stderr == "headrace: the command line needs typer: pip install 'headrace[cli]'\n"


@pytest.mark.parametrize("as_json", [False, True])
def test_warnings_of_the_library_are_lines_of_the_command(as_json: bool) -> None:
    script = f"""
        import logging
        from headrace._cli.report import Report
        log = logging.getLogger("headrace")
        works = [lambda: log.info("nobody asked")]
        works += [lambda: log.warning("%s does not answer", "127.0.0.1\\x1b")]
        Report(as_json={as_json}, verbose=False).run(lambda: [work() for work in works])
    """
    done = child(script)
    lines = {
        False: "headrace: 127.0.0.1\\x1b does not answer\n",
        True: '{"warning": "127.0.0.1\\u001b does not answer"}\n',
    }
    assert done.stderr == lines[as_json]


def test_the_build_puts_the_command_on_the_path(repository: Path) -> None:
    command = repository / ".venv" / "bin" / "headrace"
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"headrace {headrace.__version__}\n")


def child(script: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    lines = "\n".join(line.strip() for line in script.splitlines())
    done = subprocess.run(
        [sys.executable, "-c", lines], capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == code, done.stderr
    return done


def test_the_demo_gets_its_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[tuple[Any, dict[str, Any], str | None]] = []

    def demo(url: str | None, **options: Any) -> int:
        calls.append((url, options, os.environ.get("STORAGE_EMULATOR_HOST")))
        return 0 if url is None else 1

    module = types.ModuleType("headrace.demo")
    monkeypatch.setattr(module, "main", demo, raising=False)
    monkeypatch.setitem(sys.modules, "headrace.demo", module)
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    defaults = {"shards": False, "epochs": 4, "batch_size": 32, "stop": True, "keep": False}
    defaults |= {"plot": "demo.png", "json": None}

    def code_of(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["headrace", "demo", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return ended.value.code

    assert code_of() == 0
    assert (
        code_of("gs://b/x", "--shards", "--epochs", "2", "--no-stop", "--endpoint", "http://h:1")
        == 1
    )
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    assert code_of("--anonymous") == 2
    assert calls == [
        (None, defaults, None),
        ("gs://b/x", defaults | {"shards": True, "epochs": 2, "stop": False}, "http://h:1"),
    ]
