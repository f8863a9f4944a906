"""A dataset of objects by number."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from headrace._base.options import require
from headrace._base.progress import CountOption
from headrace._engine import ObjectIndex, Sample
from headrace._index.table import index_of_table
from headrace._store.chosen import Chosen, OptionalSuffix
from headrace._store.keywords import OF_LOADERS, refuse_options
from headrace._store.settings import StoreOptions
from headrace._store.sources import folder_labels
from headrace._store.store import Store
from headrace.torch._by_number import ByNumber
from headrace.torch._objects import (
    LABEL,
    Labels,
    Objects,
    Source,
    class_names,
    relative_names,
    stores_of,
)
from headrace.torch._signatures import (
    FolderKeywords,
    Item,
    Label,
    LabelOf,
    LabelsOf,
    Made,
    MapKeywords,
    TableKeywords,
    overload,
)

if TYPE_CHECKING:
    import torch

__all__ = ["MapDataset"]


class MapDataset(ByNumber[Item]):
    """Objects by number, for torch's DataLoader and for `Loader`.

    The dataset lists the objects when it is made, one source after the other, each in the UTF-8
    byte order of its names. It pickles as the configuration of the stores and the index, so it
    works in DataLoader workers of every start method. Unless you set other values, the engine of a
    worker has one I/O thread and a share of the memory and of the requests in flight.

    Without a transform, an item is a writable one-dimensional ``uint8`` tensor that owns its memory
    (an empty tensor for an empty object). With labels, an item is a pair of that tensor, or of the
    transform's result, and the label. The dataset reads a list of numbers as one batch, all objects
    at the same time; torch's DataLoader asks for its batches in this way.

    **Random transforms** draw from ``sample.rng()``. In a `Loader`, the numbers depend on the
    loader's seed, the epoch and the position. In torch's DataLoader, call `set_epoch` before each
    epoch: the numbers then depend on `seed`, the epoch and the number of the object, and the global
    generators of `random`, NumPy and torch are seeded for each sample, too. Without `set_epoch`,
    the seeds follow from torch's own (``torch.manual_seed``) and the number of samples that this
    process has made, so they change with the number of workers.

    Examples:
        >>> dataset = MapDataset("gs://bucket/train/", transform=decode)
        >>> image, label = dataset[0]
        >>> for images, labels in Loader(dataset, batch_size=256):
        ...     train(images, labels)

    Args:
        source: a URL, a path, a `headrace.Store`, or a `headrace.ObjectIndex` with the URLs of its
            objects; or several of these, of any providers, which become one dataset. Each must have
            objects.
        transform: a function of a `headrace.Sample`, a writable buffer with ``.name``, ``.url``,
            ``.index``, ``.label``, ``.bytes()``, ``.numpy()``, ``.tensor()`` and ``.rng()``.
        index: the objects, if you have listed them already, such as
            ``store.index().filter(suffix=".jpg")``. The dataset then lists nothing.
        labels: a mapping or a function from names to labels, a list with one label per object, or
            the name of a column of the index. Names are relative to the URL. All labels have one
            type: ``int``, ``float``, ``str`` or ``bytes``.
        classes: the names of the classes, in the order of their numbers; labels are then names and
            become numbers. True: all names, in alphabetical order.
        suffix: what the names of samples end with, or several of these: ``(".jpg", ".png")``.
        hidden: whether objects are samples whose names have a part that begins with ``.`` below the
            URL, or ``__MACOSX``. By default they are none, and the markers of folders never are.
            The log and ``repr`` count what is left out.
        seed: of the samples' own seeds after `set_epoch`; any integer from 0 to 2^63 - 1.
        progress: shows how many names have been listed: True shows a tqdm bar; a function is called
            with the number so far and None.
        options: options of `headrace.Store`, if a URL is given: ``endpoint=...``.

    Raises:
        NotFoundError: no object is below the URL, or below one of several.
        InvalidArgumentError: the URL or an option cannot work, or an object has no label.
        TypeError: there is no such argument.
    """

    @overload
    def __init__(
        self: MapDataset[torch.Tensor],
        source: Source | Iterable[Source],
        transform: None = None,
        *,
        labels: None = None,
        **keywords: Unpack[MapKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: MapDataset[Made],
        source: Source | Iterable[Source],
        transform: Callable[[Sample], Made],
        *,
        labels: None = None,
        **keywords: Unpack[MapKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: MapDataset[tuple[torch.Tensor, Label]],
        source: Source | Iterable[Source],
        transform: None = None,
        *,
        labels: str,
        **keywords: Unpack[MapKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: MapDataset[tuple[Made, Label]],
        source: Source | Iterable[Source],
        transform: Callable[[Sample], Made],
        *,
        labels: str,
        **keywords: Unpack[MapKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: MapDataset[tuple[torch.Tensor, LabelOf]],
        source: Source | Iterable[Source],
        transform: None = None,
        *,
        labels: LabelsOf[LabelOf],
        **keywords: Unpack[MapKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: MapDataset[tuple[Made, LabelOf]],
        source: Source | Iterable[Source],
        transform: Callable[[Sample], Made],
        *,
        labels: LabelsOf[LabelOf],
        **keywords: Unpack[MapKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: MapDataset[tuple[torch.Tensor, Any]],
        source: Source | Iterable[Source],
        transform: None = None,
        *,
        labels: Labels,
        **keywords: Unpack[MapKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: MapDataset[tuple[Made, Any]],
        source: Source | Iterable[Source],
        transform: Callable[[Sample], Made],
        *,
        labels: Labels,
        **keywords: Unpack[MapKeywords],
    ) -> None: ...
    def __init__(
        self,
        source: Source | Iterable[Source],
        transform: Callable[[Sample], Any] | None = None,
        *,
        index: ObjectIndex | None = None,
        labels: Labels | None = None,
        classes: bool | Sequence[str] | None = None,
        suffix: OptionalSuffix = None,
        hidden: bool = False,
        seed: int = 0,
        progress: CountOption = False,
        **options: Unpack[StoreOptions],
    ) -> None:
        refuse_options(type(self).__name__, options, MapDataset, OF_LOADERS)
        chosen = Chosen(suffix, hidden=hidden)
        super().__init__(source, transform, index, labels, classes, seed, progress, options, chosen)

    @overload
    @classmethod
    def from_folders(
        cls,
        source: Source | Iterable[Source],
        transform: None = None,
        *,
        classes: Sequence[str] | None = None,
        **keywords: Unpack[FolderKeywords],
    ) -> MapDataset[tuple[torch.Tensor, int]]: ...
    @overload
    @classmethod
    def from_folders(
        cls,
        source: Source | Iterable[Source],
        transform: Callable[[Sample], Made],
        *,
        classes: Sequence[str] | None = None,
        **keywords: Unpack[FolderKeywords],
    ) -> MapDataset[tuple[Made, int]]: ...
    @classmethod
    def from_folders(
        cls,
        source: Source | Iterable[Source],
        transform: Callable[[Sample], Any] | None = None,
        *,
        index: ObjectIndex | None = None,
        classes: Sequence[str] | None = None,
        suffix: OptionalSuffix = None,
        hidden: bool = False,
        seed: int = 0,
        progress: CountOption = False,
        **options: Unpack[StoreOptions],
    ) -> MapDataset[Any]:
        """Return a dataset in which the first folder below the URL is an object's class.

        Like torchvision's ``ImageFolder``: `classes` has the names of the folders, `class_to_idx`
        their labels. Objects outside of folders are left out.

        Examples:
            >>> dataset = MapDataset.from_folders("gs://bucket/train", decode)
            >>> dataset.classes
            ('cat', 'dog')
            >>> image, label = dataset[0]

        Args:
            source: as for the class.
            transform: as for the class.
            index: as for the class.
            classes: the folders to use, in the order of their labels; objects in other folders are
                left out. Default: all folders, in alphabetical order.
            suffix: as for the class.
            hidden: as for the class. Hidden folders are no classes, either.
            seed: as for the class.
            progress: as for the class.
            options: as for the class.

        Raises:
            InvalidArgumentError: no object lies in a folder, or in one of `classes`.
        """
        refuse_options(
            f"{cls.__name__}.from_folders",
            options,
            MapDataset.from_folders,
            OF_LOADERS,
        )
        wanted = None if classes is None else class_names(classes)
        chosen = Chosen(suffix, hidden=hidden)
        whole = Objects(source, None, index, None, None, progress, options, chosen)
        inside, folders = folder_labels(relative_names(whole.objects, whole.stores))
        if wanted is not None:
            named = set(wanted)
            kept = [at for at, folder in enumerate(folders) if folder in named]
            inside, folders = [inside[at] for at in kept], [folders[at] for at in kept]
        require(
            len(inside) > 0,
            f"{whole.store.url}: none of the {len(whole.objects)} objects lies in a folder that "
            "could be its class, as train/cat/1.jpg does below train",
        )
        objects, stores = whole.objects, whole.stores
        if len(inside) < len(objects):
            objects = objects.select(inside)
            stores = stores_of(objects, whole)
        dataset = cls._called(
            "from_folders", stores, transform, index=objects.with_columns({LABEL: folders}),
            labels=LABEL, classes=True if wanted is None else wanted, seed=seed,
        )  # fmt: skip
        dataset._chosen = chosen
        return dataset

    @overload
    @classmethod
    def from_table(
        cls,
        table: Any,
        transform: None = None,
        *,
        label: None,
        **keywords: Unpack[TableKeywords],
    ) -> MapDataset[torch.Tensor]: ...
    @overload
    @classmethod
    def from_table(
        cls,
        table: Any,
        transform: Callable[[Sample], Made],
        *,
        label: None,
        **keywords: Unpack[TableKeywords],
    ) -> MapDataset[Made]: ...
    @overload
    @classmethod
    def from_table(
        cls,
        table: Any,
        transform: None = None,
        *,
        label: str,
        **keywords: Unpack[TableKeywords],
    ) -> MapDataset[tuple[torch.Tensor, Label]]: ...
    @overload
    @classmethod
    def from_table(
        cls,
        table: Any,
        transform: Callable[[Sample], Made],
        *,
        label: str,
        **keywords: Unpack[TableKeywords],
    ) -> MapDataset[tuple[Made, Label]]: ...
    @overload
    @classmethod
    def from_table(
        cls,
        table: Any,
        transform: Callable[[Sample], Any] | None = None,
        *,
        label: str | None = LABEL,
        **keywords: Unpack[TableKeywords],
    ) -> MapDataset[Any]: ...
    @classmethod
    def from_table(
        cls,
        table: Any,
        transform: Callable[[Sample], Any] | None = None,
        *,
        url: str = "url",
        label: str | None = LABEL,
        classes: bool | Sequence[str] | None = None,
        begin: str | None = None,
        end: str | None = None,
        root: str | os.PathLike[str] | Store | None = None,
        check: bool = False,
        seed: int = 0,
        **options: Unpack[StoreOptions],
    ) -> MapDataset[Any]:
        """Return a dataset of the objects in a table, in its order, with their labels.

        headrace lists nothing. The other columns of the table become columns of
        ``dataset.objects``, if all their values are of one type; the log names those that are not.

        Examples:
            >>> dataset = MapDataset.from_table("gs://bucket/train.csv", decode)
            >>> urls = ["gs://bucket/train/cat/001.jpg", "gs://bucket/train/dog/001.jpg"]
            >>> dataset = MapDataset.from_table({"url": urls, "label": [0, 1]})
            >>> dataset = MapDataset.from_table(  # doctest: +SKIP
            ...     "train.parquet", url="image", label="class", classes=True
            ... )
            >>> parts = {"url": ["gs://bucket/train/cat/001.jpg"], "begin": [100], "end": [300]}
            >>> dataset = MapDataset.from_table(parts, begin="begin", end="end")
            >>> dataset.objects.size_bytes(0)
            200

        Args:
            table: the path or URL of a CSV file with a header, or of a Parquet file (``pip install
                'headrace[parquet]'``); or a mapping from the names of columns to their values, a
                list of dicts, a data frame of pandas or polars, or a table of pyarrow.
            transform: as for the class.
            url: the column with the objects' URLs or paths, or, with `root`, their names. They may
                be in several buckets and at several providers.
            label: the column with the labels; None: no labels. A column of a CSV in which every
                value is written as a number usually is becomes numbers, and one of ``True`` and
                ``False`` becomes booleans; ``007`` stays a text.
            classes: as for the class.
            begin: the column that says at which byte of its object an entry begins ...
            end: ... and the one that says where it ends: an entry is then this part of an object,
                or all of it in rows that have neither. Give both, or none.
            root: the URL or store that names in the column `url` are relative to. In a bucket, a
                name may begin with ``/``; in a directory, that is a path.
            check: ask the stores about each object now. A missing object is then an error now, and
                reads are verified and pinned to the object's version. Otherwise sizes are unknown
                until the objects are read.
            seed: as for the class.
            options: options of `headrace.Store`, for the table and the objects: ``endpoint=...``.

        Raises:
            NotFoundError: the table does not exist; with `check`, an object does not exist.
            CorruptDataError: a Parquet file is cut, or is none.
            HeadraceError: a Parquet file is given, and pyarrow is not installed.
            InvalidArgumentError: the table has no such column, no rows, an invalid URL, or labels
                of several types.
        """
        refuse_options(
            f"{cls.__name__}.from_table",
            options,
            MapDataset.from_table,
            OF_LOADERS,
        )
        require(
            (begin is None) == (end is None),
            f"begin is {begin!r} and end is {end!r}; name both columns, or none",
        )
        ranges = None if begin is None or end is None else (begin, end)
        index, stores = index_of_table(table, url, label, ranges, root, check, options)
        if label == LABEL and LABEL not in index.columns:
            label = None
        require(
            label is None or label in index.columns,
            f"the table has no column {label!r}; it has {', '.join(map(repr, index.columns))}",
        )
        return cls._called(
            "from_table", stores, transform, index=index, labels=label, classes=classes, seed=seed
        )

    @classmethod
    def _called(
        cls,
        method: str,
        stores: tuple[Store, ...],
        transform: Callable[[Sample], Any] | None,
        **more: Any,
    ) -> MapDataset[Any]:
        """Return a dataset of this class, which may be a subclass with arguments of its own."""
        try:
            inspect.signature(cls).bind(stores, transform=transform, **more)
        except TypeError as error:
            raise TypeError(
                f"{cls.__qualname__}.{method} calls {cls.__qualname__}(stores, transform=, "
                f"{', '.join(f'{name}=' for name in more)}...), which its own __init__ does not "
                f"take ({error}): let it hand these to super().__init__, with **options, or call "
                f"MapDataset.{method}"
            ) from None
        return cls(stores, transform=transform, **more)
