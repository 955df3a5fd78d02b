"""Small models and the less simple layers: forward and backward equal the CPU's, in float32.

The tables of test_networks.py have layers that take tensors only. Here is what is put together from them, and layers with
options that change which operators run. Except where a test says why, no operator makes the host wait: a wait would raise
an error.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves, tree_map_only


@contextmanager
def no_waits() -> Iterator[None]:
    """Within it, an operator that makes the host wait for the device raises an error."""
    torch.openreg.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.openreg.set_sync_debug_mode("default")


def to(device, values):
    """All tensors in `values`, on the device."""
    return tree_map_only(torch.Tensor, lambda t: t.to(device), values)


def forward_and_backward(module, arguments, keywords):
    """Tensors that `module` returns, and gradients of its parameters and of those floating arguments that want them."""
    outputs = [leaf for leaf in tree_leaves(module(*arguments, **keywords)) if isinstance(leaf, torch.Tensor)]
    differentiable = [o for o in outputs if o.requires_grad]
    weights = [torch.arange(o.numel(), device=o.device, dtype=o.dtype).reshape(o.shape).sin() for o in differentiable]
    torch.autograd.backward(differentiable, weights)
    leaves = [t for t in tree_leaves((arguments, keywords)) if isinstance(t, torch.Tensor) and t.requires_grad]
    return [o.detach() for o in outputs] + [t.grad for t in itertools.chain(leaves, module.parameters())]


def assert_equals_the_cpu(module, *arguments, **keywords):
    """`module`, on the device, computes and differentiates as on the CPU, and nobody waits. Arguments are on the CPU."""

    def run(device):
        moved = copy.deepcopy(module).to(device)
        inputs = to(device, (arguments, keywords))
        for tensor in tree_leaves(inputs):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                tensor.detach_()
                tensor.grad = None
                tensor.requires_grad_()
        if device == "cpu":
            return forward_and_backward(moved, *inputs)
        with no_waits():
            return forward_and_backward(moved, *inputs)

    got, expected = run("openreg"), run("cpu")
    assert len(got) > sum(1 for _ in module.parameters())
    for g, e in zip(got, expected, strict=True):
        assert (g is None) == (e is None)
        if e is not None:
            assert_close(g.cpu(), e, rtol=1e-4, atol=1e-5)


class UNet(nn.Module):
    """Halves the image twice and doubles it again; each level also sees what the way down had at its size."""

    def __init__(self, up, normalisation) -> None:
        super().__init__()
        self.down = nn.ModuleList([self.block(1, 4, normalisation), self.block(4, 8, normalisation)])
        self.bottom = self.block(8, 8, normalisation)
        self.up = nn.ModuleList([up(8), up(4)])
        self.merge = nn.ModuleList([self.block(16, 4, normalisation), self.block(8, 4, normalisation)])
        self.head = nn.Conv2d(4, 2, 1)

    @staticmethod
    def block(inputs, outputs, normalisation):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), normalisation(outputs), nn.LeakyReLU(0.1)
        )

    def forward(self, x):
        skips = []
        for down in self.down:
            x = down(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.bottom(x)
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([up(x), skips.pop()], dim=1))
        return self.head(x)


UPS = {
    "transposed convolution": lambda channels: nn.ConvTranspose2d(channels, channels, 2, stride=2),
    "nearest": lambda channels: nn.Upsample(scale_factor=2),
    "bilinear": lambda channels: nn.Upsample(scale_factor=2, mode="bilinear"),
}
NORMALISATIONS = {"batch": nn.BatchNorm2d, "group": lambda channels: nn.GroupNorm(2, channels)}


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("up", UPS)
def test_unet(up, normalisation):
    torch.manual_seed(0)
    assert_equals_the_cpu(UNet(UPS[up], NORMALISATIONS[normalisation]), torch.randn(2, 1, 16, 16))


class Block(nn.Module):
    """One layer of a GPT: attention to what came before, then two linear layers, each added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, past=None):
        """The layer's output, and keys and values: `past`, those of earlier tokens, and those of x."""
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        if past is not None:  # x is one token, which may look at all
            k, v = (torch.cat(pair, dim=2) for pair in zip(past, (k, v), strict=True))
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.projection(attention.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x)), (k, v)


