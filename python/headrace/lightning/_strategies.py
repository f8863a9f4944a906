"""Lightning's strategies for sharded models, with checkpoints at any URL."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save, save
from torch.distributed.fsdp import FullyShardedDataParallel, OptimStateKeyType, StateDictType

from headrace import InvalidArgumentError, Store, TimeoutOptions
from headrace._base.errors import portable
from headrace._base.options import is_weights_only
from headrace._store.keywords import STORE_KEYWORDS, is_moved, refuse_keywords
from headrace.checkpoint._distributed import DistributedReader
from headrace.fsspec import register
from headrace.lightning import _packages
from headrace.lightning._checkpoint_io import CheckpointIO
from headrace.lightning._files import Files

__all__ = ["FSDPStrategy", "ModelParallelStrategy"]

_ModelParallelStrategy: Any = _packages.pytorch("strategies").ModelParallelStrategy
_FSDPStrategy: Any = _packages.pytorch("strategies").FSDPStrategy
_TrainerFn = _packages.pytorch("trainer.states").TrainerFn

# Where Lightning keeps what is neither model nor optimizer.
_META = "meta.pt"

# Lightning's strategies have a timeout of their own.
_STORE_KEYWORDS = STORE_KEYWORDS - {"timeout"}


class _AtAnyUrl:
    """What both strategies do alike: their own classes put paths through pathlib."""

    # Of Lightning's strategies.
    broadcast: Callable[[Any], Any]
    is_global_zero: bool
    checkpoint_io: Any
    lightning_module: Any
    model: Any
    optimizers: list[Any]

    # What the model is called in a sharded checkpoint.
    _model_key: str

    def __init__(
        self,
        *args: Any,
        use_async: bool = False,
        store: Store | None = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(kwargs.get("timeout"), TimeoutOptions):
            raise InvalidArgumentError(
                "timeout= of a strategy is Lightning's, of the process group: give the store's by "
                "store=headrace.Store(url, timeout=...)"
            )
        moved = filter(is_moved, kwargs)
        refuse_keywords(type(self).__name__, moved, of=_AtAnyUrl.__init__)
        options = {name: kwargs.pop(name) for name in _STORE_KEYWORDS & kwargs.keys()}
        super().__init__(*args, **kwargs)
        self._use_async = use_async
        self._files = Files(store, options)
        self._group: Any = None
        self._under_way: Any = None
        self._removals: list[str | os.PathLike[str]] = []
        register()
        if getattr(self, "_checkpoint_io", None) is None:
            self._checkpoint_io = CheckpointIO(store=store, **options)

    def save_checkpoint(
        self,
        checkpoint: dict[str, Any],
        filepath: str | os.PathLike[str],
        storage_options: Any = None,
    ) -> None:
        """Save `checkpoint` at `filepath`, a URL or a local path.

        Raises:
            Exception: the error of an asynchronous save before this one.
        """
        if storage_options is not None:
            raise InvalidArgumentError(
                "options of the store belong to the strategy: "
                f"{type(self).__name__}(endpoint=...), or store=headrace.Store(...)"
            )
        # All ranks save to one place, whatever their clocks make of its name.
        url = os.fspath(self.broadcast(os.fspath(filepath)))
        self._finish_saves()
        if not self._is_sharded():
            self._by_rank_zero(lambda: self.checkpoint_io.save_checkpoint(checkpoint, url))
            return
        state = {self._model_key: checkpoint.pop("state_dict")}
        for number, optimizer in enumerate(checkpoint.pop("optimizer_states", [])):
            state[f"optimizer_{number}"] = optimizer
        writer = self._files.sharded_writer(url)
        self._by_rank_zero(lambda: writer.attach({_META: _saved(checkpoint)}))
        if not self._use_async:
            save(state, storage_writer=writer)
            return
        if self._group is None and dist.is_initialized():
            # Training uses its own group meanwhile, and saves need one that reaches the CPU.
            self._group = dist.new_group(backend="gloo")
        self._under_way = async_save(state, storage_writer=writer, process_group=self._group)

    def load_checkpoint(
        self, checkpoint_path: str | os.PathLike[str], weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load the checkpoint at `checkpoint_path` into model and optimizers; return the rest.

        Raises:
            NotFoundError: there is none.
            HeadraceError: it could not be read; the same on every rank.
            InvalidArgumentError: it holds the states of another number of optimizers.
        """
        url = os.fspath(self.broadcast(os.fspath(checkpoint_path)))
        self._finish_saves()
        if self._files.holds_sharded(url):
            reader = self._files.sharded_reader(url)
            self._load_sharded(reader)
            meta = io.BytesIO(reader.attachment(_META))
            rest: dict[str, Any] = torch.load(meta, weights_only=is_weights_only(weights_only))
            return rest
        return self._load_whole(url, weights_only)

    def _load_whole(self, url: str, weights_only: bool | None) -> dict[str, Any]:
        """Load a checkpoint of one object; return what is neither model nor optimizer.

        Rank 0 reads it, straight into tensors, and sends the others their parts, tensor by tensor.
        Lightning's own way would have every rank map a local file.
        """
        read = self._by_rank_zero(
            lambda: self.checkpoint_io.load_checkpoint(
                url, map_location="cpu", weights_only=weights_only
            )
        )
        checkpoint: dict[str, Any] = read if self.is_global_zero else {}
        state, optimizer_states = checkpoint.pop("state_dict", {}), None
        if checkpoint.get("optimizer_states") is not None:
            optimizer_states = checkpoint.pop("optimizer_states")
        has_optimizers = self.broadcast(optimizer_states is not None)
        count = self.broadcast(len(optimizer_states or ()))
        rest: dict[str, Any] = self.broadcast(checkpoint)
        set_model_state_dict(
            self.model,
            state,
            options=StateDictOptions(
                full_state_dict=True,
                broadcast_from_rank0=True,
                strict=self.lightning_module.strict_loading,
            ),
        )
        del state
        if not has_optimizers or self.lightning_module.trainer.state.fn != _TrainerFn.FITTING:
            return rest
        if count != len(self.optimizers):
            raise InvalidArgumentError(
                f"{url} holds the states of {count} optimizers, and there are "
                f"{len(self.optimizers)}: resume with as many as it was saved with"
            )
        for number, optimizer in enumerate(self.optimizers):
            of_optimizer = optimizer_states[number] if optimizer_states else {}
            self._load_whole_optimizer(optimizer, of_optimizer)
            if optimizer_states:
                optimizer_states[number] = None
        return rest

    def _load_whole_optimizer(self, optimizer: Any, state: dict[str, Any]) -> None:
        """Load the state of an optimizer, which rank 0 has, on all ranks."""
        if state and all(isinstance(key, int) for key in state["state"]) and state["state"]:
            # Of a run without sharding: parameters have numbers there.
            state = FullyShardedDataParallel.rekey_optim_state_dict(
                state, OptimStateKeyType.PARAM_NAME, self.model
            )
        set_optimizer_state_dict(
            self.model,
            optimizer,
            state,
            options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
        )

    def remove_checkpoint(self, filepath: str | os.PathLike[str]) -> None:
        """Delete a checkpoint; while a save is under way, when that is complete.

        A newer checkpoint that is not complete yet is no reason to delete an older one.

        Raises:
            HeadraceError: something of it could not be deleted.
        """
        if self._under_way is not None:
            self._removals.append(filepath)
        elif self.is_global_zero:
            self.checkpoint_io.remove_checkpoint(filepath)

    def teardown(self) -> None:
        """Wait for the save that is under way, if any.

        Raises:
            Exception: its error.
        """
        try:
            self._finish_saves()
        finally:
            self._group = None
            super().teardown()  # type: ignore[misc]

    def _finish_saves(self) -> None:
        under_way, self._under_way = self._under_way, None
        removals, self._removals = self._removals, []
        if under_way is not None:
            under_way.result()
        if self.is_global_zero:
            for path in removals:
                self.checkpoint_io.remove_checkpoint(path)

    def _by_rank_zero(self, do: Callable[[], Any]) -> Any:
        """Return what rank 0 has made, there; every rank raises its error.

        The other ranks wait for rank 0 in what comes next, and would wait forever.
        """
        made: Any = None
        error: BaseException | None = None
        if self.is_global_zero:
            try:
                made = do()
            except BaseException as raised:
                error = raised
        told = self.broadcast(None if error is None else portable(error))
        if told is not None:
            raise told if error is None else error
        return made

    def _is_sharded(self) -> bool:
        raise NotImplementedError

    def _load_sharded(self, reader: DistributedReader) -> None:
        raise NotImplementedError


