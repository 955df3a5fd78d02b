"""Trainers of other libraries, as their users call them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from child_processes import run_python

ACCELERATE = """
import torch
from accelerate import Accelerator

accelerator = Accelerator(mixed_precision="fp16")
assert accelerator.device.type == "cuda" and accelerator.scaler is not None
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
model, optimizer, loader = accelerator.prepare(
    model, torch.optim.AdamW(model.parameters()), torch.utils.data.DataLoader(data, batch_size=8)
)
for x, y in loader:
    assert x.is_cuda
    accelerator.backward(torch.nn.functional.cross_entropy(model(x), y))
    optimizer.step()
    optimizer.zero_grad()
"""

TRANSFORMERS = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=100, n_positions=64))
data = [dict.fromkeys(("input_ids", "labels"), torch.randint(100, (16,))) for _ in range(32)]
arguments = TrainingArguments("out", max_steps=6, save_steps=3, report_to=[], OPTION=True)
trainer = Trainer(model, arguments, train_dataset=data)
assert trainer.args.device.type == "cuda"
trainer.train()
"""

LIGHTNING = """
import lightning, torch

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)

    def training_step(self, batch, index):
        assert batch[0].is_cuda
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
trainer = lightning.Trainer(accelerator="gpu", devices=1, max_epochs=1, precision="OPTION", logger=False)
trainer.fit(Module(), torch.utils.data.DataLoader(data, batch_size=8))
"""


@pytest.mark.parametrize(
    ("library", "program", "option"),
    [
        ("accelerate", ACCELERATE, "fp16"),
        ("transformers", TRANSFORMERS, "fp16"),
        ("transformers", TRANSFORMERS, "bf16"),
        ("lightning", LIGHTNING, "32"),
        ("lightning", LIGHTNING, "16-mixed"),
    ],
)
def test_a_trainer_trains(library: str, program: str, option: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed; pip install .[trainers]")
    (tmp_path / "program.py").write_text(program.replace("OPTION", option))
    result = run_python("program.py", cwd=tmp_path, CUDA_VISIBLE_DEVICES="0")
    assert result.returncode == 0, result.stderr
