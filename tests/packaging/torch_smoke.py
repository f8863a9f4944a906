"""The contracts with torch and fsspec, on what is installed: one job for each supported end.

Run by tools/torch_smoke.sh in an environment that has the built wheel.
"""

import pickle
import tempfile
from collections.abc import Iterable
from pathlib import Path

import fsspec
import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter
from torch.utils.data import DataLoader, Dataset, default_collate

import headrace
import headrace.checkpoint
from headrace.torch import Loader, MapDataset
from headrace.torch._collate import explain_unequal_sizes

SIZE_BYTES = 40_000
COUNT = 64


class Objects(Dataset):
    """A dataset as users write it: the store goes to the workers by pickling."""

    def __init__(self, url: str) -> None:
        self.store = headrace.Store(url)
        self.infos = list(self.store.list())

    def __len__(self) -> int:
        return len(self.infos)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.store.read(self.infos[index]).tensor()


def check_samples(store: headrace.Store) -> None:
    """A sample is writable memory that torch and numpy share, also when it is empty."""
    sample = store.read("00000")
    tensor = sample.tensor()
    assert tensor.dtype is torch.uint8
    assert tensor.shape == (SIZE_BYTES,)
    tensor[0] = 255
    assert sample.numpy()[0] == 255
    assert bytes(memoryview(sample))[0] == 255
    store.write("empty", b"")
    assert store.read("empty").tensor().shape == (0,)
    store.delete("empty")
    into = torch.empty(SIZE_BYTES, dtype=torch.uint8)
    store.read("00001", into=into.numpy())
    assert int(into[0]) == 1
    assert pickle.loads(pickle.dumps(sample)).bytes() == sample.bytes()


def check_workers(url: str, context: str) -> None:
    """Every sample arrives once and whole, from workers that each have an engine of their own."""
    loader = DataLoader(
        Objects(url), batch_size=8, num_workers=2, multiprocessing_context=context, timeout=60
    )
    seen = [int(row[0]) for batch in loader for row in batch]
    assert seen == [i % 251 for i in range(COUNT)], (context, seen)


def first_bytes(batches: Iterable[torch.Tensor]) -> list[int]:
    """The samples of an epoch by their first bytes, in the order in which they came."""
    return [int(row[0]) for batch in batches for row in batch]


def check_loaders(url: str) -> None:
    """Our datasets in torch's DataLoader, and our loader, which resumes in mid-epoch."""
    wanted = sorted(i % 251 for i in range(COUNT))
    for workers in (0, 2):
        loader = DataLoader(
            MapDataset(url), batch_size=8, num_workers=workers, timeout=60 * (workers > 0)
        )
        assert sorted(first_bytes(loader)) == wanted, workers
    dataset = MapDataset(url, transform=headrace.Sample.tensor)
    whole = first_bytes(Loader(dataset, 8, shuffle=True, seed=3))
    assert sorted(whole) == wanted
    loader = Loader(dataset, 8, shuffle=True, seed=3)
    batches = iter(loader)
    begin = first_bytes(next(batches) for _ in range(3))
    rest = Loader(dataset, 16, shuffle=True, seed=3)
    rest.load_state_dict(loader.state_dict())
    assert begin + first_bytes(rest) == whole


def check_fsspec(folder: Path) -> None:
    """The file system that pip has told fsspec of: files, listings, ranges, transactions, torch."""
    root = f"headrace+file://{folder}"
    with fsspec.open(f"{root}/notes/a.txt", "w") as file:
        file.write("text")
    files, _ = fsspec.core.url_to_fs(root)
    path = str(folder / "notes" / "a.txt")
    assert files.cat(path) == b"text"
    assert files.cat_ranges([path, path], [0, 2], [2, 4]) == [b"te", b"xt"]
    assert [each.rsplit("/", 1)[1] for each in files.find(str(folder))] == ["a.txt"]
    with files.transaction:
        files.pipe(str(folder / "notes" / "b.txt"), b"")
    names = files.ls(str(folder / "notes"), detail=False)
    assert sorted(each.rsplit("/", 1)[1] for each in names) == ["a.txt", "b.txt"]
    files.rm(str(folder / "notes"), recursive=True)
    assert files.find(str(folder)) == []
    state = {"weights": torch.arange(1000)}
    writer = FsspecWriter(f"{root}/checkpoint", sync_files=False)  # it would sync local paths
    dcp.save(state, storage_writer=writer)
    loaded = {"weights": torch.zeros(1000, dtype=torch.int64)}
    dcp.load(loaded, storage_reader=FsspecReader(f"{root}/checkpoint"))
    assert torch.equal(loaded["weights"], state["weights"])


def check_checkpoints(folder: Path) -> None:
    """What headrace uses of torch that torch does not document is there, and does the same."""
    state = {
        "weights": torch.nn.Parameter(torch.arange(12.0).reshape(3, 4).t()),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "sparse": torch.eye(3).to_sparse(),
        "step": 7,
    }
    url = f"{folder}/state.pt"
    headrace.checkpoint.save(state, url)
    torch.save(state, folder / "theirs.pt")
    for weights_only in (True, False):
        for loaded in (
            headrace.checkpoint.load(url, weights_only=weights_only),
            headrace.checkpoint.load(f"{folder}/theirs.pt", weights_only=weights_only),
            torch.load(url, weights_only=weights_only),
        ):
            assert isinstance(loaded["weights"], torch.nn.Parameter)
            assert torch.equal(loaded["weights"], state["weights"])
            assert torch.equal(loaded["half"], state["half"])
            assert torch.equal(loaded["sparse"].to_dense(), torch.eye(3))
            assert loaded["step"] == 7


def check_messages() -> None:
    """The error of torch's own collate function has headrace's note about unequal sizes."""
    explain_unequal_sizes()
    try:
        default_collate([torch.zeros(3), torch.zeros(4)])
    except RuntimeError as error:
        assert "unequal sizes" in "".join(error.__notes__)
    else:
        raise AssertionError("tensors of unequal sizes were stacked")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = headrace.Store(folder)
        for i in range(COUNT):
            store.write(f"{i:05}", np.full(SIZE_BYTES, i % 251, dtype=np.uint8))
        check_samples(store)
        store.write("00000", np.zeros(SIZE_BYTES, dtype=np.uint8))
        for context in ("fork", "spawn"):
            check_workers(folder, context)
        check_loaders(folder)
    with tempfile.TemporaryDirectory() as folder:
        check_fsspec(Path(folder))
        check_checkpoints(Path(folder))
    check_messages()
    print(
        f"headrace {headrace.__version__} works with torch {torch.__version__}"
        f" and fsspec {fsspec.__version__}"
    )


if __name__ == "__main__":
    main()