def _saved(checkpoint: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    torch.save(checkpoint, stream)
    return stream.getvalue()


class ModelParallelStrategy(_AtAnyUrl, _ModelParallelStrategy):  # type: ignore[misc]
    """Lightning's ``ModelParallelStrategy`` with checkpoints at any URL.

    Args:
        args: Lightning's own.
        use_async: save in the background; training waits for the copy to host memory only. The
            error of a save is raised by the next save or load, and at the latest by ``teardown``.
        store: where the checkpoints are, such as ``headrace.Store("gs://bucket")``; default: the
            store of each URL. The URLs that Lightning is given lie below it.
        kwargs: Lightning's own, and, if `store` is not given, those of `headrace.Store`
            (``endpoint=...``) but for ``timeout``, which is Lightning's here.

    Raises:
        InvalidArgumentError: there are both `store` and options of one.

    Examples:
        >>> strategy = headrace.lightning.ModelParallelStrategy(use_async=True)
        >>> trainer = Trainer(strategy=strategy)  # doctest: +SKIP
    """

    _model_key = "state_dict"

    def _is_sharded(self) -> bool:
        return bool(self._save_distributed_checkpoint)

    def _load_sharded(self, reader: DistributedReader) -> None:
        state = {self._model_key: get_model_state_dict(self.model)}
        load(state, storage_reader=reader)
        self.model.load_state_dict(
            state[self._model_key], strict=self.lightning_module.strict_loading
        )
        for number, optimizer in enumerate(self.optimizers):
            key = f"optimizer_{number}"
            of_optimizer = {key: get_optimizer_state_dict(self.model, optimizer)}
            load(of_optimizer, storage_reader=reader)
            set_optimizer_state_dict(
                self.model,
                optimizer,
                optim_state_dict=of_optimizer[key],
                options=StateDictOptions(cpu_offload=True),
            )


class FSDPStrategy(_AtAnyUrl, _FSDPStrategy):  # type: ignore[misc]
    """Lightning's ``FSDPStrategy`` with checkpoints at any URL.

    With ``state_dict_type="sharded"`` each rank saves its part by `DistributedWriter`; with
    ``"full"`` rank 0 saves one object.

    Args:
        args: Lightning's own.
        use_async: save sharded checkpoints in the background; training waits for the copy to host
            memory only. The error of a save is raised by the next save or load, and at the latest
            by ``teardown``.
        store: where the checkpoints are, such as ``headrace.Store("gs://bucket")``; default: the
            store of each URL. The URLs that Lightning is given lie below it.
        kwargs: Lightning's own, and, if `store` is not given, those of `headrace.Store`
            (``endpoint=...``) but for ``timeout``, which is Lightning's here.

    Raises:
        InvalidArgumentError: there are both `store` and options of one.

    Examples:
        >>> strategy = headrace.lightning.FSDPStrategy(use_async=True)
        >>> trainer = Trainer(strategy=strategy)  # doctest: +SKIP
    """

    _model_key = "model"

    def _is_sharded(self) -> bool:
        return bool(self._state_dict_type == "sharded")

    def _load_sharded(self, reader: DistributedReader) -> None:
        from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict

        sharded = FullyShardedDataParallel.state_dict_type(
            self.model, StateDictType.SHARDED_STATE_DICT
        )
        with sharded:
            state = {self._model_key: self.model.state_dict()}
            load(state, storage_reader=reader)
            self.model.load_state_dict(
                state[self._model_key], strict=self.lightning_module.strict_loading
            )
            if self.lightning_module.trainer.state.fn != _TrainerFn.FITTING:
                return
            for number, optimizer in enumerate(self.optimizers):
                key = f"optimizer_{number}"
                loaded = load_sharded_optimizer_state_dict(
                    model_state_dict=state[self._model_key],
                    optimizer_key=key,
                    storage_reader=reader,
                )
                # An optimizer without a state, as plain SGD, has left nothing under that name.
                of_optimizer = {"state": {}, **loaded[key]}
                optimizer.load_state_dict(
                    FullyShardedDataParallel.optim_state_dict_to_load(
                        optim_state_dict=of_optimizer, model=self.model, optim=optimizer
                    )
                )
