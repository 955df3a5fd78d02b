"""The networks of test_models.py, compiled by Inductor: results and gradients are those of its programs for the CPU."""

from __future__ import annotations

import copy

import pytest
import torch
from devices import DEVICE
from test_models import (
    DECODER_MASKS,
    ENCODER_MASKS,
    GPT,
    NORMALISATIONS,
    UPS,
    Packed,
    UNet,
    assert_equal_to_the_cpus,
    encoder,
    forward_and_backward,
    to,
    trained_step,
)
from torch import nn
from torch.testing import assert_close

pytestmark = [pytest.mark.any_device, pytest.mark.full, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def _nothing_is_compiled_yet():
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def assert_compiled_equals_the_cpu(module, *arguments, **keywords):
    on_cpu = torch.compile(copy.deepcopy(module))
    expected = forward_and_backward(on_cpu, *copy.deepcopy((arguments, keywords)))
    compiled = torch.compile(copy.deepcopy(module).to(DEVICE))
    assert_equal_to_the_cpus(forward_and_backward(compiled, *to(DEVICE, (arguments, keywords))), expected)


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("up", UPS)
def test_unet(up, normalisation):
    assert_compiled_equals_the_cpu(UNet(UPS[up], NORMALISATIONS[normalisation]), torch.randn(2, 1, 16, 16))


def test_gpt_trains():
    model, tokens = GPT(), torch.randint(31, (3, 12))
    expected = trained_step(torch.compile(copy.deepcopy(model)), tokens)
    compiled = torch.compile(model.to(DEVICE))
    assert_close(to("cpu", trained_step(compiled, tokens.to(DEVICE))), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("masks", ENCODER_MASKS)
def test_transformer_encoder(masks):
    assert_compiled_equals_the_cpu(encoder(enable_nested_tensor=False), torch.randn(2, 5, 16), **ENCODER_MASKS[masks])


@pytest.mark.parametrize("masks", DECODER_MASKS)
def test_transformer_decoder(masks):
    layer = nn.TransformerDecoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
    decoder = nn.TransformerDecoder(layer, 2, norm=nn.LayerNorm(16))
    assert_compiled_equals_the_cpu(decoder, torch.randn(2, 5, 16), torch.randn(2, 6, 16), **DECODER_MASKS[masks])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_packed_sequences(kind):
    recurrent, state = kind(5, 7, num_layers=2, bidirectional=True, batch_first=True), torch.randn(4, 3, 7)
    state = (state, state.sin()) if kind is nn.LSTM else state
    assert_compiled_equals_the_cpu(Packed(recurrent, [4, 3, 1]), torch.randn(3, 4, 5), state)
