"""Objects as files: what ``headrace.open`` gives."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import os
import threading
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from headrace import _engine
from headrace._engine import ObjectInfo
from headrace._errors import HeadraceError, InvalidArgumentError
from headrace._location import object_at
from headrace._options import require
from headrace._reader_io import ObjectReaderIO
from headrace._store import Store, UploadWay

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["ObjectReaderIO", "ObjectWriterIO", "open", "tell_left_behind"]

_log = logging.getLogger("headrace")

_MODES = ("rb", "wb", "xb")


def tell_left_behind(writer: _engine.ObjectWriter, url: str, *, is_saved: bool) -> None:
    """Log what temporary objects a writer that is done could not remove, if any.

    Not as a warning, which ``python -W error`` would make an error: the object itself is as its
    ``close`` has told.
    """
    left = writer.left_behind
    if left is None:
        return
    held = "retention" in left.lower()
    advice = "; upload='resumable' needs no temporary objects" if held else ""
    told = f"{url}: {left}; `headrace clean` removes what is left{advice}"
    _log.warning("it is saved, but %s" if is_saved else "%s", told)


class ObjectWriterIO(io.BufferedIOBase):
    """An object that is being written, as a binary file.

    What is written goes on its way in parts while more comes. `close` makes the object visible,
    whole and verified, or not at all; so does leaving ``with``, unless by an exception, which
    aborts. The first error is the one that every later call raises, whatever a library made of it
    in between. A file that is dropped without `close` is aborted, with a `ResourceWarning`.

    Threads may share it; their writes come one after the other.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        if_generation: str | None = None,
        content_type: str | None = None,
        part_bytes: int = 16 << 20,
        max_parts_in_flight: int = 8,
        upload: UploadWay = "parts",
    ) -> None:
        # A copy, without the traceback: its frames hold what holds this file, and a cycle through a
        # library's writer in between, torch's for one, cannot be collected.
        self._failure: BaseException | None = None
        self._ended = True  # until it is open
        self._info: ObjectInfo | None = None
        self._epoch = _engine.fork_epoch()
        self._lock = threading.RLock()
        self._writer = store.open_writer(
            name,
            if_generation=if_generation,
            content_type=content_type,
            part_bytes=part_bytes,
            max_parts_in_flight=max_parts_in_flight,
            upload=upload,
        )
        self._ended = False

    # ---- what it is

    @property
    def name(self) -> str:
        """The object's URL."""
        return self._writer.url

    @property
    def mode(self) -> str:
        """The mode: ``"wb"``, also of what was opened with ``"xb"``."""
        return "wb"

    @property
    def info(self) -> ObjectInfo | None:
        """What the object is, once it is closed; until then, and after an error, None."""
        return self._info

    def readable(self) -> bool:
        """Return whether it can be read."""
        self._check_open()
        return False

    def writable(self) -> bool:
        """Return whether it can be written."""
        self._check_open()
        return True

    def seekable(self) -> bool:
        """Return whether `seek` works."""
        self._check_open()
        return False

    def tell(self) -> int:
        """Return the place: bytes from the beginning."""
        self._check_open()
        return self._writer.size_bytes

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:  # noqa: ARG002
        """Refuse it: what was written may have been sent."""
        self._check_open()
        raise io.UnsupportedOperation(
            f"{self.name} is written from its beginning to its end: one cannot seek in it; "
            "write to a local file or to io.BytesIO first"
        )

    # ---- writing

    def write(self, data: Buffer, /) -> int:
        """Take all of `data`, and return how many bytes these are. It may be changed afterwards."""
        self._check_open()
        self._check_process()
        with self._lock:
            if self._failure is not None:
                raise copy.copy(self._failure)
            try:
                return self._writer.write(data)
            except BaseException as error:
                # Python's own errors are about what gives no contiguous bytes: nothing was taken.
                is_refusal = isinstance(error, TypeError | BufferError | ValueError)
                if isinstance(error, HeadraceError) or not is_refusal:
                    self._failure = copy.copy(error)
                raise

    def flush(self) -> None:
        """Do nothing: what is written is under way, and visible by `close` only."""
        self._check_open()

    def close(self) -> None:
        """Wait until everything is durable and verified, and make the object visible.

        Raises:
            HeadraceError: the first error; then nothing of it is visible.
            PreconditionFailedError: something else is there than ``if_generation`` says.
        """
        if self.closed:
            return
        self._check_process()
        with self._lock:
            if self._ended:
                return
            try:
                if self._failure is not None:
                    self._writer.abort()
                    raise copy.copy(self._failure)
                self._info = self._writer.close()
            except BaseException:
                self._end()
                raise
            self._end()

    def abort(self, *, patience_s: float = 5.0) -> None:
        """End it without an object: nothing of what was written becomes visible.

        Args:
            patience_s: how long to wait until temporary objects are removed; that goes on by
                itself, also when the interpreter exits.
        """
        if self._ended:
            return
        self._check_process()
        with self._lock:
            try:
                self._writer.abort(patience_s=patience_s)
            finally:
                self._end()

    def _end(self) -> None:
        """Mark it as closed, and say what could not be removed."""
        if self._ended:
            return
        super().close()  # calls flush(), which must not find it closed yet
        self._ended = True
        tell_left_behind(self._writer, self.name, is_saved=False)

    def __enter__(self) -> ObjectWriterIO:
        self._check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        # Ctrl-C is not held up.
        self.abort(patience_s=5.0 if isinstance(error, Exception) else 0.1)
        # torch.save calls write() once more after an error, and raises another one of its own.
        failure = self._failure
        if failure is None or not isinstance(error, Exception):
            return
        if (type(error), str(error)) != (type(failure), str(failure)):
            raise copy.copy(failure) from error

    def __del__(self) -> None:
        # Not what io's own classes do: they close.
        if getattr(self, "_ended", True) or self._epoch != _engine.fork_epoch():
            return
        warnings.warn(
            f"unclosed {self!r}: what was written is given up",
            ResourceWarning,
            source=self,
            stacklevel=2,
        )
        with contextlib.suppress(HeadraceError):  # nobody is there to be told
            self.abort()

    def __repr__(self) -> str:
        return f"<headrace.ObjectWriterIO {self._writer.url!r}>"

    def __reduce_ex__(self, protocol: Any, /) -> Any:
        raise TypeError(f"{self!r} is being written: it cannot be pickled")

    def _check_open(self) -> None:
        if self._ended:
            raise ValueError(f"{self._writer.url}: the file is closed")

    def _check_process(self) -> None:
        if self._epoch != _engine.fork_epoch():
            raise InvalidArgumentError(
                f"{self._writer.url} was opened before a fork: only the parent process can write it"
            )


