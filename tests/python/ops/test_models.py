"""Small models and the less simple layers: forward and backward equal the CPU's, in float32.

Layers that take tensors only are compared by the conformance kit (`checks/modules.py`). Here is what is put together
from them, and layers with masks, lengths and options that change which operators run. Except where a test says why, no
operator makes the host wait: a wait would raise an error.
"""

from __future__ import annotations

import copy
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from devices import DEVICE
from torch import nn
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves, tree_map_only
from waits import no_waits

pytestmark = pytest.mark.any_device


def to(device, values):
    """All tensors in `values`, on the device."""
    return tree_map_only(torch.Tensor, lambda t: t.to(device), values)


def tensors_in(values):
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def forward_and_backward(module, arguments, keywords):
    """The tensors that `module` returns, and gradients of its parameters and of positional arguments of floats."""
    leaves = [x.requires_grad_() for x in tensors_in(arguments) if x.is_floating_point()]
    outputs = tensors_in(module(*arguments, **keywords))
    differentiable = [o for o in outputs if o.requires_grad]
    weights = [torch.arange(o.numel(), device=o.device, dtype=o.dtype).reshape(o.shape).sin() for o in differentiable]
    torch.autograd.backward(differentiable, weights)
    return [o.detach() for o in outputs] + [leaf.grad for leaf in [*leaves, *module.parameters()]]


def assert_equal_to_the_cpus(got, expected):
    for g, e in zip(got, expected, strict=True):
        assert (g is None) == (e is None)
        if e is not None:
            assert_close(g.cpu(), e, rtol=1e-4, atol=1e-5)


def assert_equals_the_cpu(module, *arguments, may_wait=False, **keywords):
    """`module` computes and differentiates on the device as on the CPU, without waits. Arguments are on the CPU."""
    expected = forward_and_backward(copy.deepcopy(module), *copy.deepcopy((arguments, keywords)))
    assert expected[0].isfinite().all()
    on_device = copy.deepcopy(module).to(DEVICE)
    inputs = to(DEVICE, (arguments, keywords))
    with nullcontext() if may_wait else no_waits():
        got = forward_and_backward(on_device, *inputs)
    assert_equal_to_the_cpus(got, expected)


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


