"""uv goes where pip is told to go."""

from __future__ import annotations

from tools.uv_settings import configured, for_uv


def test_what_pip_is_configured_with_is_what_uv_gets() -> None:
    listing = "\n".join(
        [
            ":env:.find-links='/wheels /more'",
            "global.cert='/etc/ca.pem'",
            "global.default-timeout='180'",
            "global.extra-index-url='https://one.example/simple\\nhttps://two.example/simple'",
            "global.index-url='https://user:word@pip.example/simple'",
            "global.trusted-host='pip.example'",
        ]
    )
    assert for_uv(configured(listing)) == {
        "UV_DEFAULT_INDEX": "https://user:word@pip.example/simple",
        "UV_INDEX": "https://one.example/simple https://two.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INSECURE_HOST": "pip.example",
        "UV_HTTP_TIMEOUT": "180",
        "SSL_CERT_FILE": "/etc/ca.pem",
    }


def test_the_environment_counts_before_files_and_install_before_all() -> None:
    listing = "global.index-url='https://g'\ninstall.index-url='https://i'\n"
    assert configured(listing)["index-url"] == "https://i"
    assert configured(listing + ":env:.index-url='https://e'")["index-url"] == "https://e"
    assert configured("download.index-url='https://d'\nglobal.index-url='https://g'") == {
        "index-url": "https://g"
    }


def test_no_configuration_is_none_for_uv() -> None:
    assert for_uv(configured("")) == {}
