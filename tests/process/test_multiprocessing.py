"""multiprocessing and DataLoader workers, by every start method."""

from __future__ import annotations

import pytest

from testing.faultserver.client import FaultServer
from tests.process.conftest import RunChild, wait_until_closed

# A server of forks stands for what starts anew.
METHODS = ["fork", pytest.param("spawn", marks=pytest.mark.soak), "forkserver"]


@pytest.mark.parametrize("used_before", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_a_pool(run_child: RunChild, server: FaultServer, method: str, used_before: bool) -> None:
    run_child(
        """
        from in_child import *
        import multiprocessing
        store = open_store()
        def work(names):
            return [sample.bytes() for sample in store.read_many(names)]
        def samples(store, names):
            return store.read_many(names)
        def fail(store):
            return store.read("missing")
        if __name__ == "__main__":
            method, used_before = sys.argv[2], sys.argv[3] == "True"
            context = multiprocessing.get_context(method)
            if used_before:
                use(store)
            jobs = [NAMES[i : i + 5] for i in range(0, 100, 5)]
            wanted = [[name.encode() * 1000 for name in names] for names in jobs]
            with context.Pool(2) as pool:
                assert pool.map(work, jobs) == wanted
                # Stores and samples cross the pipe.
                back = pool.starmap(samples, [(store, names) for names in jobs])
                assert [[sample.bytes() for sample in each] for each in back] == wanted
                assert back[0][0].url == "gs://bucket/000"
                try:
                    pool.apply(fail, (store,))
                except headrace.NotFoundError as error:
                    assert (error.url, error.http_status) == ("gs://bucket/missing", 404)
                else:
                    raise AssertionError
                pool.close()
                pool.join()
            use(store)
        """,
        server.url,
        method,
        used_before,
    )
    wait_until_closed(server)


@pytest.mark.parametrize("method", METHODS)
def test_processes_end_with_reads_in_flight(
    run_child: RunChild, server: FaultServer, method: str
) -> None:
    run_child(
        """
        from in_child import *
        import multiprocessing, threading
        def work(store):
            use(store, NAMES[:3])
            threading.Thread(target=lambda: store.read("stalls"), daemon=True).start()
            wait_for_stall()
        if __name__ == "__main__":
            store = open_store()
            use(store)
            process = multiprocessing.get_context(sys.argv[2]).Process(target=work, args=(store,))
            process.start()
            process.join(80)
            assert process.exitcode == 0, process.exitcode
            use(store)
        """,
        server.url,
        method,
    )


@pytest.mark.timeout(480)
@pytest.mark.parametrize("method", METHODS)
def test_a_dataloader(run_child: RunChild, server: FaultServer, method: str) -> None:
    """Workers of a map dataset over the store; the parent has used it before."""
    pytest.importorskip("torch")
    run_child(
        """
        from in_child import *
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Objects(Dataset):
            def __init__(self, store, names):
                self.store, self.names = store, names
            def __len__(self):
                return len(self.names)
            def __getitem__(self, index):
                return self.store.read(self.names[index]).tensor()
            def __getitems__(self, indices):
                samples = self.store.read_many([self.names[i] for i in indices])
                return [sample.tensor() for sample in samples]

        def loader(names, workers):
            return DataLoader(
                Objects(store, names), batch_size=8, num_workers=workers,
                multiprocessing_context=sys.argv[2],
            )

        if __name__ == "__main__":
            torch.set_num_threads(1)
            store = open_store()
            use(store)
            batches = list(loader(NAMES, 2))
            assert [len(batch) for batch in batches] == [8] * 12 + [4]
            rows = torch.cat(batches)
            assert rows.shape == (100, 3000) and rows.dtype == torch.uint8
            for name, row in zip(NAMES, rows, strict=True):
                assert bytes(row.tolist()) == name.encode() * 1000
            try:
                list(loader(["000", "missing"], 1))
            except headrace.NotFoundError as error:
                assert "gs://bucket/missing: " in str(error), error
            else:
                raise AssertionError
            use(store)
        """,
        server.url,
        method,
        timeout_s=400,
        stderr=None,
    )
    wait_until_closed(server)
