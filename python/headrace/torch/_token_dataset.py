"""A dataset of samples of tokens, which are windows of files."""

from __future__ import annotations

import hashlib
import logging
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy
import torch
from torch.utils.data import Dataset

from headrace import _engine
from headrace._base.errors import HeadraceError, InvalidArgumentError
from headrace._base.on_error import is_of_the_data
from headrace._base.options import require
from headrace._engine import ObjectIndex, Sample
from headrace._store.chosen import Chosen
from headrace._store.keywords import OF_LOADERS, refuse_options
from headrace._store.settings import StoreOptions
from headrace.torch._arguments import class_name, count
from headrace.torch._objects import Objects
from headrace.torch._pinning import Pageable, Pinning
from headrace.torch._token_files import ITEM_BYTES, Tokens, find_tokens, type_name

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["TokenDataset"]

_logger = logging.getLogger("headrace")


class TokenDataset(Objects, Dataset[torch.Tensor]):
    """Samples of ``seq_len + 1`` tokens from files, for `Loader` and for torch's DataLoader.

    A sample is one tensor: its inputs are ``sample[:-1]``, its targets ``sample[1:]``. The next
    sample of a file begins `stride` tokens later, by default `seq_len`, so that it begins with the
    last token of the one before and each token is a target once, as nanoGPT and Megatron-Core do
    it. No sample crosses from one file into another. Tokens at the end of a file that do not fill a
    sample are left out, and so are files that are too short; the log says how many.

    Samples are computed, not stored: the dataset takes memory for its files only, and opens
    10^9 samples as fast as ten. A sample is one read of its bytes, and a `Loader` reads the samples
    of a batch straight into one tensor, ``[batch_size, seq_len + 1]``.

    Files are raw tokens (``.bin``, little-endian, as nanoGPT writes them), the same behind a header
    of 1,024 bytes as llm.c writes it, arrays of NumPy (``.npy``, of one dimension), and datasets of
    Megatron-Core: there, name the ``.idx`` instead of the ``.bin``. In a folder, all ``.bin`` and
    ``.npy`` are files of tokens, in the byte order of their names, and a ``.bin`` with an ``.idx``
    beside it is Megatron-Core's. Its documents follow each other in the order of the file, and
    samples run across their borders. `sequence_order` packs them in another order, as
    Megatron-Core's GPTDataset does; a sample is then one read for each piece of the file that it
    consists of.

    Every read is pinned to the version of the file that was found when the dataset was made. No
    store keeps checksums of ranges, so the bytes of samples are not compared with one.

    Examples:
        >>> dataset = TokenDataset(
        ...     "gs://bucket/tokens/train.bin", seq_len=1024, dtype="uint16"
        ... )
        >>> dataset[0].shape
        torch.Size([1025])
        >>> for tokens in Loader(dataset, batch_size=8, shuffle=True):
        ...     train(tokens[:, :-1], tokens[:, 1:])

    Args:
        source: the URL or path of a file or a folder, a `headrace.Store`, or several of these. A
            pair of Megatron-Core's may be named without a suffix, as Megatron-Core does.
        seq_len: the number of inputs in a sample, which is one token longer.
        dtype: the type of tokens in raw ``.bin`` files, which do not say it: ``"uint16"``,
            ``"uint32"`` or another integer type, as torch or NumPy have it (``"<u4"``). Raw files
            need it or `vocab_size`. Of other files, what they must be. A ``.bin`` that is named and
            has an ``.idx`` beside it is read as raw if this is given, and else refused.
        stride: the number of tokens from the begin of one sample to that of the next.
        cast: the type of the tensors, ``torch.int64`` or ``torch.int32``; None: that of the files.
        vocab_size: check that all tokens are from 0 to below this number, in every batch. Without
            `dtype`, raw tokens are ``uint16`` if it is at most 65,536, and else ``uint32``, which
            is what programs write that choose the smallest type.
        sequence_order: of a source that is one ``.idx``: the numbers of its sequences (in most
            datasets documents), in the order in which they are packed; one may come several times.
            This is GPTDataset's ``document_index``. It is copied, and takes at most 16 bytes a
            number, in each worker that was not forked, too; more while the dataset is made.
        names: the names of the files, if the source is one store or folder.
        hidden: whether files of a folder are taken, too, whose names have a part that begins with
            ``.``.
        options: options of `headrace.Store`, if a URL is given: ``endpoint=...``.

    Raises:
        NotFoundError: there is no such file, or none in the folder, or an ``.idx`` in it has no
            ``.bin``.
        InvalidArgumentError: an argument cannot work, a raw file is there and neither `dtype` nor
            `vocab_size` was given, no file is long enough for a sample, the files have tokens of
            several types or of another one, or a file is named in two ways.
        CorruptDataError: a file is shorter than it says.
        TypeError: there is no such argument.
    """

    def __init__(
        self,
        source: Tokens | Iterable[Tokens],
        *,
        seq_len: int,
        dtype: str | torch.dtype | None = None,
        stride: int | None = None,
        cast: torch.dtype | None = torch.int64,
        vocab_size: int | None = None,
        sequence_order: Iterable[int] | torch.Tensor | None = None,
        names: Sequence[str] | None = None,
        hidden: bool = False,
        **options: Unpack[StoreOptions],
    ) -> None:
        refuse_options(type(self).__name__, options, TokenDataset, OF_LOADERS)
        self._seq_len = _distance("seq_len", seq_len)
        self._stride = self._seq_len if stride is None else _distance("stride", stride)
        self._vocab_size = (
            None if vocab_size is None else count("vocab_size", vocab_size, minimum=1)
        )
        wanted = None if dtype is None else type_name(dtype)
        raw_type = wanted
        if wanted is None and self._vocab_size is not None:
            raw_type = "uint16" if self._vocab_size <= 1 << 16 else "uint32"
        chosen = Chosen(hidden=hidden)
        found = find_tokens(source, names, wanted, raw_type, sequence_order, options, chosen)
        item_bytes = ITEM_BYTES[found.dtype]
        self._stored = getattr(torch, found.dtype)
        self._type = self._stored if cast is None else cast
        require(
            cast in (None, torch.int64, torch.int32)
            and (self._type == self._stored or self._type.itemsize > item_bytes),
            f"cast is {cast!r}, and the tokens are {found.dtype}; it must be torch.int64, "
            "torch.int32 or None, and hold all values of that type",
        )
        self._sample_bytes = (self._seq_len + 1) * item_bytes

        def windows_of(files: ObjectIndex) -> ObjectIndex:
            return files.windows(
                self._sample_bytes,
                self._stride * item_bytes,
                begins=found.begins,
                ends=found.ends,
            )

        windows = windows_of(found.files)
        counts = [
            (end - begin) // item_bytes for begin, end in zip(found.begins, found.ends, strict=True)
        ]
        if len(windows) == 0:
            raise InvalidArgumentError(
                f"{found.stores[0].url}: seq_len is {seq_len}, which takes {self._seq_len + 1} "
                f"tokens, and the longest of {len(found.files)} files has {max(counts)}"
            )
        super().__init__(found.stores, None, windows, None, None, False, {})
        self._chosen = chosen
        self._packing = found.packing
        self._told = self._objects if found.packing is None else windows_of(found.stream)
        self._tell_left_out(counts)

    @property
    def objects(self) -> ObjectIndex:
        """The samples, each as a range of its file.

        With `sequence_order`, a sample is no one range of the ``.bin``. Each is then a range of the
        packed sequences, which are no object: their name ends with `` packed``, and reading one by
        itself fails.
        """
        return self._told

    @property
    def seq_len(self) -> int:
        """The number of inputs in a sample."""
        return self._seq_len

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Read the samples one after the other."""
        for i in range(len(self)):
            yield self[i]

    def __getitem__(self, index: int) -> torch.Tensor:
        """Read one sample; a negative number counts from the end.

        Examples:
            >>> tokens = dataset[-1]

        Raises:
            IndexError: a number is out of range.
            PreconditionFailedError: the file was replaced after the dataset was made.
            InvalidArgumentError: a token is not below `vocab_size`.
        """
        return self.__getitems__([operator.index(index)])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[torch.Tensor]:
        """Read many samples at the same time, and return them in the order of `indices`.

        They are rows of one tensor.

        Examples:
            >>> samples = dataset.__getitems__([7, 5, 3])

        Raises:
            IndexError: a number is out of range.
            PreconditionFailedError: a file was replaced after the dataset was made.
            InvalidArgumentError: a token is not below `vocab_size`.
        """
        raw = torch.empty((len(indices), self._sample_bytes), dtype=torch.uint8, device="cpu")
        into: Any = raw.numpy()
        self._start(indices, into).wait()
        return list(self._batch(raw, indices, Pageable()).unbind())

    # ---- what a `Loader` makes of it

    @property
    def _fingerprint(self) -> str:
        packed = "" if self._packing is None else self._packing.fingerprint
        told = (self._objects.fingerprint, packed, self._seq_len, self._stride, str(self._stored))
        return hashlib.sha256(repr(told).encode()).hexdigest()[:32]

    def _start(self, indices: Buffer | Sequence[int], into: Buffer | None = None) -> Any:
        if self._packing is None:
            return super()._start(indices, into)
        reader = self._opened()[1]
        rows: Any = into
        if rows is None:
            raw = torch.empty((len(indices), self._sample_bytes), dtype=torch.uint8, device="cpu")  # type: ignore[arg-type]
            rows = raw.numpy()
        batch = reader.start(indices, rows, self._packing.packed)
        return _PackedReads(self, batch, rows, indices)

    def _batch(
        self, raw: torch.Tensor, indices: Buffer | Sequence[int], pinning: Pinning
    ) -> torch.Tensor:
        tokens = raw.view(self._stored)
        if self._vocab_size is not None and tokens.numel() > 0:
            self._check(tokens, indices, self._vocab_size)
        if self._type == self._stored:
            return tokens
        size_bytes = tokens.shape[1] * self._type.itemsize
        room, hand_over = pinning.room(self._opened()[0], len(tokens), size_bytes)
        cast = room.view(self._type)
        # By NumPy, on this thread. Of more than 32,768 tokens, torch would give each of its OpenMP
        # threads a share, for which they wait spinning: at a busy machine, most of a trainer's CPU.
        numpy.copyto(cast.numpy(), tokens.numpy())
        hand_over()
        return cast

    @property
    def _maker(self) -> Callable[[Sample], Any]:
        return self._tokens_of

    def _tokens_of(self, sample: Sample) -> torch.Tensor:
        assert sample.index is not None
        return self._batch(sample.tensor().unsqueeze(0), [sample.index], Pageable())[0]

    def _check(self, tokens: torch.Tensor, indices: Any, vocab_size: int) -> None:
        stored = tokens.numpy()  # whose minimum, unlike torch's, takes no OpenMP threads
        if int(stored.min()) >= 0 and int(stored.max()) < vocab_size:
            return
        wide = tokens.to(torch.int64)
        row, place = ((wide < 0) | (wide >= vocab_size)).nonzero()[0].tolist()
        entry = operator.index(indices[row]) % len(self)
        span = self._objects.range(entry)
        assert span is not None
        url = self.url(entry)
        byte = span[0] + place * self._stored.itemsize
        if self._packing is not None:
            byte = self._packing.packed.file_byte(byte)
        error = InvalidArgumentError(
            f"{url}: the token at byte {byte} is "
            f"{int(wide[row, place])}, and vocab_size is {vocab_size} (sample {entry}, place "
            f"{place}): is {str(self._stored).removeprefix('torch.')} the type of its tokens?"
        )
        error.url = url
        raise error

    def _tell_left_out(self, counts: Sequence[int]) -> None:
        """Say what of the files, which have so many tokens, is in no sample."""
        window, stride = self._seq_len + 1, self._stride
        short = left_out = 0
        for tokens in counts:
            if tokens < window:
                short += 1
                left_out += tokens
            else:
                left_out += max(0, (tokens - window) % stride)
        if short:
            _logger.warning(
                "%r leaves out %d of its %d files, which are too short for a sample of %d tokens",
                self, short, len(counts), window,
            )  # fmt: skip
        if left_out:
            _logger.info(
                "%r leaves out %d tokens at the ends of its %d files, which fill no sample",
                self, left_out, len(counts),
            )  # fmt: skip

    def __repr__(self) -> str:
        urls = ", ".join(repr(store.url) for store in self._stores)
        return (
            f"{class_name(self)}({urls}, {len(self._objects)} samples of "
            f"{self._seq_len + 1} tokens{self._chosen.in_repr})"
        )


def _distance(name: str, value: Any) -> int:
    """Return a number of tokens whose bytes are counted in 64 bits, whatever their type is."""
    number = count(name, value, minimum=1)
    require(number < 1 << 59, f"{name} is {value!r}; it must be below 2^59")
    return number


class _PackedReads:
    """Samples of several ranges each, which are read into the rows of an array of bytes."""

    def __init__(
        self,
        dataset: TokenDataset,
        batch: _engine.Batch,
        rows: Any,
        indices: Any,
    ) -> None:
        self._dataset = dataset
        self._batch = batch
        self._rows = rows
        self._indices = indices

    def cancel(self) -> None:
        self._batch.cancel()

    def drain(self) -> None:
        self._batch.drain()

    def poll(self, at_most_s: float) -> bool:
        return self._batch.poll(at_most_s)

    def wait(self) -> None:
        self._batch.wait()

    def take(self, *, return_errors: bool) -> list[Any]:
        has_failed = False
        try:
            self._batch.wait()
        except HeadraceError:
            if not return_errors:
                raise
            has_failed = True
        errors = self._errors() if has_failed else {}
        index = self._dataset._objects
        entries = [operator.index(i) % len(index) for i in self._indices]
        return [
            errors.get(at) or Sample(row, self._dataset.url(entry), "", index.name(entry), entry)
            for at, (row, entry) in enumerate(zip(self._rows, entries, strict=True))
        ]

    def _errors(self) -> dict[int, Exception]:
        """Read each sample again, since the engine has an error for each range."""
        errors: dict[int, Exception] = {}
        packing = self._dataset._packing
        assert packing is not None
        for at, entry in enumerate(self._indices):
            row = self._rows[at : at + 1]
            try:
                self._dataset._opened()[1].start([entry], row, packing.packed).wait()
            except HeadraceError as error:
                errors[at] = error
                if not is_of_the_data(error):
                    break  # an outage, say: the others need not wait for it, too
        return errors
