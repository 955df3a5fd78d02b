"""torch.nn.attention.flex_attention, not compiled: against attention written out, on the CPU."""

from __future__ import annotations

import math

import pytest
import torch
from devices import DEVICE
from torch.nn.attention.flex_attention import AuxRequest, and_masks, create_block_mask, create_mask, flex_attention
from torch.testing import assert_close
from waits import no_waits

pytestmark = [pytest.mark.any_device, pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")]

HEADS, LENGTH, WIDTH = 4, 40, 16


def causal(b, h, q, kv):
    return q >= kv


def window(b, h, q, kv):
    return (q - kv).abs() <= 8


def distance(score, b, h, q, kv):
    return score + 0.1 * (q - kv) / (h + 1)


def inputs(kv_heads=HEADS, dtype=torch.float32, batch=2):
    """Query, key and value on the CPU, the same in each call."""
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(batch, heads, LENGTH, WIDTH, generator=generator, dtype=dtype)
        for heads in (HEADS, kv_heads, kv_heads)
    ]


def scores(query, key, score_mod, mask_mod):
    """The scores of attention with its modifications, written out."""
    key = key.repeat_interleave(query.size(1) // key.size(1), 1)
    found = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    b, h, q, kv = torch.meshgrid(*map(torch.arange, found.shape), indexing="ij")
    if score_mod:
        found = score_mod(found, b, h, q, kv)
    return found.masked_fill(~mask_mod(b, h, q, kv), -math.inf) if mask_mod else found


def expected(query, key, value, score_mod=None, mask_mod=None):
    value = value.repeat_interleave(query.size(1) // value.size(1), 1)
    return torch.softmax(scores(query, key, score_mod, mask_mod), -1) @ value


def leaves(tensors, device="cpu", dtype=torch.float32):
    return [tensor.to(device, dtype).requires_grad_() for tensor in tensors]


@pytest.mark.parametrize(
    ("score_mod", "mask_mod", "kv_heads"),
    [(None, None, HEADS), (distance, None, HEADS), (None, causal, 2), (distance, and_masks(causal, window), 1)],
)
def test_results_and_gradients(score_mod, mask_mod, kv_heads):
    ours, theirs = leaves(inputs(kv_heads), DEVICE), leaves(inputs(kv_heads))
    mask = mask_mod and create_block_mask(mask_mod, None, None, LENGTH, LENGTH, device=DEVICE, BLOCK_SIZE=16)
    got = flex_attention(*ours, score_mod=score_mod, block_mask=mask, enable_gqa=kv_heads != HEADS)
    want = expected(*theirs, score_mod, mask_mod)
    assert got.device == ours[0].device
    assert_close(got.cpu(), want)
    got.sin().sum().backward()
    want.sin().sum().backward()
    for mine, their in zip(ours, theirs, strict=True):
        assert_close(mine.grad.cpu(), their.grad)


def test_the_logarithm_of_the_sums_and_the_largest_scores():
    ours, theirs = leaves(inputs(), DEVICE), leaves(inputs())
    want = scores(*theirs[:2], distance, None)
    out, aux = flex_attention(*ours, score_mod=distance, return_aux=AuxRequest(lse=True, max_scores=True))
    assert_close(aux.lse.cpu(), want.logsumexp(-1))
    assert_close(aux.max_scores.cpu(), want.amax(-1))
    (out.sum() + aux.lse.sin().sum()).backward()
    (expected(*theirs, distance).sum() + want.logsumexp(-1).sin().sum()).backward()
    for mine, their in zip(ours, theirs, strict=True):
        assert_close(mine.grad.cpu(), their.grad)


@pytest.mark.filterwarnings("ignore:return_lse is deprecated")
def test_the_old_way_to_ask_for_the_logarithm_of_the_sums():
    query, key, value = inputs()
    _, got = flex_attention(*(each.to(DEVICE) for each in (query, key, value)), return_lse=True)
    assert_close(got.cpu(), scores(query, key, None, None).logsumexp(-1))


@pytest.mark.full
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 5e-3), (torch.bfloat16, 3e-2), (torch.float64, 1e-7)])
def test_other_dtypes(dtype, tolerance):
    ours, theirs = (
        leaves(inputs(), DEVICE, dtype),
        leaves([each.to(dtype).double() for each in inputs()], dtype=torch.float64),
    )
    got, want = flex_attention(*ours, score_mod=distance), expected(*theirs, distance)
    assert got.dtype == dtype
    assert_close(got.cpu().double(), want, rtol=tolerance, atol=tolerance)
    got.sum().backward()
    want.sum().backward()
    for mine, their in zip(ours, theirs, strict=True):
        assert_close(mine.grad.cpu().double(), their.grad, rtol=tolerance, atol=4 * tolerance)


