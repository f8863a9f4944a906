"""The objects of one or several stores: how datasets find, read and label them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace import _engine
from headrace._base.columns import KINDS, in_one_kind, missing_value, odd_value
from headrace._base.errors import InvalidArgumentError, NotFoundError
from headrace._base.options import require
from headrace._base.progress import CountOption, count_names
from headrace._engine import ObjectIndex, Sample
from headrace._index.shards import MEMBER
from headrace._store.chosen import Chosen
from headrace._store.entry_reads import EntryReads
from headrace._store.roots import first_of_root
from headrace._store.sources import sources_of
from headrace._store.store import Store
from headrace.torch._arguments import class_name, function
from headrace.torch._collate import explain_unequal_sizes
from headrace.torch._error_notes import about_sample
from headrace.torch._here import Here

if TYPE_CHECKING:
    import torch
    from typing_extensions import Buffer

    from headrace.torch._pinning import Pinning

__all__ = ["LABEL", "Labels", "Objects", "Source"]

Source = str | os.PathLike[str] | Store | ObjectIndex
Labels = str | Mapping[str, Any] | Callable[[str], Any] | Iterable[Any]

LABEL = "label"
_logger = logging.getLogger("headrace")


class Objects:
    """Objects of stores, how this process reads them, and what a dataset makes of each."""

    def __init__(
        self,
        source: Source | Iterable[Source],
        transform: Callable[[Sample], Any] | None,
        index: ObjectIndex | None,
        labels: Labels | None,
        classes: bool | Sequence[str] | None,
        progress: CountOption,
        options: Mapping[str, Any],
        chosen: Chosen | None = None,
    ) -> None:
        explain_unequal_sizes()
        function("transform", transform)
        require(
            index is None or isinstance(index, ObjectIndex),
            f"index is a {type(index).__name__}; it must be a headrace.ObjectIndex",
        )
        self._transform = transform
        self._here: Here | None = None
        self._chosen = chosen or Chosen()
        found = _found(source, index, progress, dict(options), self._chosen)
        self._stores, self._objects = found
        if len(self._objects) == 0:
            if index is not None or isinstance(source, ObjectIndex):
                raise InvalidArgumentError("index is empty; there is nothing to read")
            raise _nothing_below(self._stores[0].url, self._chosen)
        self._label_column: str | None = None
        self._classes: tuple[str, ...] | None = None
        if labels is not None:
            self._set_labels(labels, classes)
        else:
            require(not classes, "classes is given, but there are no labels")

    # ---- what there is

    @property
    def objects(self) -> ObjectIndex:
        """The listed objects. ``objects[i]`` has name and size; ``objects.name(i)`` is quicker."""
        return self._objects

    @property
    def store(self) -> Store:
        """The store of the objects; if there are several, the first of `stores`."""
        return self._stores[0]

    @property
    def stores(self) -> tuple[Store, ...]:
        """The stores of the objects, one for each of ``objects.roots``."""
        return self._stores

    @property
    def transform(self) -> Callable[[Sample], Any] | None:
        """The function that makes a sample of each object."""
        return self._transform

    @property
    def labels(self) -> Sequence[Any] | None:
        """The label of each object, in the order of the objects; None if there are no labels."""
        column = self._label_column
        return None if column is None else self._objects.column(column)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes; label 0 is the first. None if labels are not classes."""
        return self._classes

    @property
    def class_to_idx(self) -> dict[str, int] | None:
        """The label of each class by its name; None if labels are not classes."""
        classes = self._classes
        return None if classes is None else {name: i for i, name in enumerate(classes)}

    def url(self, index: int) -> str:
        """Return the URL of an object.

        Raises:
            IndexError: the index is out of range.

        Examples:
            >>> dataset.url(0)
            'gs://bucket/train/cat/001.jpg'
        """
        if self._objects.roots[0] == "":
            return self.store.url_of(self._objects.name(index))
        return self._objects.url(index)

    def _member(self, index: int) -> str | None:
        """Return what an entry is called in its shard; None: it lies in none."""
        if MEMBER not in self._objects.columns:
            return None
        [name] = self._objects.column(MEMBER, [index])
        return str(name)

    @property
    def _fingerprint(self) -> str:
        """A hash of everything that the meaning of a number depends on."""
        return self._objects.fingerprint

    # ---- how it is read

    def _opened(self) -> tuple[_engine.Engine, _engine.IndexReader]:
        """Return the engine and the reader of this process."""
        here = self._here
        if here is None or not here.is_valid:
            here = self._here = Here(self._stores, self._objects)
        return here.opened()

    def _start(self, indices: Buffer | Sequence[int], into: Buffer | None = None) -> EntryReads:
        """Begin to read the objects with these numbers; `into` is filled in their order."""
        return EntryReads(self._opened()[1].start(indices, into), self._objects, indices)

    # ---- what is made of it

    def _batch(
        self,
        raw: torch.Tensor,
        indices: Buffer | Sequence[int],  # noqa: ARG002
        pinning: Pinning,  # noqa: ARG002
    ) -> torch.Tensor:
        """Return a batch of objects that were read straight into a tensor, one a row."""
        return raw

    @property
    def _makes(self) -> bool:
        """Whether an item is more than the bytes of its object."""
        return self._transform is not None or self._label_column is not None

    @property
    def _maker(self) -> Callable[[Sample], Any]:
        """The function that makes an item of a sample; its errors are those of the transform."""
        make = self._transform or Sample.tensor
        if self._label_column is None:
            return make
        return lambda sample: (make(sample), sample.label)

    def _make(self, sample: Sample) -> Any:
        """Return the item of one object; errors name the object."""
        try:
            return self._maker(sample)
        except Exception as error:
            told = about_sample(error, sample.url)
            if told is error:
                raise
            raise told from error

    def _seed_samples(
        self, samples: list[Sample], seed: int, epoch: int, positions: Sequence[int]
    ) -> None:
        """Give each sample the seed of its position."""
        _engine.seed_samples(samples, seed, epoch, positions)

    def _label(self, samples: list[Sample], indices: Buffer | Sequence[int]) -> None:
        """Give each sample its label; `indices` are the numbers the samples were read by."""
        if self._label_column is not None:
            _engine.label_samples(samples, list(self._objects.column(self._label_column, indices)))

    def _set_labels(self, labels: Labels, classes: bool | Sequence[str] | None) -> None:
        if isinstance(labels, str):
            require(
                labels in self._objects.columns,
                f"labels is {labels!r}, but the index has no such column; it has "
                f"{', '.join(map(repr, self._objects.columns)) or 'none'}",
            )
            column = labels
            values: Any = None
            if classes:
                values = list(self._objects.column(labels))
        else:
            column, values = LABEL, _values(labels, self._names())
        if classes:
            assert values is not None
            self._classes, values = _numbered(values, classes)
        if values is not None:
            self._objects = self._objects.with_columns({column: values})
        self._label_column = column

    def _names(self) -> list[str]:
        return relative_names(self._objects, self._stores)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_here": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        explain_unequal_sizes()  # this may be a worker
        self.__dict__.update(state)

    def __repr__(self) -> str:
        urls = ", ".join(repr(store.url) for store in self._stores)
        count = f"{len(self._objects)} objects{self._chosen.in_repr}"
        return f"{class_name(self)}({urls}, {count})"


