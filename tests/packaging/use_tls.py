"""The wheel's TLS beside that of Python's `ssl`, in one process. usage: use_tls.py ENDPOINT CA_FILE

Both libraries descend from OpenSSL and have functions of the same names: each must call its own.
"""

import os
import ssl
import sys
import traceback
import urllib.request

import headrace

DATA = bytes(range(256)) * 2000


def open_store(endpoint: str) -> headrace.Store:
    """A store whose engine has no connection yet, and no session to resume."""
    headrace.shutdown()
    return headrace.Store("gs://bucket/", endpoint=endpoint, credentials="anonymous")


def read_by_headrace(endpoint: str) -> None:
    """One handshake of the engine."""
    assert open_store(endpoint).read("object").bytes() == DATA


def read_by_python(endpoint: str) -> None:
    """One handshake of Python's own."""
    context = ssl.create_default_context()
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    with opener.open(f"{endpoint}/storage/v1/b/bucket/o/object?alt=media", timeout=60) as answer:
        assert answer.read() == DATA


def refuse(endpoint: str) -> None:
    """Nobody knows the CA."""
    try:
        open_store(endpoint).read("object")
    except headrace.PermissionDeniedError as error:
        assert "certificate was refused" in str(error), error
    else:
        raise AssertionError("a certificate of an unknown CA was accepted")


def main() -> None:
    endpoint, ca_file = sys.argv[1:]
    if os.environ.get("SSL_CERT_FILE") != ca_file:
        os.environ.pop("SSL_CERT_FILE", None)
        refuse(endpoint)
        os.environ["SSL_CERT_FILE"] = ca_file
        os.execv(sys.executable, [sys.executable, *sys.argv])
    open_store(endpoint).write("object", DATA)
    for _ in range(3):
        read_by_python(endpoint)
        read_by_headrace(endpoint)
        # The child has the memory of both libraries, and of neither the threads.
        child = os.fork()
        if child == 0:
            status = 1
            try:
                read_by_headrace(endpoint)
                read_by_python(endpoint)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
    print(f"headrace's TLS works beside {ssl.OPENSSL_VERSION}")


if __name__ == "__main__":
    main()
