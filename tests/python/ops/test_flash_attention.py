"""Attention over sequences of several lengths: each is what a plain formula in float64 says of it alone."""

from __future__ import annotations

import math

import pytest
import torch
from devices import DEVICE
from torch.nn.attention.varlen import AuxRequest, varlen_attn, varlen_attn_out
from waits import assert_close_to, waits_allowed

HEADS = 4
SIZE = 16
QUERIES = [3, 0, 5, 6]
KEYS = [7, 2, 5, 4]
TOLERANCES = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


pytestmark = [pytest.mark.any_device, pytest.mark.usefixtures("seeded")]


def compare(got: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype = torch.float32) -> None:
    assert_close_to(got, expected, TOLERANCES[dtype])


def ends(lengths: list[int]) -> torch.Tensor:
    return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)


def attend(query, key, value, window=(-1, -1), scale=None):
    """[tokens, heads, size] of one sequence, and the log of the sums, [heads, tokens]."""
    query, key, value = (t.double().transpose(0, 1) for t in (query, key, value))
    key, value = (t.repeat_interleave(query.size(0) // t.size(0), 0) for t in (key, value))
    scores = query @ key.mT * (scale or 1 / math.sqrt(query.size(-1)))
    offset = torch.arange(key.size(1)) - torch.arange(query.size(1))[:, None] - (key.size(1) - query.size(1))
    left, right = window
    unseen = torch.zeros_like(offset, dtype=torch.bool)
    if left >= 0:
        unseen |= offset < -left
    if right >= 0:
        unseen |= offset > right
    scores = scores.masked_fill(unseen, -math.inf)
    blind = unseen.all(1)
    out = scores.softmax(-1).masked_fill(blind[:, None], 0) @ value
    return out.transpose(0, 1), scores.logsumexp(-1).masked_fill(blind, math.inf)


def attend_each(query, key, value, queries=QUERIES, keys=KEYS, **options):
    parts = zip(query.split(queries), key.split(keys), value.split(keys), strict=True)
    outs, sums = zip(*(attend(*part, **options) for part in parts), strict=True)
    return torch.cat(outs), torch.cat(sums, 1)


def tokens(dtype=torch.float32, heads_of_keys=HEADS):
    query = torch.randn(sum(QUERIES), HEADS, SIZE).to(dtype)
    key, value = torch.randn(2, sum(KEYS), heads_of_keys, SIZE).to(dtype).unbind()
    return query, key, value


def to_device(*tensors):
    return [t.to(DEVICE, non_blocking=True) for t in tensors]


OPTIONS = {
    "all": {},
    "scaled": {"scale": 0.3},
    "causal": {"window_size": (-1, 0)},
    "left window": {"window_size": (1, 0)},
    "both sides": {"window_size": (2, 1)},
    "right window": {"window_size": (-1, 1)},
}


def in_reference(options):
    return {"window" if k == "window_size" else k: v for k, v in options.items()}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("heads_of_keys", [HEADS, 2])
def test_sequences_do_not_see_each_other(name, heads_of_keys, no_waits):
    options = OPTIONS[name]
    case = tokens(heads_of_keys=heads_of_keys)
    expected, sums = attend_each(*case, **in_reference(options))
    arguments = to_device(*case, ends(QUERIES), ends(KEYS))
    out, lse = varlen_attn(
        *arguments,
        max(QUERIES),
        max(KEYS),
        enable_gqa=heads_of_keys != HEADS,
        return_aux=AuxRequest(lse=True),
        **options,
    )
    given = torch.empty_like(out)
    varlen_attn_out(given, *arguments, max(QUERIES), max(KEYS), enable_gqa=heads_of_keys != HEADS, **options)
    assert lse.dtype == torch.float32
    compare(out, expected)
    compare(lse, sums)
    with waits_allowed():
        assert torch.equal(given, out)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_tokens_have_wide_sums(dtype):
    case = tokens(dtype)
    expected, sums = attend_each(*case)
    out, lse = varlen_attn(
        *to_device(*case, ends(QUERIES), ends(KEYS)), max(QUERIES), max(KEYS), return_aux=AuxRequest(lse=True)
    )
    assert (out.dtype, lse.dtype) == (dtype, torch.float32)
    compare(out, expected, dtype)
    compare(lse, sums, dtype)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("heads_of_keys", [HEADS, 2])
def test_gradients_are_those_of_the_formula(name, heads_of_keys, no_waits):
    options = OPTIONS[name]
    case = tokens(heads_of_keys=heads_of_keys)
    leaves = [t.double().requires_grad_() for t in case]
    out, _ = attend_each(*leaves, **in_reference(options))
    weights = torch.randn_like(out)
    out.backward(weights)

    device_leaves = [t.requires_grad_() for t in to_device(*case)]
    got = varlen_attn(
        *device_leaves,
        *to_device(ends(QUERIES), ends(KEYS)),
        max(QUERIES),
        max(KEYS),
        enable_gqa=heads_of_keys != HEADS,
        **options,
    )
    got.backward(weights.float().to(DEVICE, non_blocking=True))
    for leaf, reference in zip(device_leaves, leaves, strict=True):
        compare(leaf.grad, reference.grad)


def test_only_used_keys_count(no_waits):
    query, key, value = tokens()
    used = [4, 0, 5, 1]
    parts = zip(query.split(QUERIES), key.split(KEYS), value.split(KEYS), used, strict=True)
    expected = torch.cat([attend(q, k[:n], v[:n])[0] if n else torch.zeros_like(q) for q, k, v, n in parts])
    got = varlen_attn(
        *to_device(query, key, value, ends(QUERIES), ends(KEYS)),
        max(QUERIES),
        max(KEYS),
        seqused_k=torch.tensor(used, dtype=torch.int32).to(DEVICE, non_blocking=True),
    )
    compare(got, expected)


def test_keys_may_lie_in_pages(no_waits):
    query, key, value = tokens()
    page = 4
    table = torch.tensor([[6, 1], [0, 0], [5, 3], [2, 0]], dtype=torch.int32)
    pools = torch.full((2, 7, page, HEADS, SIZE), math.nan)  # what no sequence uses must not be read
    for pool, whole in zip(pools, (key, value), strict=True):
        for sequence, pages in zip(whole.split(KEYS), table, strict=True):
            for part, index in zip(sequence.split(page), pages, strict=False):
                pool[index, : len(part)] = part
    expected, _ = attend_each(query, key, value)
    got = varlen_attn(
        *to_device(query, *pools, ends(QUERIES)),
        None,
        max(QUERIES),
        max(KEYS),
        seqused_k=torch.tensor(KEYS, dtype=torch.int32).to(DEVICE, non_blocking=True),
        block_table=table.to(DEVICE, non_blocking=True),
    )
    compare(got, expected)


@pytest.mark.parametrize("causal", [False, True])
def test_batches_need_no_lengths(causal, no_waits):
    query, key, value = torch.randn(2, 5, HEADS, SIZE), *torch.randn(2, 2, 7, HEADS, SIZE).unbind()
    window = (-1, 0) if causal else (-1, -1)
    leaves = [t.double().requires_grad_() for t in (query, key, value)]
    results = [attend(*each, window) for each in zip(*leaves, strict=True)]
    expected, sums = (torch.stack(each) for each in zip(*results, strict=True))
    weights = torch.randn_like(expected)
    expected.backward(weights)

    device_leaves = [t.requires_grad_() for t in to_device(query, key, value)]
    out, lse, state, unused, debug = torch.ops.aten._flash_attention_forward(
        *device_leaves, None, None, 5, 7, 0.0, causal, False
    )
    out.backward(weights.float().to(DEVICE, non_blocking=True))
    assert (state.dtype, state.shape, unused.shape, debug.numel()) == (torch.uint64, (2,), (), 0)
    compare(out, expected)
    compare(lse, sums)
    for leaf, reference in zip(device_leaves, leaves, strict=True):
        compare(leaf.grad, reference.grad)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"dropout_p": 0.5}, NotImplementedError, "no dropout"),
        ({"key": torch.ones(5, 3, 8), "value": torch.ones(5, 3, 8)}, RuntimeError, "heads of one size"),
        ({"key": torch.ones(5, 2, 8).half(), "value": torch.ones(5, 2, 8).half()}, RuntimeError, "the same dtype"),
        ({"value": torch.ones(4, 2, 8)}, RuntimeError, "a key and a value of one shape"),
        ({"query": torch.ones(2, 8)}, RuntimeError, "expected a query of 3"),
        ({"query": torch.ones(5, 8, 2).mT}, RuntimeError, "contiguous last dimension"),
        ({"query": torch.ones(5, 2, 8).long()}, NotImplementedError, "not implemented for 'Long'"),
        ({"cum_seq_q": torch.tensor([0, 5])}, RuntimeError, "cu_seqlens_q must have dtype int32"),
        (
            {"cum_seq_k": torch.tensor([0, 2, 5], dtype=torch.int32)},
            RuntimeError,
            "cu_seqlens_k must have 1 dimensions and 2 rows",
        ),
        ({"cum_seq_k": None}, RuntimeError, "expected cum_seq_k, or block_table and seqused_k"),
        ({"cum_seq_q": None}, RuntimeError, "expected a query of 4"),
        ({"seqused_k": torch.ones(2, dtype=torch.int32)}, RuntimeError, "seqused_k must have 1 dimensions and 1 rows"),
    ],
)
def test_wrong_arguments_raise_at_the_call(change, error, message):
    bounds = torch.tensor([0, 5], dtype=torch.int32)
    arguments = {
        **dict.fromkeys(("query", "key", "value"), torch.ones(5, 2, 8)),
        **dict.fromkeys(("cum_seq_q", "cum_seq_k"), bounds),
        **dict.fromkeys(("max_q", "max_k"), 5),
        "dropout_p": 0.0,
        "is_causal": False,
        "return_debug_mask": False,
        **change,
    }
    on_device = {k: v.to(DEVICE) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
    with pytest.raises(error, match=message):
        torch.ops.aten._flash_attention_forward(**on_device)


@pytest.mark.parametrize("wrong", ["grad_out", "out", "logsumexp"])
def test_gradients_of_wrong_shapes_raise_at_the_call(wrong):
    x = torch.ones(5, 2, 8, device=DEVICE)
    lse = torch.ones(2, 5, device=DEVICE)
    bounds = torch.tensor([0, 5], dtype=torch.int32).to(DEVICE)
    tensors = {"grad_out": x, "out": x, "logsumexp": lse}
    tensors[wrong] = tensors[wrong][:1]
    with pytest.raises(RuntimeError, match="expected grad_out and out like the query"):
        torch.ops.aten._flash_attention_backward(
            tensors["grad_out"],
            x,
            x,
            x,
            tensors["out"],
            tensors["logsumexp"],
            bounds,
            bounds,
            5,
            5,
            0.0,
            False,
            lse,
            lse,
        )


def test_ends_beyond_the_tokens_are_an_error_of_the_stream():
    query = torch.ones(5, 2, 8, device=DEVICE)
    bounds = torch.tensor([0, 6], dtype=torch.int32).to(DEVICE)
    torch.ops.aten._flash_attention_forward(query, query, query, bounds, bounds, 6, 6, 0.0, False, False)
    with pytest.raises(torch.AcceleratorError, match="_flash_attention_forward failed"):
        torch.accelerator.synchronize()