def relative_names(index: ObjectIndex, stores: Sequence[Store]) -> list[str]:
    """Return the names of the entries, each relative to the URL of its store."""
    names = [index.name(i) for i in range(len(index))]
    if len(stores) > 1:
        return names
    # The store's URL may lie below the root that names are relative to.
    root, url = index.roots[0], stores[0].url
    below = url[len(root) :].lstrip("/") if root and url.startswith(root) else ""
    if below and not below.endswith("/"):
        below += "/"
    return [name.removeprefix(below) for name in names]


def _found(
    source: Any,
    index: ObjectIndex | None,
    progress: CountOption,
    options: Mapping[str, Any],
    chosen: Chosen,
) -> tuple[tuple[Store, ...], ObjectIndex]:
    """Return the stores of the roots of `source`, and its objects."""
    sources = sources_of(source, "a URL, a path")
    require(
        not options or not any(isinstance(each, Store) for each in sources),
        f"{', '.join(options)}: options belong to the Store that is given",
    )
    stores = [
        each if isinstance(each, Store) else Store(each, **options)
        for each in sources
        if not isinstance(each, ObjectIndex)
    ]
    require(
        not chosen.is_asked_for or (index is None and len(stores) > 0),
        "suffix= and hidden= choose from listings, and an index is given: index.filter() chooses "
        "from it",
    )
    if index is None:
        given = iter(stores)
        with count_names(progress, "listing") as count:
            indexes = []
            listed = 0  # by the stores before
            for at, each in enumerate(sources):
                if isinstance(each, ObjectIndex):
                    require(
                        len(each) > 0 or len(sources) == 1,
                        f"source {at} is an empty index; leave it out",
                    )
                else:
                    store = next(given)
                    whole = _listed(store, count, listed)
                    listed += len(whole)
                    each = chosen.of(whole, store.url)
                    if len(each) == 0:
                        raise _nothing_below(store.url, chosen)
                indexes.append(each)
        index = indexes[0] if len(indexes) == 1 else ObjectIndex.concat(indexes)
    else:
        require(
            len(stores) == len(sources),
            "index is given, and an ObjectIndex is the source, too; give one of them",
        )
    return _stores_of(index, stores, options)


