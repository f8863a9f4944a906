"""Where the requests of an ``s3://`` store go and as whom, as boto3 finds it out.

Each value comes from the first of: an argument, an environment variable, a file of AWS's.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Never

from headrace import _engine
from headrace._base.errors import InvalidArgumentError
from headrace._base.options import S3Addressing, S3Checksum, S3Options, host_of
from headrace._credentials.aws_files import AwsFiles, Setting, read_aws_files

__all__ = ["AwsConfiguration", "aws_configuration"]

# A label of a host's name.
_REGION = re.compile("[a-z0-9-]+")
# boto3's name for the endpoint that answers for all regions.
_NO_REGION = "aws-global"
# What makes keys, in the order in which botocore looks.
_KEY_SETTINGS = (
    "role_arn",
    "web_identity_token_file",
    "sso_session",
    "sso_start_url",
    "aws_access_key_id",
    "login_session",
    "credential_process",
)
# Profiles that an error tells of.
_MOST_NAMED = 10
_ELSEWHERE = "or let AWS_PROFILE name another profile"


@dataclass(frozen=True, kw_only=True)
class AwsConfiguration:
    """What was found. It holds no secret, and pickles."""

    profile: str | None = None
    """None: ``default``, if there is one."""
    config_file: str = ""
    """As it was named: the home directory of another process may be another one."""
    credentials_file: str = ""
    endpoint: str = ""
    """Normalized; ``""``: AWS's own."""
    region: str = ""
    """``""``: the first request finds out."""
    addressing: S3Addressing = "auto"
    dual_stack: bool = False
    fips: bool = False
    checksum: S3Checksum = "auto"
    ca_file: str = ""
    """``""``: the same as of all other stores."""
    keys_origin: str = ""
    """The setting of the profile that botocore makes keys of; ``""``: none."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where ``profile``, ``endpoint`` and ``region`` are from, if they are set."""


def aws_configuration(
    variables: Mapping[str, str],
    *,
    endpoint: str | None = None,
    options: S3Options = S3Options(),  # noqa: B008 - frozen
    credentials: Any = None,
) -> AwsConfiguration:
    """Return what holds for a store with these arguments.

    Args:
        variables: those of the environment that concern AWS.
        endpoint: of the store, normalized.
        options: of the store.
        credentials: of the store. A session of botocore or boto3 has a profile, a region and files
            of its own.

    Raises:
        InvalidArgumentError: a setting cannot work, or headrace cannot obey it; the message says
            where it is.
    """
    return _Finder(variables, credentials).find(endpoint, options)


