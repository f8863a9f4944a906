"""Samples of tokens."""

from __future__ import annotations

from typing import assert_type

import torch

from headrace.torch import Loader, TokenDataset

tokens = TokenDataset("gs://bucket/tokens/", seq_len=1024, vocab_size=50_257)
assert_type(tokens[0], torch.Tensor)
for batch in Loader(tokens, 8, shuffle=True):
    assert_type(batch, torch.Tensor)
    print(batch[:, :-1], batch[:, 1:])

TokenDataset("gs://bucket/tokens/")  # wrong
TokenDataset("gs://bucket/tokens/", seq_len=1024, dtyp="uint32")  # wrong
TokenDataset("gs://bucket/tokens/", seq_len="1024")  # wrong
for batch in Loader(tokens, 8):
    batch.no_such_method()  # wrong
