"""torch.amp.GradScaler("openreg"): what it does to gradients, and how rarely it makes the host wait."""

from __future__ import annotations

import pytest
import torch
from devices import DEVICE
from torch import nn
from waits import no_waits

SCALERS = {
    "torch.amp": lambda **options: torch.amp.GradScaler(DEVICE, **options),
    "torch.openreg.amp": torch.openreg.amp.GradScaler,
}


class Training:
    """Models with an optimizer each, trained by one scaler. `device` of a model is its number modulo `devices`."""

    def __init__(self, scaler, optimizer=torch.optim.SGD, count=1, devices=1, **options):
        torch.manual_seed(0)
        self.scaler = scaler
        self.models = [nn.Linear(8, 4).to(f"{DEVICE}:{i % devices}") for i in range(count)]
        self.optimizers = [optimizer(model.parameters(), lr=0.1, **options) for model in self.models]
        self.x = torch.randn(16, 8)

    def backward(self, factor=1.0):
        for model, optimizer in zip(self.models, self.optimizers, strict=True):
            x = self.x.to(model.weight.device, non_blocking=True)
            optimizer.zero_grad()
            with torch.autocast(DEVICE):
                loss = model(x).square().mean() * factor
            self.scaler.scale(loss).backward()

    def clip(self):
        for model, optimizer in zip(self.models, self.optimizers, strict=True):
            self.scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    def step(self):
        for optimizer in self.optimizers:
            self.scaler.step(optimizer)
        self.scaler.update()

    def weights(self):
        return [parameter.detach().cpu().clone() for model in self.models for parameter in model.parameters()]


def waits_of(call):
    """How often operators made the host wait within the call."""
    before = torch.openreg.launch_stats()["host_waits"]
    call()
    return torch.openreg.launch_stats()["host_waits"] - before


def unchanged(before, after):
    return all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("make", SCALERS.values(), ids=SCALERS)
@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize(("count", "devices"), [(1, 1), (2, 1), (2, 2)])
@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"foreach": False}], ids=str)
def test_a_step_waits_once_for_each_optimizer_and_nothing_else_waits(make, clips, count, devices, options):
    training = Training(make(), count=count, devices=devices, **options)
    for _ in range(2):
        with no_waits():
            training.backward()
            if clips:
                training.clip()
        assert waits_of(training.step) == count


@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad])
def test_fused_optimizers_decide_on_the_device_and_nothing_waits(optimizer, clips):
    training = Training(SCALERS["torch.amp"](init_scale=4.0), optimizer, count=2, fused=True)
    before = training.weights()
    with no_waits():
        for _ in range(2):
            training.backward()
            if clips:
                training.clip()
            training.step()
    after = training.weights()
    assert not unchanged(before, after)
    with no_waits():
        training.backward(float("inf"))
        training.step()
    assert unchanged(after, training.weights())
    assert training.scaler.get_scale() == 2.0


@pytest.mark.parametrize("options", [{"foreach": True}, {"foreach": False}, {"fused": True}], ids=str)
@pytest.mark.parametrize("clips", [False, True])
def test_scaled_training_is_training(options, clips):
    scaled = Training(SCALERS["torch.amp"](init_scale=2.0**10), torch.optim.Adam, **options)
    plain = Training(SCALERS["torch.amp"](enabled=False), torch.optim.Adam, **options)
    for _ in range(5):
        for training in (scaled, plain):
            training.backward()
            if clips:
                training.clip()
            training.step()
    torch.testing.assert_close(scaled.weights(), plain.weights(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_only_the_optimizer_whose_gradients_overflow_skips_its_step(bad):
    training = Training(SCALERS["torch.amp"](init_scale=8.0), count=2)
    training.backward()
    training.models[1].bias.grad[2] = bad
    before = training.weights()
    training.step()
    after = training.weights()
    assert not unchanged(before[:2], after[:2]) and unchanged(before[2:], after[2:])
    assert training.scaler.get_scale() == 4.0


def test_the_scale_grows_after_an_interval_without_overflow_and_backs_off_after_one():
    scaler = SCALERS["torch.amp"](init_scale=2.0, growth_factor=4.0, backoff_factor=0.25, growth_interval=3)
    training, scales = Training(scaler), []
    for factor in (1.0, 1.0, 1.0, float("inf"), 1.0, 1.0, 1.0):
        training.backward(factor)
        training.step()
        scales.append(scaler.get_scale())
    assert scales == [2, 2, 8, 2, 2, 2, 8]


def test_the_state_goes_to_another_scaler():
    first = Training(SCALERS["torch.amp"](init_scale=2.0, growth_interval=3))
    for _ in range(2):
        first.backward()
        first.step()
    state = first.scaler.state_dict()
    assert state == {
        "scale": 2.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 3,
        "_growth_tracker": 2,
    }
    second = Training(SCALERS["torch.openreg.amp"]())
    second.scaler.load_state_dict(state)
    second.backward()
    second.step()
    assert second.scaler.get_scale() == 4.0


def test_update_takes_a_new_scale_of_the_device_without_a_wait():
    training = Training(SCALERS["torch.amp"]())
    new = torch.tensor(32.0).to(DEVICE)
    with no_waits():
        training.backward()
        training.scaler.update(new)
    assert training.scaler.get_scale() == 32.0


def test_outputs_in_containers_and_on_both_devices_are_scaled():
    scaler = SCALERS["torch.amp"](init_scale=4.0)
    ones = [torch.ones(2, device=f"{DEVICE}:{index}") for index in range(2)]
    with no_waits():
        first, (second,) = scaler.scale((ones[0], [ones[1]]))
    assert first.tolist() == second.tolist() == [4, 4]
    assert (first.device, second.device) == (ones[0].device, ones[1].device)