def _nothing_below(url: str, chosen: Chosen) -> NotFoundError:
    error = NotFoundError(
        f"{url}: no object is below this folder{chosen.hint} (headrace.Store(...).list() shows "
        "what is there)"
    )
    error.url = url
    return error


def _listed(store: Store, count: Callable[[int], object] | None, listed_before: int) -> ObjectIndex:
    if count is None:
        return store.index()
    return store.index(progress=lambda names, _: count(listed_before + names))


def _stores_of(
    index: ObjectIndex, given: list[Store], options: Mapping[str, Any]
) -> tuple[tuple[Store, ...], ObjectIndex]:
    """Return a store for each root, and the index, rebased to the given store if necessary."""
    by_root: dict[str, Store] = {}
    for store in given:
        first_of_root(by_root, _root_of(store), store)
    roots = index.roots
    if roots == ("",):
        require(
            len(given) == 1, "the index does not say where its objects are: give a URL or Store"
        )
        return (given[0],), index
    if len(given) == 1 and len(roots) == 1 and roots[0].rstrip("/") not in by_root:
        index = index.rebased(next(iter(by_root)))
        roots = index.roots
    stores = []
    for root in roots:
        found = by_root.get(root.rstrip("/"))
        if found is None:
            require(
                not given,
                f"the index has objects below {root}, where none of the given stores is: they are "
                f"at {', '.join(by_root)} (index.at() moves an index)",
            )
            found = Store(root, **options)
        stores.append(found)
    unused = by_root.keys() - {root.rstrip("/") for root in roots}
    require(
        not unused,
        f"the index has no objects below {', '.join(sorted(unused))}: leave out that source, or "
        "give an index of all of them (store.index() + other.index())",
    )
    return tuple(stores), index


def stores_of(index: ObjectIndex, whole: Objects) -> tuple[Store, ...]:
    """Return the stores of the roots that `index`, a part of those of `whole`, still has."""
    by_root = dict(zip(whole.objects.roots, whole.stores, strict=True))
    return tuple(by_root[root] for root in index.roots)


def _root_of(store: Store) -> str:
    return store.url_of("x")[:-1].rstrip("/")


def _values(labels: Any, names: list[str]) -> Any:
    """Return a label for each name."""
    if isinstance(labels, Mapping):
        missing = [name for name in names if name not in labels]
        if missing:
            raise InvalidArgumentError(
                f"labels has none for {len(missing)} of {len(names)} objects, such as "
                f"{missing[0]!r}; names are relative to the URL of the dataset"
            )
        return _plain([labels[name] for name in names])
    if callable(labels):
        return _plain([labels(name) for name in names])
    values = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    require(
        len(values) == len(names),
        f"labels has {len(values)} values, and there are {len(names)} objects",
    )
    return _plain(values)


def _plain(values: list[Any]) -> list[Any]:
    """Return the values in a type that an index keeps."""
    missing = missing_value(values)
    require(
        missing is None,
        f"label {missing} is {None if missing is None else values[missing]!r}; labels must be "
        f"{KINDS}, and every object needs one: leave the others out by index=",
    )
    same = in_one_kind(values)
    if same is None:
        at = odd_value(values)
        other = f", and label 0 is {values[0]!r}" if at > 0 else ""
        raise InvalidArgumentError(
            f"label {at} is {values[at]!r}{other}; labels must be {KINDS}. "
            "Anything else a transform can look up by sample.index or sample.name"
        )
    return same


def class_names(classes: Any) -> tuple[str, ...]:
    """Return the names of classes that were given, in the order of their numbers."""
    require(
        isinstance(classes, Iterable) and not isinstance(classes, str | bytes),
        f"classes is {classes!r}; it must be True or a list of names",
    )
    names = tuple(classes)
    seen: set[Any] = set()
    for name in names:
        require(name not in seen, f"classes has {name!r} twice")
        seen.add(name)
    return names


def _numbered(
    values: list[Any], classes: bool | Sequence[str]
) -> tuple[tuple[str, ...], list[int]]:
    names = tuple(sorted(set(values)) if classes is True else class_names(classes))
    numbers = {name: i for i, name in enumerate(names)}
    unknown = next((value for value in values if value not in numbers), None)
    require(unknown is None, f"a label is {unknown!r}, which is not among the classes")
    return names, [numbers[value] for value in values]