class GPT(nn.Module):
    """Tokens [N, T] to scores of the next token [N, T, vocabulary]; input and output share their embedding."""

    def __init__(self, vocabulary=31, width=16, heads=2, layers=2, context=24) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens, cache=None):
        """Scores, and each layer's keys and values, which a call with the next token takes as `cache`."""
        start = 0 if cache is None else cache[0][0].shape[2]
        positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(positions)
        grown = []
        for block, past in zip(self.blocks, cache or [None] * len(self.blocks), strict=True):
            x, keys_and_values = block(x, past)
            grown.append(keys_and_values)
        return self.head(self.norm(x)), grown


def trained_step(model, tokens, optimizer_class):
    """Loss, gradients and weights of one training step."""
    optimizer = optimizer_class(model.parameters(), lr=0.01)
    scores, _ = model(tokens[:, :-1])
    loss = F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    parameters = dict(model.named_parameters())
    gradients = {name: p.grad for name, p in parameters.items()}
    return {"loss": loss.detach(), "gradients": gradients, "weights": {n: p.detach() for n, p in parameters.items()}}


# Not Adam: it divides each gradient by its size, so those that are zero but for rounding (the bias of the keys) become
# steps of any sign.
@pytest.mark.parametrize("optimizer_class", [torch.optim.SGD])
def test_gpt_trains(optimizer_class):
    torch.manual_seed(0)
    model, tokens = GPT(), torch.randint(31, (3, 12))
    expected = trained_step(copy.deepcopy(model), tokens, optimizer_class)
    on_device = model.to("openreg")
    tokens = tokens.to("openreg")
    assert on_device.head.weight is on_device.tokens.weight
    with no_waits():
        got = trained_step(on_device, tokens, optimizer_class)
    assert_close(to("cpu", got), expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def generate(model, prompt, count, use_cache):
    """`count` tokens after the prompt, each the likeliest, as a tensor [N, count] on the model's device."""
    tokens, cache, chosen = prompt, None, []
    for _ in range(count):
        scores, grown = model(tokens, cache)
        best = scores[:, -1:].argmax(dim=-1)
        chosen.append(best)
        tokens, cache = (best, grown) if use_cache else (torch.cat([tokens, best], dim=1), None)
    return torch.cat(chosen, dim=1)


def test_gpt_generates_the_cpus_tokens_with_a_cache_and_without():
    torch.manual_seed(0)
    model, prompt = GPT().eval(), torch.randint(31, (3, 4))
    expected = generate(model, prompt, 16, use_cache=False)
    assert len(expected.unique()) > 3  # a model that says one thing only would prove little
    model.to("openreg")
    prompt = prompt.to("openreg")
    with no_waits():  # the tokens stay on the device until the end
        got = [generate(model, prompt, 16, use_cache) for use_cache in (True, False)]
    for tokens in got:
        assert tokens.tolist() == expected.tolist()


class Bag(nn.Module):
    """An EmbeddingBag whose other arguments than the indices are given by name."""

    def __init__(self, **options) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(10, 3, **options)

    def forward(self, indices, **keywords):
        return self.bag(indices, **keywords)


@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"scale_grad_by_freq": True}], ids=str)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag(mode, options):
    if mode == "max" and options.get("scale_grad_by_freq"):
        pytest.skip("the CPU refuses it")
    torch.manual_seed(0)
    bag = nn.EmbeddingBag(10, 3, mode=mode, **options)
    indices = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9])
    assert_equals_the_cpu(bag, indices.reshape(2, 4))
    assert_equals_the_cpu(bag, indices, torch.tensor([0, 3, 3, 5]))  # the second bag is empty
