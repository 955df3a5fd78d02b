"""The Trainer of transformers trains on the device as docs/trainers.md says, and as one process does."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from devices import DEVICE
from trainers import BATCH, documented, documented_names, forget_accelerator, needs, ranks, run_program, run_trainers

pytestmark = needs("transformers")


def language_model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, **sizes))


def sequences() -> list[dict[str, torch.Tensor]]:
    torch.manual_seed(1)
    tokens = (torch.randint(64, (64, 1)) + 3 * torch.arange(16)) % 64
    return [{"input_ids": each, "labels": each} for each in tokens]


def train(folder: str, **how: Any) -> dict[str, Any]:
    """Losses of two epochs, of the second again from a checkpoint, and the loss of an evaluation."""
    from transformers import Trainer, TrainingArguments

    if ranks() > 1:
        documented_names("accelerate")["use_openreg"]()
        how["accelerator_config"] = {"use_configured_state": True}
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=BATCH // ranks(),
        per_device_eval_batch_size=BATCH // ranks(),
        learning_rate=1e-2,
        num_train_epochs=2,
        data_seed=0,  # else the order depends on the random state at the start
        logging_steps=1,
        save_strategy="epoch",
        report_to=[],
        disable_tqdm=True,
        **how,
    )

    def losses(**resume: Any) -> list[float]:
        trainer.train(**resume)
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

    trainer = Trainer(language_model(), arguments, train_dataset=sequences(), eval_dataset=sequences())
    result = {
        "losses": losses(),
        "class": type(trainer.model_wrapped).__name__,
        "device": arguments.device.type,
        "evaluated": trainer.evaluate()["eval_loss"],
    }
    trainer = Trainer(language_model(), arguments, train_dataset=sequences())
    result["resumed"] = losses(resume_from_checkpoint=f"{folder}/checkpoint-{len(sequences()) // BATCH}")
    forget_accelerator()
    return result


def alone(rank: int) -> dict[str, Any]:
    return train("alone")


def ddp(rank: int) -> dict[str, Any]:
    return train("ddp")


def fsdp(rank: int, folder: str = "fsdp", **how: Any) -> dict[str, Any]:
    return train(folder, fsdp=True, fsdp_config={"transformer_layer_cls_to_wrap": "LlamaDecoderLayer", **how})


def fsdp_saves_shards(rank: int) -> dict[str, Any]:
    return fsdp(rank, "fsdp_saves_shards", state_dict_type="SHARDED_STATE_DICT")


def generation(rank: int) -> tuple[list[Any], list[Any]]:
    """What a model that is loaded onto the device says, and what it says on the CPU."""
    from transformers import LlamaForCausalLM

    language_model().save_pretrained("tiny")
    said = []
    for device in (DEVICE, "cpu"):
        net = LlamaForCausalLM.from_pretrained("tiny", device_map=device)
        tokens = torch.arange(8, device=device)[None]
        said.append(net.generate(tokens, max_new_tokens=8, do_sample=False).tolist())
    return said[0], said[1]


WAYS = {
    ddp: "DistributedDataParallel",
    fsdp: "FSDPLlamaForCausalLM",
    fsdp_saves_shards: "FSDPLlamaForCausalLM",
}


@pytest.fixture(scope="module")
def of_one(tmp_path_factory):
    setting = {"ACCELERATE_TORCH_DEVICE": DEVICE}
    return run_trainers(1, tmp_path_factory.mktemp("one"), alone, generation, **setting)[0]


@pytest.fixture(scope="module")
def of_two(tmp_path_factory):
    return run_trainers(2, tmp_path_factory.mktemp("two"), *WAYS)


@pytest.fixture(scope="module")
def of_two_in_bfloat16(tmp_path_factory):
    return run_trainers(2, tmp_path_factory.mktemp("two"), ddp, fsdp, ACCELERATE_MIXED_PRECISION="bf16")


def compare(results: list[dict[str, Any]], way: Any, expected: dict[str, Any], tolerance: float) -> None:
    assert expected["device"] == DEVICE
    assert expected["losses"][-1] < expected["losses"][0] * 0.7
    for result in (each[way.__name__] for each in results):
        assert (result["class"], result["device"]) == (WAYS[way], DEVICE)
        assert result["losses"] == pytest.approx(expected["losses"], rel=tolerance)
        assert result["evaluated"] == pytest.approx(expected["evaluated"], rel=tolerance)


@pytest.mark.parametrize("way", WAYS)
def test_two_processes_train_as_one(of_one, of_two, way):
    compare(of_two, way, of_one["alone"], 1e-4)


@pytest.mark.parametrize("way", [ddp, fsdp])
def test_two_processes_train_in_bfloat16_as_one_without(of_one, of_two_in_bfloat16, way):
    compare(of_two_in_bfloat16, way, of_one["alone"], 3e-2)


@pytest.mark.parametrize("way", WAYS)
def test_a_checkpoint_resumes(of_two, way):
    for result in (each[way.__name__] for each in of_two):
        assert result["resumed"] == pytest.approx(result["losses"], rel=1e-6)


def test_a_loaded_model_generates_what_it_does_on_the_cpu(of_one):
    on_device, on_cpu = of_one["generation"]
    assert on_device == on_cpu


@pytest.mark.any_device
def test_the_documented_program_learns(tmp_path):
    pieces = [documented("accelerate")[0], *documented("transformers")]
    report = run_program(tmp_path, pieces, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    losses = [float(loss) for loss in re.findall(r"'loss': '([0-9.]+)'", report)]
    assert len(losses) == 4
    assert losses[-1] < losses[0] * 0.8
    assert (tmp_path / "output/model.safetensors").exists()