def test_autocast_casts_as_cudas():
    ours = leaves(inputs(), DEVICE)
    with torch.autocast(DEVICE, torch.bfloat16):
        got = flex_attention(*ours, score_mod=distance)
    assert got.dtype == torch.bfloat16
    assert torch.equal(got, flex_attention(*(each.bfloat16() for each in ours), score_mod=distance))
    got.float().sum().backward()
    assert all(each.grad.dtype == torch.float32 for each in ours)


def test_what_a_modification_captures_gets_its_gradient():
    bias = torch.randn(HEADS, 2 * LENGTH)

    def with_bias(bias):
        return lambda score, b, h, q, kv: score + bias[h, q - kv + LENGTH]

    (ours,), (theirs,) = leaves([bias], DEVICE), leaves([bias])
    flex_attention(*(each.to(DEVICE) for each in inputs()), score_mod=with_bias(ours)).sin().sum().backward()
    expected(*inputs(), with_bias(theirs)).sin().sum().backward()
    assert_close(ours.grad.cpu(), theirs.grad)


def test_documents_in_one_sequence():
    document = (torch.arange(LENGTH) // 15).to(DEVICE)

    def same_document(b, h, q, kv):
        return document[q] == document[kv]

    query, key, value = inputs()
    mask = create_block_mask(same_document, None, None, LENGTH, LENGTH, device=DEVICE, BLOCK_SIZE=8)
    got = flex_attention(*(each.to(DEVICE) for each in (query, key, value)), block_mask=mask)
    on_cpu = document.cpu()
    assert_close(got.cpu(), expected(query, key, value, None, lambda b, h, q, kv: on_cpu[q] == on_cpu[kv]))


def test_masks_are_those_of_the_cpu():
    ours = create_block_mask(window, 2, HEADS, LENGTH, LENGTH, BLOCK_SIZE=16)
    theirs = create_block_mask(window, 2, HEADS, LENGTH, LENGTH, BLOCK_SIZE=16, device="cpu")
    assert ours.kv_indices.device.type == DEVICE  # the accelerator, where no device is named
    assert torch.equal(ours.to_dense().cpu(), theirs.to_dense())
    assert torch.equal(theirs.to(DEVICE).kv_num_blocks, ours.kv_num_blocks)
    dense = create_mask(window, 1, 1, LENGTH, LENGTH, device=DEVICE)
    assert torch.equal(dense.cpu(), create_mask(window, 1, 1, LENGTH, LENGTH, device="cpu"))


@pytest.mark.openreg_only
def test_only_numbers_of_pytorchs_wait():
    ours = leaves(inputs(), DEVICE)
    with no_waits():
        mask = create_block_mask(causal, None, None, LENGTH, LENGTH, BLOCK_SIZE=16)
    torch.openreg.reset_launch_stats()
    flex_attention(*ours, score_mod=distance, block_mask=mask).sum().backward()
    assert torch.openreg.launch_stats()["host_waits"] == 2  # torch.tensor(-inf, device=...), forward and backward
    assert all(each.grad.isfinite().all() for each in ours)


def test_the_second_device():
    ours = [each.to(f"{DEVICE}:1") for each in inputs()]
    got = flex_attention(*ours, score_mod=distance)
    assert got.device == torch.device(f"{DEVICE}:1")
    assert_close(got.cpu(), expected(*inputs(), distance))


@pytest.mark.full
def test_compiled_by_a_backend_that_runs_pytorchs_own_operators():
    ours = leaves(inputs(), DEVICE)
    compiled = torch.compile(
        lambda *args: flex_attention(*args, score_mod=distance), backend="aot_eager", fullgraph=True
    )
    got = compiled(*ours)
    assert_close(got.cpu(), expected(*inputs(), distance))
    got.sum().backward()
    assert all(each.grad is not None for each in ours)


def test_other_devices_are_checked_as_before():
    with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
        flex_attention(*leaves(inputs()))
    query, key, value = (each.to(DEVICE) for each in inputs())
    with pytest.raises(ValueError, match="device"):
        flex_attention(query, key.cpu(), value)