class _Finder:
    """Looks at one environment, or at one session of botocore's."""

    def __init__(self, variables: Mapping[str, str], credentials: Any) -> None:
        self._variables = variables
        self._is_anonymous = credentials == "anonymous"
        self._session = _session_of(credentials)
        self._config_file = self._path("config_file", "AWS_CONFIG_FILE", "~/.aws/config")
        self._credentials_file = self._path(
            "credentials_file", "AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"
        )
        self._files = read_aws_files(
            _expanded(self._config_file), _expanded(self._credentials_file)
        )
        named = self._named_profile()
        self._profile = self._settings_of(named)
        self._name = None if named is None else str(named.value)
        self._origins = {} if named is None else {"profile": named.origin}

    def find(self, endpoint: str | None, options: S3Options) -> AwsConfiguration:
        place = self._endpoint(endpoint)
        region = self._region(options)
        accelerates = self._s3("use_accelerate_endpoint")
        if accelerates is not None and _is_true(accelerates) and not endpoint:
            _refuse(
                accelerates,
                "headrace does not use S3 Transfer Acceleration",
                f"remove it, {_ELSEWHERE}, or give endpoint=",
            )
        if not self._is_anonymous:
            self._require_obeyable_signing()
        return AwsConfiguration(
            profile=self._name,
            config_file=self._config_file,
            credentials_file=self._credentials_file,
            endpoint=place,
            region=region,
            addressing=options.addressing or self._addressing(place),
            dual_stack=self._dual_stack(place)
            if options.dual_stack is None
            else options.dual_stack,
            fips=self._fips(place, region) if options.fips is None else options.fips,
            checksum=options.checksum or self._checksum(),
            ca_file=self._ca_file(),
            keys_origin=next(
                (self._profile[each].origin for each in _KEY_SETTINGS if each in self._profile), ""
            ),
            origins=self._origins,
        )

    # ---- which profile

    def _path(self, name: str, variable: str, default: str) -> str:
        text = self._session(name) if self._session else self._variables.get(variable, default)
        if not text or os.path.isabs(_expanded(text)):
            return text or ""
        return os.path.abspath(_expanded(text))

    def _named_profile(self) -> Setting | None:
        if self._session:
            name = self._session("profile")
            return Setting(name, "the profile of the session") if name else None
        return self._variable("AWS_DEFAULT_PROFILE") or self._variable("AWS_PROFILE")

    def _settings_of(self, named: Setting | None) -> dict[str, Setting]:
        if named is None:
            return self._files.profiles.get("default", {})
        name = str(named.value)
        if name not in self._files.profiles:
            raise InvalidArgumentError(_no_such_profile(named.origin, name, self._files))
        return self._files.profiles[name]

    # ---- where

    def _endpoint(self, argument: str | None) -> str:
        if argument:
            self._origins["endpoint"] = "endpoint="
            return argument
        if self._flag("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "ignore_configured_endpoint_urls"):
            return ""
        found = (
            self._variable("AWS_ENDPOINT_URL_S3")
            or self._variable("AWS_ENDPOINT_URL")
            or self._service("endpoint_url")
            or self._text("endpoint_url")
        )
        if found is None:
            return ""
        self._origins["endpoint"] = found.origin
        try:
            return _engine.normalized_endpoint(str(found.value), default_tls=True)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{found.origin}: {error}") from None

    def _service(self, name: str) -> Setting | None:
        """Return what the profile's ``services`` section says of S3."""
        named = self._text("services")
        if named is None:
            return None
        section = self._files.services.get(str(named.value))
        if not section:
            _refuse(
                named,
                f"{self._files.config_file} has no section [services {named.value}] with settings",
                f"write it, {_ELSEWHERE}",
            )
        return _nested(section.get("s3"), name)

    def _region(self, options: S3Options) -> str:
        if options.region:
            self._origins["region"] = "S3Options(region=)"
            return options.region
        if self._session:
            text = self._session("region")
            found = Setting(text, "the region of the session") if text else None
        else:
            found = self._variable("AWS_DEFAULT_REGION")
        # boto3 does not know the second variable; the other SDKs of AWS do.
        found = found or self._variable("AWS_REGION") or self._text("region")
        if found is None or found.value == _NO_REGION:
            return ""
        if not _REGION.fullmatch(str(found.value)):
            _refuse(found, "no region is called so", "it must be a name like 'eu-west-1'")
        self._origins["region"] = found.origin
        return str(found.value)

    def _addressing(self, endpoint: str) -> S3Addressing:
        found = self._s3("addressing_style")
        if found is None or found.value == "auto":
            return "auto"
        if found.value == "path":
            return "path"
        if found.value != "virtual":
            _refuse(found, "it must be auto, path or virtual")
        # boto3 leaves buckets in the path whose names cannot be part of a host's, as "auto" does at
        # AWS, and all of them where the host is a number.
        return "auto" if not endpoint or _is_number(endpoint) else "virtual"

    # The next two choose among the endpoints of AWS, where no other one is named.

    def _dual_stack(self, endpoint: str) -> bool:
        return not endpoint and (
            _is_true(self._s3("use_dualstack_endpoint"))
            or self._flag("AWS_USE_DUALSTACK_ENDPOINT", "use_dualstack_endpoint")
        )

    def _fips(self, endpoint: str, region: str) -> bool:
        if endpoint or not self._flag("AWS_USE_FIPS_ENDPOINT", "use_fips_endpoint"):
            return False
        if region.startswith("cn-"):
            raise InvalidArgumentError(
                f"use_fips_endpoint is configured ({self._files.config_file} or "
                f"AWS_USE_FIPS_ENDPOINT), and AWS has no such endpoints in {region}; unset it, or "
                "pass S3Options(fips=False)"
            )
        return True

    def _ca_file(self) -> str:
        found = self._variable("AWS_CA_BUNDLE") or self._text("ca_bundle")
        if found is None:
            return ""
        if not os.path.isfile(str(found.value)):
            _refuse(
                found, "there is no such file", "it must name a file of certificates in PEM form"
            )
        return os.path.abspath(str(found.value))

    # ---- how

    def _checksum(self) -> S3Checksum:
        for name in ("response_checksum_validation", "request_checksum_calculation"):
            found = self._variable(f"AWS_{name.upper()}") or self._text(name)
            when = "when_supported" if found is None else str(found.value).lower()
            if found is not None and when not in ("when_supported", "when_required"):
                _refuse(found, "it must be when_supported or when_required")
        # What goes along with a write is then no header that only S3 of today knows.
        return "md5" if when == "when_required" else "auto"

    def _require_obeyable_signing(self) -> None:
        version = self._s3("signature_version")
        if version is not None and version.value not in ("s3v4", "v4"):
            _refuse(
                version,
                "headrace signs with version 4 (s3v4) only",
                f"remove it, or give credentials='anonymous', {_ELSEWHERE}",
            )
        signs_bytes = self._s3("payload_signing_enabled")
        if signs_bytes is not None and _is_true(signs_bytes):
            _refuse(
                signs_bytes,
                "headrace does not sign the bytes of a write, which TLS and checksums protect",
                f"remove it, {_ELSEWHERE}",
            )

    # ---- one value

    def _variable(self, name: str) -> Setting | None:
        """Return what a variable says, if it is set, and not to nothing."""
        text = self._variables.get(name)
        return Setting(text, name) if text else None

    def _text(self, name: str) -> Setting | None:
        """Return a setting of the profile, if it is set, and not to nothing."""
        found = self._profile.get(name)
        if found is None or not found.value:
            return None
        if not isinstance(found.value, str):
            _refuse(found, "it must be one value, in its own line")
        return found

    def _s3(self, name: str) -> Setting | None:
        """Return a setting in the profile's block ``s3 =``."""
        return _nested(self._profile.get("s3"), name)

    def _flag(self, variable: str, name: str) -> bool:
        if variable in self._variables:
            return _is_true(Setting(self._variables[variable], variable))
        return _is_true(self._text(name))


def _session_of(credentials: Any) -> Callable[[str], Any] | None:
    """Return how a session of botocore, or the one in boto3's, is asked for a setting."""
    session = getattr(credentials, "_session", credentials)
    return getattr(session, "get_config_variable", None)


def _expanded(path: str) -> str:
    return os.path.expanduser(os.path.expandvars(path))


def _is_number(endpoint: str) -> bool:
    """Return whether an endpoint's host is an address instead of a name."""
    try:
        ipaddress.ip_address(host_of(endpoint))
    except ValueError:
        return False
    return True


def _nested(block: Setting | None, name: str) -> Setting | None:
    """Return a setting of an indented block, if it is set, and not to nothing."""
    if block is None or not block.value:
        return None
    if isinstance(block.value, str):
        _refuse(block, "its settings must be in the lines below it, indented")
    value = block.value.get(name)
    return Setting(value, f"{name} below {block.origin}") if value else None


def _is_true(found: Setting | None) -> bool:
    if found is None:
        return False
    text = str(found.value).lower()
    if text not in ("", "true", "false"):
        _refuse(found, "it must be true or false")
    return text == "true"


def _refuse(found: Setting, *reasons: str) -> Never:
    value = "several lines" if isinstance(found.value, dict) else repr(found.value)
    raise InvalidArgumentError(f"{found.origin} is {value}: {'; '.join(reasons)}")


def _no_such_profile(origin: str, name: str, files: AwsFiles) -> str:
    if name in files.other_sections:
        return (
            f"{origin} is {name!r}, and {files.config_file} has a section [{name}]; there, it must "
            f"be called [profile {name}]"
        )
    places = " and ".join(filter(None, (files.config_file, files.credentials_file)))
    known = ", ".join(sorted(files.profiles)[:_MOST_NAMED]) or "none"
    if len(files.profiles) > _MOST_NAMED:
        known += ", ..."
    return (
        f"{origin} is {name!r}, and there is no such profile in {places or 'any file'} (profiles: "
        f"{known}); name one that there is, or unset it"
    )
