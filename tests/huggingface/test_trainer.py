"""The Trainer of transformers, and Accelerate, save to a URL and resume from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.huggingface import CheckpointUploads, latest, resume
from testing.faultserver.client import FaultServer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
accelerate = pytest.importorskip("accelerate")

from headrace.huggingface import CheckpointCallback  # noqa: E402 - needs transformers


class Tiny(torch.nn.Module):  # type: ignore[misc, name-defined]
    """The smallest model that a Trainer takes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.linear = torch.nn.Linear(4, 1)

    def forward(self, x: Any, labels: Any) -> dict[str, Any]:
        return {"loss": ((self.linear(x)[:, 0] - labels) ** 2).mean()}


pytestmark = pytest.mark.slow  # transformers takes its time to be imported

DATA = [{"x": torch.full((4,), float(i % 5)), "labels": float(i)} for i in range(40)]


def trainer(folder: Path, steps: int, *callbacks: Any) -> Any:
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        save_steps=2,
        save_total_limit=1,
        per_device_train_batch_size=2,
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        lr_scheduler_type="constant",
        dataloader_pin_memory=False,
    )
    return transformers.Trainer(Tiny(), arguments, train_dataset=DATA, callbacks=list(callbacks))


def weights(trained: Any) -> Any:
    return trained.model.linear.weight.detach().clone()


def test_a_trainer_resumes_from_what_it_uploaded(gcs: headrace.Store, tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole", 8)
    whole.train()

    first = trainer(tmp_path / "first", 4, CheckpointCallback("run", store=gcs))
    first.train(resume_from_checkpoint=resume("run", tmp_path / "first", store=gcs))
    # Locally there is one, by save_total_limit; at the URL are both.
    assert [each.name for each in (tmp_path / "first").iterdir()] == ["checkpoint-4"]
    assert latest("run", store=gcs) == "gs://bucket/run/checkpoint-4"
    folders = {info.name.split("/")[1] for info in gcs.list("run/")}
    assert folders == {"checkpoint-2", "checkpoint-4"}

    # On another machine.
    second = trainer(tmp_path / "second", 8, CheckpointCallback("run", store=gcs, keep=1))
    folder = resume("run", tmp_path / "second", store=gcs)
    assert folder == str(tmp_path / "second" / "checkpoint-4")
    second.train(resume_from_checkpoint=folder)
    assert second.state.global_step == 8
    assert torch.equal(weights(second), weights(whole))
    folders = {info.name.split("/")[1] for info in gcs.list("run/")}
    assert folders == {"checkpoint-8"}


def test_an_upload_that_fails_is_an_error_of_the_training(
    server: FaultServer, gcs: headrace.Store, tmp_path: Path
) -> None:
    server.faults([{"match": {"kind": "upload"}, "action": {"status": 403}}])
    with pytest.raises(headrace.PermissionDeniedError, match=r"checkpoint-2"):
        trainer(tmp_path, 4, CheckpointCallback("run", store=gcs)).train()
    server.faults([])
    assert latest("run", store=gcs) is None


@pytest.mark.parametrize("variant", [None, "fp16"])
def test_transformers_reads_a_model_that_headrace_saved(
    variant: str | None, tmp_path: Path
) -> None:
    config = transformers.LlamaConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=20,
    )
    model = transformers.LlamaForCausalLM(config)
    config.save_pretrained(tmp_path)
    file = "model.safetensors" if variant is None else f"model.{variant}.safetensors"
    for options in ({}, {"max_shard_bytes": 2000}):
        headrace.checkpoint.save(model.state_dict(), tmp_path / file, **options)
        found = transformers.LlamaForCausalLM.from_pretrained(tmp_path, variant=variant)
        for name, tensor in model.state_dict().items():
            assert torch.equal(found.state_dict()[name], tensor), name
        (tmp_path / file).unlink(missing_ok=True)
    # And the other way round.
    model.save_pretrained(tmp_path / "theirs", max_shard_size="2KB", variant=variant)
    loaded = headrace.checkpoint.load(tmp_path / "theirs" / file)
    assert set(loaded) == set(model.state_dict())
    assert all(torch.equal(loaded[name], each) for name, each in model.state_dict().items())
    index = headrace.checkpoint.latest(tmp_path / "theirs")
    assert index is not None
    assert index.endswith(".json")
    assert set(headrace.checkpoint.load(index)) == set(loaded)


def test_accelerate_resumes_from_what_was_uploaded(gcs: headrace.Store, tmp_path: Path) -> None:
    def made() -> tuple[Any, Any]:
        accelerator = accelerate.Accelerator(cpu=True)
        model = Tiny()
        return accelerator, accelerator.prepare(
            model, torch.optim.AdamW(model.parameters(), lr=0.1)
        )

    accelerator, (model, optimizer) = made()
    with CheckpointUploads("run", store=gcs) as uploads:
        for step in (1, 2):
            accelerator.backward(model(torch.ones(2, 4), torch.zeros(2))["loss"])
            optimizer.step()
            accelerator.save_state(str(tmp_path / "out" / f"checkpoint-{step}"))
            uploads.submit(tmp_path / "out" / f"checkpoint-{step}")
    expected = model.linear.weight.detach().clone()

    accelerator, (model, optimizer) = made()
    assert not torch.equal(model.linear.weight, expected)
    folder = resume("run", tmp_path / "new", store=gcs)
    assert folder is not None
    accelerator.load_state(folder)
    assert torch.equal(model.linear.weight, expected)


def test_without_transformers_the_callback_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['transformers'] = None\n"
        "import headrace.huggingface\n"
        "headrace.huggingface.CheckpointUploads\n"
        "try: headrace.huggingface.CheckpointCallback\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=100
    )
    assert "pip install transformers" in done.stdout
