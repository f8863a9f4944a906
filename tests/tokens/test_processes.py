"""What samples of tokens do in processes of their own: threads, kills, torchrun."""

from __future__ import annotations

from testing.faultserver.client import FaultServer
from tests.process.conftest import RunChild
from tests.tokens.conftest import corpus
from tests.torch.conftest import _nursery, run_child

__all__ = ["_nursery", "run_child"]


def test_batches_are_cast_and_checked_without_threads_of_torch(
    run_child: RunChild, server: FaultServer
) -> None:
    # Those of OpenMP spin while they wait for each other, which costs a trainer its cores.
    server.put("bucket", "a.bin", corpus(400_001).tobytes())
    run_child(
        """
from in_child import *
import torch
from headrace.torch import Loader, TokenDataset

torch.set_num_threads(4)
dataset = TokenDataset(open_store(), seq_len=40_000, vocab_size=50_000)
before = len(thread_names()) - len(headrace_threads())
for batch in Loader(dataset, batch_size=2):
    assert batch.dtype == torch.int64
assert len(thread_names()) - len(headrace_threads()) == before
torch.zeros(1 << 20).add_(1)  # as torch's copy and minimum would have done
assert len(thread_names()) - len(headrace_threads()) > before
""",
        server.url,
    )