@overload
def open(  # noqa: A001
    url: str | os.PathLike[str] | ObjectInfo,
    mode: Literal["rb"] = "rb",
    *,
    store: Store | None = None,
    if_generation: str | None = None,
    prefetch_bytes: int = 64 << 20,
    **options: Any,
) -> ObjectReaderIO: ...
@overload
def open(  # noqa: A001
    url: str | os.PathLike[str],
    mode: Literal["wb", "xb"],
    *,
    store: Store | None = None,
    if_generation: str | None = None,
    content_type: str | None = None,
    part_bytes: int = 16 << 20,
    max_parts_in_flight: int = 8,
    upload: UploadWay = "parts",
    **options: Any,
) -> ObjectWriterIO: ...
def open(  # noqa: A001 - as in gzip, tarfile and io
    url: str | os.PathLike[str] | ObjectInfo,
    mode: str = "rb",
    *,
    store: Store | None = None,
    if_generation: str | None = None,
    prefetch_bytes: int = 64 << 20,
    content_type: str | None = None,
    part_bytes: int = 16 << 20,
    max_parts_in_flight: int = 8,
    upload: UploadWay = "parts",
    **options: Any,
) -> ObjectReaderIO | ObjectWriterIO:
    """Open an object as a binary file: ``gs://bucket/name``, ``file:///path`` or a path.

    To read text, wrap it: ``io.TextIOWrapper(headrace.open(url))``. To write text, encode it: a
    wrapper closes what it wraps after an exception, too, and so makes visible what came until then.

    Args:
        url: the object; with `store`, its name there, or for reading an `ObjectInfo`.
        mode: ``"rb"`` to read, ``"wb"`` to write, ``"xb"`` to write what must not be there yet.
        store: the store that `url` is a name in.
        if_generation: read, or replace, exactly this generation; ``"absent"`` is ``"xb"``.
        prefetch_bytes: when reading, what is fetched ahead of a sequential reader, at most.
        content_type: when writing; default ``application/octet-stream``.
        part_bytes: when writing, bytes of one part; see `Store.open_writer`.
        max_parts_in_flight: when writing, parts under way at a time.
        upload: when writing, how they come to the store; see `Store.open_writer`.
        options: options of `Store`, if `store` is not given.

    Raises:
        NotFoundError: there is no such object to read.
        PreconditionFailedError: it is not `if_generation`. When writing, `close` raises it.
        InvalidArgumentError: the mode, the URL or an option cannot work.
    """
    require(
        mode in _MODES,
        f"mode is {mode!r}; it must be 'rb', 'wb' or 'xb' (objects are opened in binary: "
        "io.TextIOWrapper makes text of it)",
    )
    if isinstance(url, ObjectInfo):
        require(mode == "rb", "to write, a name is needed, not an ObjectInfo")
        require(store is not None, "an ObjectInfo needs store=: where is it?")
        require(not options, f"options of a store beside store=: {', '.join(options)}")
        assert store is not None
        return ObjectReaderIO(
            store, url, if_generation=if_generation, prefetch_bytes=prefetch_bytes
        )
    store, name = object_at(url, store, **options)
    _refuse_directory(store, name)
    if mode == "rb":
        return ObjectReaderIO(
            store, name, if_generation=if_generation, prefetch_bytes=prefetch_bytes
        )
    if mode == "xb":
        require(
            if_generation in (None, "absent"),
            f"if_generation is {if_generation!r}, but mode 'xb' means that nothing is there",
        )
        if_generation = "absent"
    return ObjectWriterIO(
        store,
        name,
        if_generation=if_generation,
        content_type=content_type,
        part_bytes=part_bytes,
        max_parts_in_flight=max_parts_in_flight,
        upload=upload,
    )


def _refuse_directory(store: Store, name: str) -> None:
    # Whoever writes would be told by close() only.
    scheme, _, folder, _ = _engine.split_url(store.url)
    if scheme == "file" and os.path.isdir(os.path.join(folder, name)):
        raise InvalidArgumentError(
            f"{store.url_of(name)} names a directory, not an object; headrace.Store lists what is "
            "in it"
        )