def trained_step(model, tokens):
    """Loss, gradients and weights of one training step.

    Not by Adam: it divides a gradient by its size, and so makes steps of any sign of those that are zero but for
    rounding, as is that of the keys' bias.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scores, _ = model(tokens[:, :-1])
    loss = F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    parameters = dict(model.named_parameters())
    gradients = {name: p.grad for name, p in parameters.items()}
    return {"loss": loss.detach(), "gradients": gradients, "weights": {n: p.detach() for n, p in parameters.items()}}


def test_gpt_trains():
    torch.manual_seed(0)
    model, tokens = GPT(), torch.randint(31, (3, 12))
    expected = trained_step(copy.deepcopy(model), tokens)
    model.to(DEVICE)
    tokens = tokens.to(DEVICE)
    assert model.head.weight is model.tokens.weight
    with no_waits():
        got = trained_step(model, tokens)
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
    model.to(DEVICE)
    prompt = prompt.to(DEVICE)
    with no_waits():  # the tokens stay on the device until the end
        got = [generate(model, prompt, 16, use_cache) for use_cache in (True, False)]
    for tokens in got:
        assert tokens.tolist() == expected.tolist()


# CTC makes the host wait: it is the host that reads the lengths, and sizes of intermediate results depend on them.
INPUT_LENGTHS, TARGET_LENGTHS = torch.tensor([12, 10, 2]), torch.tensor([4, 2, 3])
LENGTHS = {
    "on the device": lambda lengths: lengths.to(DEVICE),
    "on the device, int32": lambda lengths: lengths.int().to(DEVICE),
    "on the CPU": lambda lengths: lengths,
    "as integers": lambda lengths: tuple(lengths.tolist()),
}


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("targets", ["padded", "concatenated"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_ctc_loss(reduction, targets, lengths):
    def run(device, lengths):
        x = scores.detach().to(device).requires_grad_()
        # The third target does not fit into its input: an infinite loss, which is to count as zero.
        loss = nn.CTCLoss(reduction=reduction, zero_infinity=True)(
            x.log_softmax(-1), labels.to(device), lengths(INPUT_LENGTHS), lengths(TARGET_LENGTHS)
        )
        loss.sum().backward()
        return loss.detach(), x.grad

    torch.manual_seed(0)
    scores, labels = torch.randn(12, 3, 6), torch.randint(1, 6, (3, 4))
    if targets == "concatenated":
        labels = torch.cat([row[:length] for row, length in zip(labels, TARGET_LENGTHS, strict=True)])
    expected = run("cpu", LENGTHS["on the CPU"])
    assert expected[0].isfinite().all() and expected[1][:, 0].count_nonzero()
    assert_equal_to_the_cpus(run(DEVICE, LENGTHS[lengths]), expected)


def test_ctc_loss_is_infinite_where_a_target_does_not_fit():
    scores, labels = torch.zeros(2, 1, 4, device=DEVICE), torch.tensor([[1, 1, 2]], device=DEVICE)
    loss = F.ctc_loss(scores.log_softmax(-1), labels, (2,), (3,), reduction="none")
    assert loss.tolist() == [float("inf")]


def test_ctc_loss_refuses_wrong_lengths_at_the_call():
    scores, labels = torch.zeros(2, 1, 4, device=DEVICE), torch.ones(1, 3, dtype=torch.int64, device=DEVICE)
    with pytest.raises(RuntimeError, match="Expected input_lengths to have value at most 2, but got value 3"):
        F.ctc_loss(scores, labels, torch.tensor([3], device=DEVICE), torch.tensor([1], device=DEVICE))


# Masks. True and -inf mean: not attended to. No row may be masked as a whole: its result would be NaN.
CAUSAL = torch.ones(5, 5, dtype=torch.bool).triu(1)
PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])  # two sequences, of 5 and 3 tokens
MEMORY_PADDING = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
SCATTERED = torch.tensor([[(i * 5 + j) % 3 == 1 for j in range(6)] for i in range(5)])


def as_floats(mask):
    return torch.zeros(mask.shape).masked_fill(mask, float("-inf"))


# Without `is_causal` an encoder or a decoder compares the mask with the causal one, and the host waits for the answer,
# as with CUDA.
ENCODER_MASKS = {
    "none": {},
    "bool mask": {"mask": CAUSAL.T, "is_causal": False},
    "float mask": {"mask": as_floats(CAUSAL.T), "is_causal": False},
    "causal": {"mask": CAUSAL, "is_causal": True},
    "bool padding": {"src_key_padding_mask": PADDING},
    "float padding": {"src_key_padding_mask": as_floats(PADDING)},
    "causal and padding": {"mask": CAUSAL, "is_causal": True, "src_key_padding_mask": PADDING},
}
DECODER_MASKS = {
    "causal": {"tgt_mask": CAUSAL, "tgt_is_causal": True},
    "memory mask": {"tgt_is_causal": False, "memory_mask": SCATTERED},
    "padding": {
        "tgt_mask": CAUSAL,
        "tgt_is_causal": True,
        "tgt_key_padding_mask": PADDING,
        "memory_key_padding_mask": MEMORY_PADDING,
    },
    "float masks": {
        "tgt_mask": as_floats(CAUSAL),
        "tgt_is_causal": True,
        "memory_mask": as_floats(SCATTERED),
        "memory_key_padding_mask": as_floats(MEMORY_PADDING),
    },
}


def encoder(**options):
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 2, **options)


@pytest.mark.parametrize("masks", ENCODER_MASKS)
def test_transformer_encoder_with_masks(masks):
    torch.manual_seed(0)
    assert_equals_the_cpu(encoder(enable_nested_tensor=False), torch.randn(2, 5, 16), **ENCODER_MASKS[masks])


@pytest.mark.parametrize("masks", DECODER_MASKS)
def test_transformer_decoder_with_masks(masks):
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
    decoder = nn.TransformerDecoder(layer, 2, norm=nn.LayerNorm(16))
    assert_equals_the_cpu(decoder, torch.randn(2, 5, 16), torch.randn(2, 6, 16), **DECODER_MASKS[masks])


# In evaluation, without gradients, a layer is one fused operator.
@torch.no_grad()
@pytest.mark.parametrize("masks", ENCODER_MASKS)
def test_transformer_encoder_evaluates_by_its_fused_operator(masks):
    torch.manual_seed(0)
    module, x, keywords = encoder(enable_nested_tensor=False).eval(), torch.randn(2, 5, 16), ENCODER_MASKS[masks]
    expected = module(x, **keywords)
    module.to(DEVICE)
    x, keywords = to(DEVICE, (x, keywords))
    with no_waits():
        got = module(x, **keywords)
    assert_equal_to_the_cpus([got], [expected])


@torch.no_grad()
def test_transformer_encoder_leaves_padding_out_by_nested_tensors():
    torch.manual_seed(0)
    module, x = encoder(enable_nested_tensor=True).eval(), torch.randn(2, 5, 16)
    expected = module(x, src_key_padding_mask=PADDING)
    got = module.to(DEVICE)(x.to(DEVICE), src_key_padding_mask=PADDING.to(DEVICE))
    assert_equal_to_the_cpus([got], [expected])


ATTENTION_MASKS = {
    "none": {},
    "bool": {"attn_mask": SCATTERED},
    "float": {"attn_mask": as_floats(SCATTERED)},
    "float, for each head": {"attn_mask": torch.linspace(-2, 2, 2 * 2 * 5 * 6).reshape(4, 5, 6)},
    "bool, with padding": {"attn_mask": SCATTERED, "key_padding_mask": MEMORY_PADDING},
    "float, with padding": {"attn_mask": as_floats(SCATTERED), "key_padding_mask": as_floats(MEMORY_PADDING)},
    "each head's weights": {"average_attn_weights": False},
}


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("masks", ATTENTION_MASKS)
def test_multihead_attention_with_masks(masks, need_weights):
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(16, 2, kdim=8, vdim=4, batch_first=True)
    query, key, value = torch.randn(2, 5, 16), torch.randn(2, 6, 8), torch.randn(2, 6, 4)
    keywords = ATTENTION_MASKS[masks] | {"need_weights": need_weights}
    assert_equals_the_cpu(attention, query, key, value, **keywords)


class Packed(nn.Module):
    """Runs a recurrent network over sequences of different lengths, from padded to padded."""

    def __init__(self, recurrent, lengths) -> None:
        super().__init__()
        self.recurrent = recurrent
        self.lengths = lengths

    def forward(self, x, state):
        batch_first = self.recurrent.batch_first
        is_sorted = self.lengths == sorted(self.lengths, reverse=True)
        packed = nn.utils.rnn.pack_padded_sequence(x, self.lengths, batch_first, enforce_sorted=is_sorted)
        output, state = self.recurrent(packed, state)
        return nn.utils.rnn.pad_packed_sequence(output, batch_first), state


# Lengths are on the CPU, so packing needs no wait. But sequences that were not sorted are sorted on the device, and to
# give the lengths back in the old order, padding reads that order from there, as with CUDA.
@pytest.mark.parametrize(("lengths", "may_wait"), [([4, 3, 1], False), ([1, 4, 3], True)], ids=["sorted", "unsorted"])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_packed_sequences_in_both_directions(kind, batch_first, lengths, may_wait):
    torch.manual_seed(0)
    recurrent = kind(5, 7, num_layers=2, bidirectional=True, batch_first=batch_first)
    state = torch.randn(4, 3, 7)
    x = torch.randn(3, 4, 5) if batch_first else torch.randn(4, 3, 5)
    assert_equals_the_cpu(
        Packed(recurrent, lengths), x, (state, state.sin()) if kind is nn.LSTM else state, may_wait=may_wait
    )


def test_packing_wants_lengths_on_the_cpu():
    x, lengths = torch.randn(4, 3, 5, device=DEVICE), torch.tensor([4, 3, 1], device=DEVICE)
    with pytest.raises(RuntimeError, match="'lengths' argument should be a 1D CPU int64 tensor"):
        nn.utils.rnn.pack_padded_sequence(x, lengths)


# Networks, with a batch of inputs and what they are trained with.
STEPS = {
    "MLP": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4)),
        (6, 8),
        torch.optim.AdamW,
        {},
    ),
    "CNN": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 4)
        ),
        (6, 1, 8, 8),
        torch.optim.SGD,
        {"momentum": 0.9},
    ),
    "transformer": (
        lambda: nn.Sequential(
            nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True), 2),
            nn.Flatten(),
            nn.Linear(80, 4),
        ),
        (6, 5, 16),
        torch.optim.AdamW,
        {},
    ),
    "LSTM": (lambda: LastOutput(nn.LSTM(5, 7, batch_first=True), nn.Linear(7, 4)), (6, 3, 5), torch.optim.Adam, {}),
}


class LastOutput(nn.Module):
    """What a recurrent network says after the last step."""

    def __init__(self, recurrent: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.recurrent = recurrent
        self.head = head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.recurrent(x)[0][:, -1])


@pytest.mark.openreg_only
@pytest.mark.parametrize(
    "implementation", [{}, {"foreach": True}, {"fused": True}], ids=["default", "foreach", "fused"]
)
@pytest.mark.parametrize("name", STEPS)
def test_a_training_step_never_makes_the_host_wait(name, implementation):
    make, shape, optimizer_class, options = STEPS[name]
    torch.manual_seed(0)
    model = make().to(DEVICE)
    optimizer = optimizer_class(model.parameters(), lr=0.05, **options, **implementation)
    x = torch.randn(shape, device=DEVICE)
    target = torch.randint(0, 4, (shape[0],), device=DEVICE)
    losses = []
    torch.openreg.reset_launch_stats()
    with no_waits():
        for _ in range(30):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    stats = torch.openreg.launch_stats()
    assert stats["synchronous"] == 0 and stats["host_waits"] == 0, stats
    assert losses[-1].item() < losses[0].item()


def significant_strides(x: torch.Tensor) -> list[int]:
    """Of dimensions with more than one element; oneDNN chooses the others by the number of threads of the caller."""
    return [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1]


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 6, 3, padding=1),
        nn.Conv2d(4, 4, 3, groups=4, bias=False),
        nn.ConvTranspose2d(4, 6, 2, stride=2),
        nn.Sequential(
            nn.Conv2d(4, 6, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Upsample(None, 2)
        ),
    ],
    ids=["convolution", "depthwise", "transposed", "a block"],
)
@pytest.mark.parametrize("channels_last", ["input", "weights", "both"])
def test_channels_last_goes_where_it_goes_on_the_cpu(layer, channels_last):
    def run(device):
        module = copy.deepcopy(layer).to(device)
        if channels_last != "input":
            module.to(memory_format=torch.channels_last)
        x = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(0)).to(device)
        if channels_last != "weights":
            x = x.to(memory_format=torch.channels_last)
        x.requires_grad_()
        y = module(x)
        y.square().mean().backward()  # the terms of a sum's gradients are large, and cancel
        return [y.detach(), x.grad, *(p.grad for p in module.parameters())]

    for got, expected in zip(run(DEVICE), run("cpu"), strict=True):
        assert_close(got.cpu(), expected, rtol=1e-4, atol=2e-6)
        assert significant_strides(got) == significant_strides(expected)
