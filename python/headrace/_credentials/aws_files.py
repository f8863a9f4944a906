"""The files of AWS's that hold profiles, parsed as botocore parses them, and only when they change.

botocore itself is not needed: it reads them with the standard library's parser, too.
"""

from __future__ import annotations

import configparser
import os
import shlex
import time
from dataclasses import dataclass, field

from headrace._base.errors import InvalidArgumentError

__all__ = ["AwsFiles", "Setting", "read_aws_files"]

Value = str | dict[str, str]
"""A text, or what an indented block below a name says."""

# How coarse the times of files are, at most. A file that was written so shortly before it was read
# may have been written again since, and look the same.
_TICK_NS = 50_000_000
# Pairs of files; a process has one, or few.
_MOST_KEPT = 16


@dataclass(frozen=True, slots=True)
class Setting:
    """What a name is set to, and where."""

    value: Value
    origin: str
    """``region of [profile own] in /home/me/.aws/config``."""


@dataclass(frozen=True, kw_only=True)
class AwsFiles:
    """What both files say."""

    config_file: str
    credentials_file: str
    profiles: dict[str, dict[str, Setting]]
    services: dict[str, dict[str, Setting]]
    other_sections: frozenset[str] = field(default=frozenset())
    """Sections of the file of profiles that are neither: boto3 passes them over."""


_Signature = tuple[int, ...] | None

_kept: dict[tuple[str, str], tuple[tuple[_Signature, _Signature], AwsFiles]] = {}


def read_aws_files(config_file: str, credentials_file: str) -> AwsFiles:
    """Return what the files say. A file that does not exist says nothing.

    They are read again when one of them has changed.

    Args:
        config_file: an absolute path, or ``""``.
        credentials_file: the same.

    Raises:
        InvalidArgumentError: a file cannot be read, or is not in the format.
    """
    paths = (config_file, credentials_file)
    signatures = (_signature(config_file), _signature(credentials_file))
    kept = _kept.get(paths)
    if kept is not None and kept[0] == signatures:
        return kept[1]
    read_ns = time.time_ns()
    files = _read_both(config_file, credentials_file)
    if all(each is None or abs(read_ns - each[0]) > _TICK_NS for each in signatures):
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        _kept[paths] = (signatures, files)
    return files


def _signature(path: str) -> _Signature:
    """Return what changes when the file changes; the time of its last change comes first."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev)


def _read_both(config_file: str, credentials_file: str) -> AwsFiles:
    profiles: dict[str, dict[str, Setting]] = {}
    services: dict[str, dict[str, Setting]] = {}
    others = set()
    for section, values in _sections(config_file).items():
        if section == "default":
            profiles["default"] = values
            continue
        kind, name = _kind_and_name(section)
        if kind == "profile":
            profiles[name] = values
        elif kind == "services":
            services[name] = values
        else:
            others.add(section)
    # Here every section is a profile, and what it says comes before what the other file says.
    for section, values in _sections(credentials_file).items():
        profiles[section] = {**profiles.get(section, {}), **values}
    return AwsFiles(
        config_file=config_file,
        credentials_file=credentials_file,
        profiles=profiles,
        services=services,
        other_sections=frozenset(others),
    )


def _kind_and_name(section: str) -> tuple[str, str]:
    """Return ``("profile", "own")`` for ``profile own``, or ``("", "")``. Names may have quotes."""
    for kind in ("profile", "sso-session", "services"):
        if section.startswith(kind):
            try:
                words = shlex.split(section)
            except ValueError:
                break
            if len(words) == 2:
                return kind, words[1]
            break
    return "", ""


def _sections(path: str) -> dict[str, dict[str, Setting]]:
    """Return what each section of a file says.

    Raises:
        InvalidArgumentError: the file cannot be read, or is not in the format.
    """
    if not os.path.isfile(path):
        return {}
    parser = configparser.RawConfigParser()
    try:
        with open(path) as file:
            parser.read_file(file, path)
        return {
            section: {
                name: Setting(_value(name, text), f"{name} of [{section}] in {path}")
                for name, text in parser.items(section)
            }
            for section in parser.sections()
        }
    except FileNotFoundError:  # just removed
        return {}
    except (configparser.Error, OSError, ValueError) as error:
        # Without what the error has of the file, which may be a key.
        raise InvalidArgumentError(
            f"{path} cannot be read as a file of AWS profiles: {_reason(error)}; mend it, or let "
            "AWS_CONFIG_FILE or AWS_SHARED_CREDENTIALS_FILE name another"
        ) from None


def _reason(error: Exception) -> str:
    """Return what is wrong with a file, and in which line, but nothing that stands there."""
    if isinstance(error, configparser.DuplicateSectionError):
        return f"line {error.lineno}: the section [{error.section}] is there twice"
    if isinstance(error, configparser.DuplicateOptionError):
        return f"line {error.lineno}: {error.option} is set twice in [{error.section}]"
    if isinstance(error, configparser.MissingSectionHeaderError):
        return f"line {error.lineno} is in no section"
    if isinstance(error, configparser.ParsingError):
        return f"line {error.errors[0][0]} is not 'name = value'"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(error)


def _value(name: str, text: str) -> Value:
    """Return the settings of an indented block, which begins below its name, or else the text.

    Raises:
        ValueError: a line of the block sets nothing.
    """
    if not text.startswith("\n"):
        return text
    nested = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        key, equals, value = line.partition("=")
        if not equals:
            raise ValueError(f"a line below {name!r} is not 'name = value'")
        nested[key.strip()] = value.strip()
    return nested
