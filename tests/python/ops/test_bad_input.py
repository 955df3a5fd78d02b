"""Bad input, by families of operators: a wrong dtype, shape, device, index, dimension or number, an empty reduction, a
singular matrix.

Each entry runs on the CPU and on the device, which answers in one of three ways (docs/architecture.md, "Errors"):

- ``AT_CALL``: what needs no elements raises at the call, with the CPU's type and sentence.
- ``OF_THE_STREAM``: what a kernel finds in the elements is raised where the host next synchronises, once.
- ``WAITS``: the call reads elements itself, so the host waits in it, and it raises the CPU's type and sentence.

Tensors of several devices are in ``ON_ONE_DEVICE``; the CPU has no counterpart to that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from as_cpu import ones
from devices import DEVICE
from torch.utils._pytree import tree_map

CPU = torch.device("cpu")  # as an argument, it stands for the device of the call
LONG, BOOL, COMPLEX, DOUBLE = torch.long, torch.bool, torch.complex64, torch.float64


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=LONG)


def floats(*values: float) -> torch.Tensor:
    return torch.tensor(values)


Case = tuple[Any, ...]  # what to call, and its arguments: tensors on the CPU, of which each call gets copies

nn, sdpa, unscale = torch._C._nn, F.scaled_dot_product_attention, torch._amp_foreach_non_finite_check_and_unscale_
image, kernel, query = ones(1, 2, 5, 5), ones(3, 2, 3, 3), ones(1, 2, 3, 4)
lstm_weights = [ones(8, 3), ones(8, 2), ones(8), ones(8)]
gru_weights = [ones(6, 3), ones(6, 2), ones(6), ones(6)]
rnn_flags = (True, 1, 0.0, False, False, False)  # biases, layers, dropout, training, both ways, batch first
adam = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8, "amsgrad": False, "maximize": False}
sgd = {"lr": 0.1, "weight_decay": 0.0, "momentum": 0.9, "dampening": 0.0, "nesterov": False, "maximize": False}

AT_CALL: dict[str, Case] = {
    # Convolution
    "conv1d-channels": (F.conv1d, ones(1, 3, 8), ones(4, 2, 3)),
    "conv1d-dtypes": (F.conv1d, ones(1, 2, 8), ones(3, 2, 3, dtype=DOUBLE)),
    "conv1d-dimensions": (F.conv1d, ones(8), ones(3, 2, 3)),
    "conv2d-channels": (F.conv2d, image, ones(3, 4, 3, 3)),
    "conv2d-groups": (lambda x, w: F.conv2d(x, w, groups=3), image, kernel),
    "conv2d-no-groups": (lambda x, w: F.conv2d(x, w, groups=0), image, kernel),
    "conv2d-bias": (F.conv2d, image, kernel, ones(4)),
    "conv2d-stride-zero": (lambda x, w: F.conv2d(x, w, stride=0), image, kernel),
    "conv2d-negative-padding": (lambda x, w: F.conv2d(x, w, padding=-1), image, kernel),
    "conv2d-dilation-zero": (lambda x, w: F.conv2d(x, w, dilation=0), image, kernel),
    "conv2d-padding-same-with-stride": (lambda x, w: F.conv2d(x, w, stride=2, padding="same"), image, kernel),
    "conv2d-kernel-larger-than-input": (F.conv2d, ones(1, 2, 2, 2), kernel),
    "conv2d-integers-and-floats": (F.conv2d, ones(1, 2, 5, 5, dtype=LONG), kernel),
    "conv2d-bools": (F.conv2d, ones(1, 2, 5, 5, dtype=BOOL), ones(3, 2, 3, 3, dtype=BOOL)),
    "conv3d-channels": (F.conv3d, ones(1, 2, 4, 4, 4), ones(3, 4, 3, 3, 3)),
    "conv3d-dimensions": (F.conv3d, ones(4, 4), ones(3, 4, 3, 3, 3)),
    "conv_transpose1d-channels": (F.conv_transpose1d, ones(1, 3, 8), ones(4, 2, 3)),
    "conv_transpose2d-output-padding": (
        lambda x, w: F.conv_transpose2d(x, w, output_padding=5),
        image,
        ones(2, 3, 3, 3),
    ),
    "conv_transpose2d-bias": (F.conv_transpose2d, image, ones(2, 3, 3, 3), ones(2)),
    "conv_transpose3d-groups": (
        lambda x, w: F.conv_transpose3d(x, w, groups=3),
        ones(1, 4, 3, 3, 3),
        ones(4, 2, 2, 2, 2),
    ),
    "unfold-kernel-larger-than-input": (lambda x: F.unfold(x, 9), ones(1, 2, 4, 4)),
    "fold-blocks": (lambda x: F.fold(x, (4, 4), 2), ones(1, 8, 7)),
    # Normalisation
    "batch_norm-weight": (lambda x, m, w: F.batch_norm(x, m, m, w), ones(2, 3, 4), ones(3), ones(4)),
    "batch_norm-running-mean": (F.batch_norm, ones(2, 3, 4), ones(4), ones(3)),
    "batch_norm-running-variance": (F.batch_norm, ones(2, 3, 4), ones(3), ones(4)),
    "batch_norm-one-value": (lambda x: F.batch_norm(x, None, None, training=True), ones(1, 3)),
    "batch_norm-no-statistics": (lambda x: F.batch_norm(x, None, None), ones(2, 3)),
    "batch_norm-integers": (lambda x: F.batch_norm(x, None, None, training=True), ones(2, 3, dtype=LONG)),
    "layer_norm-shape": (lambda x: F.layer_norm(x, (4,)), ones(2, 3)),
    "layer_norm-empty-shape": (lambda x: F.layer_norm(x, ()), ones(2, 3)),
    "layer_norm-weight": (lambda x, w: F.layer_norm(x, (3,), w), ones(2, 3), ones(2)),
    "layer_norm-bias": (lambda x, w, b: F.layer_norm(x, (3,), w, b), ones(2, 3), ones(3), ones(2)),
    "layer_norm-integers": (lambda x: F.layer_norm(x, (3,)), ones(2, 3, dtype=LONG)),
    "layer_norm-dtypes": (lambda x, w: F.layer_norm(x, (3,), w), ones(2, 3), ones(3, dtype=DOUBLE)),
    "group_norm-groups": (lambda x: F.group_norm(x, 2), ones(2, 3, 4)),
    "group_norm-weight": (lambda x, w: F.group_norm(x, 3, w), ones(2, 3, 4), ones(2)),
    "native_group_norm-sizes": (lambda x: torch.native_group_norm(x, None, None, 2, 4, 4, 2, 1e-5), ones(2, 3, 4)),
    "instance_norm-one-value": (F.instance_norm, ones(2, 3, 1)),
    "instance_norm-weight": (lambda x, w: F.instance_norm(x, weight=w), ones(2, 3, 4), ones(2)),
    "rms_norm-shape": (lambda x: F.rms_norm(x, (4,)), ones(2, 3)),
    "rms_norm-weight": (lambda x, w: F.rms_norm(x, (3,), w), ones(2, 3), ones(2)),
    "rms_norm-integers": (lambda x: F.rms_norm(x, (3,)), ones(2, 3, dtype=LONG)),
    # Attention
    "attention-head-sizes": (sdpa, query, ones(1, 2, 3, 5), query),
    "attention-one-dimension": (sdpa, ones(4), ones(4), ones(4)),
    "attention-dtypes": (sdpa, query, ones(1, 2, 3, 4, dtype=DOUBLE), query),
    "attention-integers": (sdpa, *[ones(1, 2, 3, 4, dtype=LONG)] * 3),
    "attention-mask-shape": (sdpa, query, query, query, ones(7, 7)),
    "attention-mask-dtype": (sdpa, query, query, query, ones(3, 3, dtype=LONG)),
    "attention-dropout": (lambda q: sdpa(q, q, q, dropout_p=1.5), query),
    "attention-groups-of-heads": (lambda q, k: sdpa(q, k, k, enable_gqa=True), ones(1, 3, 3, 4), query),
    "multi_head_attention-heads": (
        lambda x, w, b, o, c: torch._native_multi_head_attention(x, x, x, 6, 4, w, b, o, c),
        *(ones(1, 3, 6), ones(18, 6), ones(18), ones(6, 6), ones(6)),
    ),
    # Embedding
    "embedding-float-indices": (F.embedding, ones(2), ones(3, 2)),
    "embedding-weight-of-one-dimension": (F.embedding, ints(1), ones(3)),
    "embedding-padding-index": (lambda i, w: F.embedding(i, w, padding_idx=5), ints(1), ones(3, 2)),
    "embedding_renorm-float-indices": (lambda i, w: torch.embedding_renorm_(w, i, 1.0, 2.0), ones(2), ones(3, 2)),
    "embedding_bag-float-indices": (F.embedding_bag, ones(2, 2), ones(3, 2)),
    "embedding_bag-offsets": (F.embedding_bag, ints(0, 1), ones(3, 2), ones(1, 2, dtype=LONG)),
    "embedding_bag-weights-of-a-mean": (
        lambda i, w, s: F.embedding_bag(i, w, per_sample_weights=s, mode="mean"),
        *(ones(1, 2, dtype=LONG), ones(3, 2), ones(1, 2)),
    ),
    # Indexing
    "index-float": (lambda x, i: x[i], ones(3), ones(2)),
    "index-too-many": (lambda x, i: x[i, i], ones(3), ints(0)),
    "index-shapes": (lambda x, i, j: x[i, j], ones(3, 3), ints(0, 1), ints(0, 1, 2)),
    "index-mask-shape": (lambda x, m: x[m], ones(3), ones(4, dtype=BOOL)),
    "index-integer": (lambda x: x[5], ones(3)),
    "index_put-values-shape": (lambda x, i, v: x.index_put_((i,), v), ones(3), ints(0, 1), ones(3)),
    "index_put-values-dtype": (lambda x, i, v: x.index_put_((i,), v), ones(3), ints(0), ints(1)),
    "index_put-float-index": (lambda x, i, v: x.index_put_((i,), v), ones(3), ones(1), ones(1)),
    "index_select-float": (lambda x, i: x.index_select(0, i), ones(3), ones(1)),
    "index_select-dimension": (lambda x, i: x.index_select(2, i), ones(3), ints(0)),
    "index_select-index-of-two-dimensions": (lambda x, i: x.index_select(0, i), ones(3), ones(1, 1, dtype=LONG)),
    "index_select-from-nothing": (lambda x, i: x.index_select(0, i), ones(0), ints(0)),
    "index_select-from-no-rows": (lambda x, i: x.index_select(0, i), ones(0, 2), ints(0)),
    "index-from-nothing": (lambda x, i: x[i], ones(0), ints(0)),
    "index_put-into-nothing": (lambda x, i, v: x.index_put_((i,), v), ones(0), ints(0), ones(1)),
    "index_add-source-shape": (lambda x, i, s: x.index_add_(0, i, s), ones(3), ints(0, 1), ones(3)),
    "index_add-dtypes": (lambda x, i, s: x.index_add_(0, i, s), ones(3), ints(0), ints(1)),
    "index_copy-source-shape": (lambda x, i, s: x.index_copy_(0, i, s), ones(3, 2), ints(0), ones(1, 3)),
    "index_fill-value": (lambda x, i, v: x.index_fill_(0, i, v), ones(3), ints(0), ones(2)),
    "index_fill-dimension": (lambda x, i: x.index_fill_(2, i, 1.0), ones(3), ints(0)),
    "index_reduce-name": (lambda x, i, s: x.index_reduce_(0, i, s, "sum"), ones(3), ints(0), ones(1)),
    "gather-dimension": (lambda x, i: x.gather(1, i), ones(3), ints(0)),
    "gather-float": (lambda x, i: x.gather(0, i), ones(3), ones(1)),
    "gather-index-larger-than-input": (lambda x, i: x.gather(0, i), ones(3, 2), ones(1, 3, dtype=LONG)),
    "scatter-float": (lambda x, i, s: x.scatter_(0, i, s), ones(3), ones(1), ones(1)),
    "scatter-source-shape": (lambda x, i, s: x.scatter_(0, i, s), ones(3), ints(0, 1), ones(1)),
    "scatter-dtypes": (lambda x, i, s: x.scatter_(0, i, s), ones(3), ints(0), ints(1)),
    "scatter-reduction": (lambda x, i, s: x.scatter_(0, i, s, reduce="mean"), ones(3), ints(0), ones(1)),
    "scatter_add-source-shape": (lambda x, i, s: x.scatter_add_(0, i, s), ones(3), ints(0, 1), ones(1)),
    "scatter_reduce-name": (lambda x, i, s: x.scatter_reduce_(0, i, s, "median"), ones(3), ints(0), ones(1)),
    "take-float": (torch.take, ones(3), ones(1)),
    "take-of-nothing": (torch.take, ones(0), ints(0)),
    "put-source-shape": (lambda x, i, s: x.put_(i, s), ones(3), ints(0), ones(2)),
    "masked_fill-mask-dtype": (lambda x, m: x.masked_fill_(m, 1.0), ones(3), ints(1, 1, 1)),
    "masked_fill-mask-shape": (lambda x, m: x.masked_fill_(m, 1.0), ones(3), ones(2, dtype=BOOL)),
    "masked_scatter-dtypes": (lambda x, m, s: x.masked_scatter_(m, s), ones(3), ones(3, dtype=BOOL), ints(1, 1, 1)),
    "masked_select-mask-dtype": (torch.masked_select, ones(3), ints(1, 1, 1)),
    "where-condition-dtype": (torch.where, ones(3), ones(3), ones(3)),
    "where-shapes": (torch.where, ones(3, dtype=BOOL), ones(2), ones(3)),
    "repeat_interleave-repeats-shape": (torch.repeat_interleave, ones(3), ints(1, 1)),
    # Dropout
    "dropout-probability": (lambda x: torch.dropout(x, 1.5, True), ones(3)),
    "dropout-integers": (lambda x: torch.dropout(x, 0.5, True), ints(1, 1, 1)),
    "native_dropout-integers": (lambda x: torch.native_dropout(x, 0.5, True), ints(1, 1, 1)),
    "feature_dropout-dimensions": (lambda x: torch.feature_dropout(x, 0.5, True), ones(3)),
    "alpha_dropout-probability": (lambda x: torch.alpha_dropout(x, 1.5, True), ones(3)),
    "rrelu-bounds": (lambda x: torch.rrelu(x, 0.5, 0.1, True), ones(3)),
    # Losses
    "cross_entropy-batch": (F.cross_entropy, ones(2, 3), ints(0, 1, 2)),
    "cross_entropy-probabilities-shape": (F.cross_entropy, ones(2, 3), ones(2, 4)),
    "cross_entropy-smoothing": (lambda x, t: F.cross_entropy(x, t, label_smoothing=1.5), ones(2, 3), ints(0, 1)),
    "cross_entropy-integers": (F.cross_entropy, ones(2, 3, dtype=LONG), ints(0, 1)),
    "nll_loss-target-dtype": (F.nll_loss, ones(2, 3), ones(2)),
    "nll_loss-weight": (F.nll_loss, ones(2, 3), ints(0, 1), ones(2)),
    "nll_loss2d-target": (F.nll_loss, ones(1, 3, 2, 2), ones(1, 3, 3, dtype=LONG)),
    "mse_loss-shapes": (nn.mse_loss, ones(2), ones(3)),
    "mse_loss-integers": (nn.mse_loss, ints(1, 1), ints(1, 1)),
    "smooth_l1_loss-negative-beta": (lambda x: F.smooth_l1_loss(x, x, beta=-1.0), ones(2)),
    "huber_loss-delta": (lambda x: F.huber_loss(x, x, delta=0.0), ones(2)),
    "binary_cross_entropy-target-dtype": (F.binary_cross_entropy, ones(2), ints(1, 1)),
    "binary_cross_entropy-weight": (F.binary_cross_entropy, ones(2), ones(2), ones(3)),
    "binary_cross_entropy_with_logits-shapes": (F.binary_cross_entropy_with_logits, ones(2), ones(3)),
    "ctc_loss-blank": (lambda x, t: torch.ctc_loss(x, t, [3], [2], blank=9), ones(3, 1, 4), ints(1, 1)),
    "ctc_loss-input-lengths": (lambda x, t: torch.ctc_loss(x, t, [3, 3], [2]), ones(3, 1, 4), ints(1, 1)),
    "ctc_loss-input-length": (lambda x, t: torch.ctc_loss(x, t, [9], [2]), ones(3, 1, 4), ints(1, 1)),
    "ctc_loss-target-length": (lambda x, t: torch.ctc_loss(x, t, [3], [5]), ones(3, 1, 4), ones(1, 2, dtype=LONG)),
    "multi_margin_loss-target": (F.multi_margin_loss, ones(2, 3), ints(0)),
    "multilabel_margin_loss-target": (F.multilabel_margin_loss, ones(2, 3), ones(2, 4, dtype=LONG)),
    # Pooling
    "max_pool1d-kernel-zero": (lambda x: F.max_pool1d(x, 0), ones(1, 2, 4)),
    "max_pool2d-padding": (lambda x: F.max_pool2d(x, 2, padding=3), image),
    "max_pool2d-stride": (lambda x: F.max_pool2d(x, 2, stride=0), image),
    "max_pool2d-kernel-of-three": (lambda x: F.max_pool2d(x, (2, 2, 2)), image),
    "max_pool2d-too-small": (lambda x: F.max_pool2d(x, 9), image),
    "max_pool2d-bools": (lambda x: F.max_pool2d(x, 2), ones(1, 2, 4, 4, dtype=BOOL)),
    "max_pool3d-too-small": (lambda x: F.max_pool3d(x, 3), ones(1, 2, 2, 2, 2)),
    "avg_pool1d-dimensions": (lambda x: F.avg_pool1d(x, 2), ones(4)),
    "avg_pool2d-divisor": (lambda x: F.avg_pool2d(x, 2, divisor_override=0), image),
    "adaptive_avg_pool2d-negative-size": (lambda x: F.adaptive_avg_pool2d(x, -1), image),
    "adaptive_max_pool1d-empty": (lambda x: F.adaptive_max_pool1d(x, 2), ones(1, 2, 0)),
    "max_unpool2d-indices-dtype": (lambda x, i: F.max_unpool2d(x, i, 2), image, image),
    # Upsampling, sampling, padding
    "upsample_nearest1d-size": (lambda x: nn.upsample_nearest1d(x, [0]), ones(1, 2, 4)),
    "upsample_nearest2d-sizes": (lambda x: nn.upsample_nearest2d(x, [4]), image),
    "upsample_nearest2d-dimensions": (lambda x: nn.upsample_nearest2d(x, [4, 4]), ones(2, 4)),
    "upsample_bilinear2d-negative-size": (lambda x: nn.upsample_bilinear2d(x, [-4, 4], False), image),
    "upsample_bilinear2d-integers": (lambda x: nn.upsample_bilinear2d(x, [8, 8], False), ones(1, 2, 4, 4, dtype=LONG)),
    "upsample_bicubic2d-empty": (lambda x: nn.upsample_bicubic2d(x, [4, 4], False), ones(1, 0, 4, 4)),
    "grid_sample-batch": (lambda x, g: F.grid_sample(x, g, align_corners=False), image, ones(2, 2, 2, 2)),
    "grid_sample-coordinates": (lambda x, g: F.grid_sample(x, g, align_corners=False), image, ones(1, 2, 2, 3)),
    "pad-reflection-larger-than-input": (lambda x: F.pad(x, (5, 5), mode="reflect"), ones(1, 2, 4)),
    "pad-negative-result": (lambda x: F.pad(x, (-3, -3)), ones(1, 2, 4)),
    # Recurrent networks
    "lstm-one-state": (
        lambda x, h, w: torch.lstm(x, (h,), w, *rnn_flags),
        *(ones(4, 1, 3), ones(1, 1, 2), lstm_weights),
    ),
    "gru-hidden-size": (
        lambda x, h, w: torch.gru(x, h, w, *rnn_flags),
        *(ones(4, 1, 3), ones(1, 1, 5), gru_weights),
    ),
    "lstm_cell-input-size": (lambda x, h, w: torch.lstm_cell(x, (h, h), *w), ones(1, 5), ones(1, 2), lstm_weights),
    "lstm_cell-hidden-size": (lambda x, h, w: torch.lstm_cell(x, (h, h), *w), ones(1, 3), ones(1, 5), lstm_weights),
    "lstm_cell-batch": (lambda x, h, w: torch.lstm_cell(x, (h, h), *w), ones(2, 3), ones(3, 2), lstm_weights),
    "gru_cell-input-size": (lambda x, h, w: torch.gru_cell(x, h, *w), ones(1, 5), ones(1, 2), gru_weights),
    "gru_cell-hidden-size": (lambda x, h, w: torch.gru_cell(x, h, *w), ones(1, 3), ones(1, 5), gru_weights),
    "rnn_tanh_cell-hidden-size": (torch.rnn_tanh_cell, ones(1, 3), ones(1, 5), ones(2, 3), ones(2, 2)),
    # Foreach operators, fused optimizers, gradient scaling
    "foreach_add-lengths": (torch._foreach_add, [ones(2)], [ones(2), ones(2)]),
    "foreach_add-shapes": (torch._foreach_add, [ones(2)], [ones(3)]),
    "foreach_add-no-tensors": (lambda device: torch._foreach_add([], 1.0), CPU),
    "foreach_add_-dtypes": (torch._foreach_add_, [ints(1)], [ones(1)]),
    "foreach_addcmul-lengths": (torch._foreach_addcmul, [ones(2)], [ones(2), ones(2)], [ones(2)]),
    "foreach_addcdiv-integers": (lambda x: torch._foreach_addcdiv(x, x, x), [ints(1)]),
    "foreach_sqrt_-integers": (torch._foreach_sqrt_, [ints(1)]),
    "foreach_norm-integers": (torch._foreach_norm, [ints(1)]),
    "foreach_copy_-shapes": (torch._foreach_copy_, [ones(2)], [ones(3)]),
    "foreach_maximum-complex": (torch._foreach_maximum, [ones(2, dtype=COMPLEX)], [ones(2, dtype=COMPLEX)]),
    "fused_adam-lengths": (
        lambda p, g, m, v, steps: torch._fused_adam_(p, g, m, v, [], steps, **adam),
        *([ones(2)], [ones(2), ones(2)], [ones(2)], [ones(2)], [ones()]),
    ),
    "fused_adam-dtypes": (
        lambda p, g, m, v, steps: torch._fused_adam_(p, g, m, v, [], steps, **adam),
        *([ones(2)], [ones(2, dtype=DOUBLE)], [ones(2)], [ones(2)], [ones()]),
    ),
    "fused_adamw-integers": (
        lambda p, g, m, v, steps: torch._fused_adamw_(p, g, m, v, [], steps, **adam),
        *([ints(1)], [ints(1)], [ints(1)], [ints(1)], [ones()]),
    ),
    "fused_sgd-lengths": (
        lambda p, g, m: torch._fused_sgd_(p, g, m, **sgd, is_first_step=False),
        *([ones(2)], [], [ones(2)]),
    ),
    "unscale-scale-shape": (unscale, [ones(2)], ones(1), ones(2)),
    "unscale-found-shape": (unscale, [ones(2)], ones(2), ones(1)),
    "unscale-found-dtype": (unscale, [ones(2)], ints(0), ones(1)),
    "unscale-integers": (unscale, [ints(1)], ones(1), ones(1)),
    "update_scale-tracker-dtype": (torch._amp_update_scale_, ones(1), ones(1), ones(1), 2.0, 0.5, 10),
    # Random numbers
    "uniform-integers": (lambda x: x.uniform_(), ints(1)),
    "uniform-bounds": (lambda x: x.uniform_(2, 1), ones(3)),
    "uniform-range-too-large": (lambda x: x.uniform_(-3e38, 3e38), ones(3)),
    "uniform-overlap": (lambda x: x.expand(2, 3).uniform_(), ones(3)),
    "normal-integers": (lambda x: x.normal_(), ints(1)),
    "normal-negative-deviation": (lambda x: x.normal_(0, -1), ones(3)),
    "normal-shapes": (torch.normal, ones(2), ones(3)),
    "log_normal-negative-deviation": (lambda x: x.log_normal_(0, -1), ones(3)),
    "exponential-integers": (lambda x: x.exponential_(), ints(1)),
    "exponential-zero": (lambda x: x.exponential_(0), ones(3)),
    "cauchy-negative-width": (lambda x: x.cauchy_(0, -1), ones(3)),
    "geometric-bool": (lambda x: x.geometric_(0.5), ones(3, dtype=BOOL)),
    "geometric-probability": (lambda x: x.geometric_(1.5), ones(3)),
    "bernoulli-probability": (lambda x: x.bernoulli_(1.5), ones(3)),
    "bernoulli-integers": (torch.bernoulli, ints(0, 1)),
    "bernoulli-integers-in-place": (lambda x, p: x.bernoulli_(p), ones(2), ints(0, 1)),
    "bernoulli-shapes": (lambda x, p: x.bernoulli_(p), ones(4), ones(3)),
    "random-complex": (lambda x: x.random_(), ones(3, dtype=COMPLEX)),
    "random-empty-range": (lambda x: x.random_(5, 5), ones(3)),
    "random-beyond-the-dtype": (lambda x: x.random_(0, 300), ones(3, dtype=torch.uint8)),
    "randint-empty-range": (lambda device: torch.randint(3, 3, (2,), device=device), CPU),
    "randint-negative-size": (lambda device: torch.randint(3, (-2,), device=device), CPU),
    "randperm-negative": (lambda device: torch.randperm(-1, device=device), CPU),
    "randn-integers": (lambda device: torch.randn(2, dtype=LONG, device=device), CPU),
    "multinomial-no-samples": (lambda x: torch.multinomial(x, 0), ones(3)),
    "multinomial-too-many-samples": (lambda x: torch.multinomial(x, 4), ones(3)),
    "multinomial-integers": (lambda x: torch.multinomial(x, 1), ints(1, 1)),
    "binomial-shapes": (torch.binomial, ones(2), ones(3)),
    "poisson-integers": (torch.poisson, ints(1)),
    # Reductions
    "max-of-nothing": (torch.max, ones(0)),
    "max-of-an-empty-dimension": (lambda x: torch.max(x, 1), ones(2, 0)),
    "min-of-an-empty-dimension": (lambda x: torch.min(x, 1), ones(2, 0)),
    "amax-of-nothing": (torch.amax, ones(0)),
    "aminmax-of-nothing": (torch.aminmax, ones(0)),
    "argmax-of-nothing": (torch.argmax, ones(0)),
    "argmin-of-an-empty-dimension": (lambda x: torch.argmin(x, 1), ones(2, 0)),
    "argmax-complex": (torch.argmax, ones(2, dtype=COMPLEX)),
    "median-of-an-empty-dimension": (lambda x: torch.median(x, 1), ones(2, 0)),
    "mode-of-an-empty-dimension": (lambda x: torch.mode(x, 1), ones(2, 0)),
    "kthvalue-beyond": (lambda x: torch.kthvalue(x, 9), ones(3)),
    "topk-beyond": (lambda x: torch.topk(x, 9), ones(3)),
    "quantile-of-nothing": (lambda x: torch.quantile(x, 0.5), ones(0)),
    "norm-of-nothing": (lambda x: torch.linalg.vector_norm(x, float("inf")), ones(0)),
    "sum-negative-dimension": (lambda x: torch.sum(x, -3), ones(2, 3)),
    "sum-dimension-twice": (lambda x: torch.sum(x, (0, 0)), ones(2, 3)),
    "mean-integers": (torch.mean, ints(1)),
    "softmax-dimension": (lambda x: torch.softmax(x, 5), ones(2, 3)),
    "sort-complex": (torch.sort, ones(2, dtype=COMPLEX)),
    "bincount-floats": (torch.bincount, ones(2)),
    # Linear algebra
    "inv-not-square": (torch.linalg.inv, ones(2, 3)),
    "inv-half": (torch.linalg.inv, ones(2, 2, dtype=torch.float16)),
    "solve-not-square": (torch.linalg.solve, ones(2, 3), ones(2)),
    "solve-shapes": (torch.linalg.solve, ones(2, 2), ones(3)),
    "solve-dtypes": (torch.linalg.solve, ones(2, 2), ones(2, dtype=DOUBLE)),
    "cholesky-not-square": (torch.linalg.cholesky, ones(2, 3)),
    "cholesky_solve-shapes": (torch.cholesky_solve, ones(3, 1), ones(2, 2)),
    "det-not-square": (torch.linalg.det, ones(2, 3)),
    "eigh-triangle": (lambda x: torch.linalg.eigh(x, UPLO="X"), ones(2, 2)),
    "lstsq-shapes": (torch.linalg.lstsq, ones(3, 2), ones(4, 1)),
    "lu_solve-shapes": (torch.linalg.lu_solve, ones(2, 2), ones(2, dtype=torch.int32), ones(3, 1)),
    "matmul-shapes": (torch.matmul, ones(2, 3), ones(4, 3)),
    "matmul-dtypes": (torch.matmul, ones(2, 2), ones(2, 2, dtype=LONG)),
    "bmm-batches": (torch.bmm, ones(2, 2, 2), ones(3, 2, 2)),
    "addmm-bias": (torch.addmm, ones(5), ones(2, 3), ones(3, 4)),
    "linear-shapes": (F.linear, ones(2, 3), ones(4, 2)),
    "einsum-shapes": (lambda a, b: torch.einsum("ij,jk->ik", a, b), ones(2, 3), ones(4, 4)),
    "rfft-complex": (torch.fft.rfft, ones(3, dtype=COMPLEX)),
    "stft-window": (lambda x, w: torch.stft(x, 4, window=w, return_complex=True), ones(16), ones(9)),
    # Element-wise
    "add-shapes": (torch.add, ones(2, 3), ones(4)),
    "add_-shapes": (lambda x, y: x.add_(y), ones(2), ones(3)),
    "add_-floats-to-integers": (lambda x: x.add_(1.5), ints(1)),
    "add-out-dtype": (lambda x, out: torch.add(x, 1.5, out=out), ones(2), ints(1, 1)),
    "add-overlap": (lambda x: x.expand(2, 3).add_(1), ones(3)),
    "sub-bools": (torch.sub, ones(2, dtype=BOOL), ones(2, dtype=BOOL)),
    "bitwise_and-floats": (torch.bitwise_and, ones(2), ones(2)),
    "lgamma-complex": (torch.lgamma, ones(2, dtype=COMPLEX)),
    "fill-of-two-elements": (lambda x, y: x.fill_(y), ones(2), ones(2)),
    "logical_and-shapes": (torch.logical_and, ones(2), ones(3)),
    # Sizes, strides, dimensions
    "empty-negative-size": (lambda device: torch.empty(-1, device=device), CPU),
    "full-negative-size": (lambda device: torch.full((2, -1), 1.0, device=device), CPU),
    "eye-negative-size": (lambda device: torch.eye(-1, device=device), CPU),
    "arange-step": (lambda device: torch.arange(0, 5, -1, device=device), CPU),
    "linspace-negative-steps": (lambda device: torch.linspace(0, 1, -1, device=device), CPU),
    "empty_strided-negative-stride": (lambda device: torch.empty_strided((2,), (-1,), device=device), CPU),
    "view-shape": (lambda x: x.view(3), ones(2)),
    "as_strided-beyond": (lambda x: x.as_strided((9,), (1,)), ones(2)),
    "resize-negative": (lambda x: x.resize_(-1), ones(2)),
    "resize-too-large": (lambda x: x.resize_(1 << 62, 8), ones(2)),
    "set-offset": (lambda x, y: x.set_(y.untyped_storage(), -1, (2,)), ones(2), ones(2)),
    "set-stride": (lambda x, y: x.set_(y.untyped_storage(), 0, (2,), (-1,)), ones(2), ones(2)),
    "transpose-dimension": (lambda x: x.transpose(0, 2), ones(2, 3)),
    "unsqueeze-dimension": (lambda x: x.unsqueeze(5), ones(2)),
    "cat-shapes": (lambda x, y: torch.cat([x, y]), ones(2, 3), ones(2, 4)),
    "cat-dimension": (lambda x: torch.cat([x, x], 2), ones(2, 3)),
    "stack-shapes": (lambda x, y: torch.stack([x, y]), ones(2), ones(3)),
    "split-sizes": (lambda x: x.split([1, 1]), ones(3)),
    "flip-dimension": (lambda x: x.flip(3), ones(3)),
    "tril-of-a-vector": (torch.tril, ones(3)),
    "item-of-two-elements": (lambda x: x.item(), ones(2)),
}

not_finite = torch.full((3, 3), float("nan"))  # LAPACK does not notice that a smaller one is not

OF_THE_STREAM: dict[str, Case] = {
    "put-index": (lambda x, i, s: x.put_(i, s), ones(3), ints(5), ones(1)),
    "embedding": (F.embedding, ints(1, 9), ones(3, 2)),
    "embedding-negative": (F.embedding, ints(-1), ones(3, 2)),
    "embedding_renorm": (lambda i, w: torch.embedding_renorm_(w, i, 1.0, 2.0), ints(9), ones(3, 2)),
    "embedding_bag": (F.embedding_bag, ints(1, 9), ones(3, 2), ints(0)),
    "embedding_bag-first-offset": (F.embedding_bag, ints(1, 2), ones(3, 2), ints(1)),
    "embedding_bag-last-offset": (F.embedding_bag, ints(1, 2), ones(3, 2), ints(0, 7)),
    "index": (lambda x, i: x[i], ones(3), ints(7)),
    "index-negative": (lambda x, i: x[i], ones(3), ints(-4)),
    "index_put": (lambda x, i, v: x.index_put_((i,), v), ones(3), ints(5), ones(1)),
    "index_put-accumulated": (lambda x, i, v: x.index_put_((i,), v, accumulate=True), ones(3), ints(5), ones(1)),
    "index_select": (lambda x, i: x.index_select(0, i), ones(3), ints(3)),
    "index_add": (lambda x, i, s: x.index_add_(0, i, s), ones(3), ints(5), ones(1)),
    "index_copy": (lambda x, i, s: x.index_copy_(0, i, s), ones(3), ints(5), ones(1)),
    "index_fill": (lambda x, i: x.index_fill_(0, i, 2.0), ones(3), ints(5)),
    "index_reduce": (lambda x, i, s: x.index_reduce_(0, i, s, "prod"), ones(3), ints(5), ones(1)),
    "gather": (lambda x, i: x.gather(0, i), ones(3), ints(5)),
    "scatter": (lambda x, i, s: x.scatter_(0, i, s), ones(3), ints(5), ones(1)),
    "scatter-value": (lambda x, i: x.scatter_(0, i, 2.0), ones(3), ints(-4)),
    "scatter_add": (lambda x, i, s: x.scatter_add_(0, i, s), ones(3), ints(5), ones(1)),
    "scatter_reduce": (lambda x, i, s: x.scatter_reduce_(0, i, s, "amax"), ones(3), ints(5), ones(1)),
    "take": (torch.take, ones(3), ints(5)),
    "masked_scatter-too-few": (lambda x, m, s: x.masked_scatter_(m, s), ones(3), ones(3, dtype=BOOL), ones(1)),
    "repeat_interleave-of-another-size": (lambda x, r: x.repeat_interleave(r, output_size=4), ones(2), ints(1, 2)),
    "nll_loss": (F.nll_loss, ones(2, 3), ints(0, 5)),
    "nll_loss2d": (F.nll_loss, ones(1, 3, 1, 1), torch.full((1, 1, 1), 5)),
    "cross_entropy": (F.cross_entropy, ones(2, 3), ints(0, 5)),
    "cross_entropy-negative": (F.cross_entropy, ones(2, 3), ints(0, -5)),
    "binary_cross_entropy-input": (F.binary_cross_entropy, floats(0.5, 1.5), ones(2)),
    "binary_cross_entropy-target": (F.binary_cross_entropy, floats(0.5, 0.5), floats(0.5, 3.0)),
    "multi_margin_loss": (F.multi_margin_loss, ones(2, 3), ints(0, 5)),
    "multilabel_margin_loss": (F.multilabel_margin_loss, ones(1, 3), torch.tensor([[0, 7, -1]])),
    "max_unpool2d": (lambda x, i: F.max_unpool2d(x, i, 2), ones(1, 1, 2, 2), torch.full((1, 1, 2, 2), 99)),
    "histc-not-finite": (lambda x: torch.histc(x, 3), floats(1.0, float("inf"))),
    "normal-negative-deviations": (torch.normal, ones(2), floats(1.0, -1.0)),
    "poisson-negative": (torch.poisson, floats(1.0, -1.0)),
    "multinomial-negative": (lambda x: torch.multinomial(x, 1), floats(1.0, -1.0)),
    "multinomial-zeros": (lambda x: torch.multinomial(x, 1), floats(0.0, 0.0)),
    "floor_divide-by-zero": (torch.floor_divide, ints(1), ints(0)),
    "remainder-by-zero": (torch.remainder, ints(1), ints(0)),
    "fmod-by-zero": (torch.fmod, ints(1), ints(0)),
    "bernoulli-probabilities": (torch.bernoulli, floats(0.5, 2.0)),
}

singular, indefinite = torch.zeros(2, 2), torch.tensor([[1.0, 2.0], [2.0, 1.0]])

WAITS: dict[str, Case] = {
    "inv-singular": (torch.linalg.inv, singular),
    "inv-singular-in-a-batch": (torch.linalg.inv, torch.stack([torch.eye(2), singular])),
    "solve-singular": (torch.linalg.solve, singular, ones(2)),
    "cholesky-indefinite": (torch.linalg.cholesky, indefinite),
    "lu_factor-singular": (torch.linalg.lu_factor, singular),
    "tensorinv-singular": (lambda x: torch.linalg.tensorinv(x, 1), singular),
    "matrix_power-singular": (lambda x: torch.linalg.matrix_power(x, -1), singular),
    "eig-not-finite": (torch.linalg.eig, not_finite),
    "eigh-not-finite": (torch.linalg.eigh, not_finite),
    "eigvalsh-not-finite": (torch.linalg.eigvalsh, not_finite),
    "svd-not-finite": (torch.linalg.svd, not_finite),
    "svdvals-not-finite": (lambda x: torch.linalg.svdvals(x, out=torch.empty_like(x[0])), not_finite),
    "pinv-not-finite": (torch.linalg.pinv, not_finite),
    "pinv-hermitian-not-finite": (lambda x: torch.linalg.pinv(x, hermitian=True), not_finite),
    "matrix_norm-not-finite": (lambda x: torch.linalg.matrix_norm(x, "nuc"), not_finite),
    "bincount-negative": (torch.bincount, ints(-1)),
    "repeat_interleave-negative": (torch.repeat_interleave, ones(2), ints(1, -1)),
    "cholesky_ex-indefinite": (lambda x: torch.linalg.cholesky_ex(x, check_errors=True), indefinite),
    "solve_ex-singular": (lambda a, b: torch.linalg.solve_ex(a, b, check_errors=True), singular, ones(2)),
}

# Of these, no tensor may be on another device than the rest.
ON_ONE_DEVICE: dict[str, Case] = {
    "conv1d": (F.conv1d, ones(1, 2, 8), ones(3, 2, 3), ones(3)),
    "conv2d": (F.conv2d, image, kernel, ones(3)),
    "conv_transpose2d": (F.conv_transpose2d, image, ones(2, 3, 3, 3), ones(3)),
    "batch_norm": (F.batch_norm, ones(2, 3, 4), *[ones(3)] * 4),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (3,), w, b), ones(2, 3), ones(3), ones(3)),
    "group_norm": (lambda x, w, b: F.group_norm(x, 3, w, b), ones(2, 3, 4), ones(3), ones(3)),
    "instance_norm": (lambda x, w, b: F.instance_norm(x, weight=w, bias=b), ones(2, 3, 4), ones(3), ones(3)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (3,), w), ones(2, 3), ones(3)),
    "attention": (sdpa, query, query, query, ones(3, 3)),
    "embedding": (F.embedding, ints(1, 2), ones(3, 2)),
    "embedding_bag": (F.embedding_bag, ints(1, 2), ones(3, 2), ints(0)),
    "gather": (lambda x, i: x.gather(0, i), ones(3), ints(1)),
    "binomial": (torch.binomial, ones(3), ones(3)),
    "scatter": (lambda x, i, s: x.scatter_(0, i, s), ones(3), ints(1), ones(1)),
    "index_add": (lambda x, i, s: x.index_add_(0, i, s), ones(3), ints(1), ones(1)),
    "take": (torch.take, ones(3), ints(1)),
    "put": (lambda x, i, s: x.put_(i, s), ones(3), ints(1), ones(1)),
    "masked_select": (torch.masked_select, ones(3), ones(3, dtype=BOOL)),
    "cross_entropy": (F.cross_entropy, ones(2, 3), ints(0, 1), ones(3)),
    "mse_loss": (F.mse_loss, ones(2), ones(2)),
    "binary_cross_entropy": (F.binary_cross_entropy, ones(2), ones(2), ones(2)),
    "max_unpool2d": (lambda x, i: F.max_unpool2d(x, i, 2), ones(1, 1, 2, 2), ones(1, 1, 2, 2, dtype=LONG)),
    "grid_sample": (lambda x, g: F.grid_sample(x, g, align_corners=False), image, ones(1, 2, 2, 2)),
    "lstm": (
        lambda x, h, c, *w: torch.lstm(x, (h, c), w, *rnn_flags),
        *(ones(4, 1, 3), ones(1, 1, 2), ones(1, 1, 2), *lstm_weights),
    ),
    "gru_cell": (torch.gru_cell, ones(1, 3), ones(1, 2), *gru_weights),
    "foreach_add_": (lambda x, y: torch._foreach_add_([x], [y]), ones(2), ones(2)),
    "fused_adam": (
        lambda p, g, m, v: torch._fused_adam_([p], [g], [m], [v], [], [torch.ones(())], **adam),
        *[ones(2)] * 4,
    ),
    "fused_sgd": (lambda p, g, m: torch._fused_sgd_([p], [g], [m], **sgd, is_first_step=False), *[ones(2)] * 3),
    "unscale": (lambda x, found, scale: unscale([x], found, scale), ones(2), ones(1), ones(1)),
    "normal": (torch.normal, ones(2), ones(2)),
    "solve": (torch.linalg.solve, torch.eye(2), ones(2)),
    "linear": (F.linear, ones(2, 3), ones(4, 3), ones(4)),
    "add": (torch.add, ones(3, 3), ones(3, 3)),
    "add, out": (lambda x, out: torch.add(x, x, out=out), ones(3, 3), ones(3, 3)),
    "mul_": (lambda x, y: x.mul_(y), ones(3, 3), ones(3, 3)),
    "matmul": (torch.matmul, ones(3, 3), ones(3, 3)),
    "cat": (lambda x, y: torch.cat([x, y]), ones(3, 3), ones(3, 3)),
    "where": (lambda x, y: torch.where(x > 0, x, y), ones(3, 3), ones(3, 3)),
    "masked_fill_": (lambda x, y: x.masked_fill_(y > 0, 1.0), ones(3, 3), ones(3, 3)),
    "lstsq": (torch.linalg.lstsq, torch.eye(3), ones(3, 3)),  # synchronous
}

RANDOM: dict[str, Callable[[str, torch.Generator], torch.Tensor]] = {
    "uniform": lambda device, generator: torch.zeros(3, device=device).uniform_(generator=generator),
    "normal": lambda device, generator: torch.zeros(3, device=device).normal_(generator=generator),
    "exponential": lambda device, generator: torch.zeros(3, device=device).exponential_(generator=generator),
    "bernoulli": lambda device, generator: torch.zeros(3, device=device).bernoulli_(generator=generator),
    "random": lambda device, generator: torch.zeros(3, device=device).random_(generator=generator),
    "randn": lambda device, generator: torch.randn(3, device=device, generator=generator),
    "randint": lambda device, generator: torch.randint(3, (2,), device=device, generator=generator),
}


def arguments_on(device: str, case: Case) -> Any:
    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.clone().to(device)
        return torch.device(device) if leaf == CPU else leaf

    return tree_map(move, case[1:])


def error_on_cpu(case: Case) -> Exception:
    with pytest.raises(Exception) as raised:
        case[0](*arguments_on("cpu", case))
    return raised.value


def sentence(text: BaseException | str) -> str:
    """What was said, with one spelling of the types of tensors, which name their device (openregFloatType).

    Since torch 2.14 errors of products begin with the operator's name: an RNN calls `mm` on devices, `addmm` on CPUs.
    """
    text = re.sub(r"^(add)?mm: ", "", str(text))
    return re.sub(r"torch\.(\w+)Tensor|(?:CPU|openreg)(\w+)Type", r"\1\2 tensor", text).rstrip(".")


def assert_raises_as_the_cpu(case: Case) -> None:
    expected = error_on_cpu(case)
    arguments = arguments_on(DEVICE, case)
    torch.accelerator.synchronize()
    with pytest.raises(type(expected)) as raised:
        case[0](*arguments)
    assert type(raised.value) is type(expected)  # an error of the stream would be a torch.AcceleratorError
    assert sentence(raised.value) == sentence(expected)
    assert_the_device_works()


def assert_the_device_works() -> None:
    torch.accelerator.synchronize()  # raises what is pending
    assert (torch.ones(2, device=DEVICE) + 1).tolist() == [2.0, 2.0]


@pytest.fixture
def refuse_to_wait() -> Iterator[Callable[[], None]]:
    """A function that makes each wait of the host an error, until the end of the test or `set_sync_debug_mode`."""
    yield lambda: torch.openreg.set_sync_debug_mode("error")
    torch.openreg.set_sync_debug_mode("default")


@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter")
@pytest.mark.parametrize("case", AT_CALL.values(), ids=AT_CALL)
def test_what_needs_no_elements_raises_at_the_call(case):
    for _ in range(2):  # what the first call has taught must not change the second
        assert_raises_as_the_cpu(case)


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("case", OF_THE_STREAM.values(), ids=OF_THE_STREAM)
def test_what_a_kernel_finds_is_an_error_of_the_stream(case, refuse_to_wait):
    expected = error_on_cpu(case)
    for _ in range(2):
        arguments = arguments_on(DEVICE, case)
        after = torch.zeros(2, device=DEVICE)
        torch.accelerator.synchronize()
        refuse_to_wait()
        case[0](*arguments)
        after += 1
        torch.openreg.set_sync_debug_mode("default")
        with pytest.raises(torch.AcceleratorError) as raised:
            torch.accelerator.synchronize()
        message = re.fullmatch(
            r"openreg: aten::\S+ failed on openreg:0, stream 0"
            r"(?:, launched by \S+:\d+ in \S+)?: (.*)\. Later work on that stream was skipped; "
            r"set (?:TORCH_OPENREG_STACKS=1 to report the line of the call, or )?"
            r"TORCH_OPENREG_LAUNCH_BLOCKING=1 to raise the error at the call",
            str(raised.value),
            re.DOTALL,
        )
        assert message is not None, raised.value
        assert sentence(message[1]) == sentence(expected)
        assert after.tolist() == [0.0, 0.0]
        assert_the_device_works()


@pytest.mark.parametrize("case", WAITS.values(), ids=WAITS)
def test_what_reads_elements_at_the_call_waits_and_raises(case, refuse_to_wait):
    assert_raises_as_the_cpu(case)
    arguments = arguments_on(DEVICE, case)
    refuse_to_wait()
    with pytest.raises(RuntimeError, match="called a synchronizing openreg operation"):
        case[0](*arguments)


@pytest.mark.any_device
@pytest.mark.parametrize("other", ["cpu", f"{DEVICE}:1"])
@pytest.mark.parametrize("case", ON_ONE_DEVICE.values(), ids=ON_ONE_DEVICE)
def test_a_tensor_of_another_device_is_refused_at_the_call(case, other):
    function, *arguments = case
    function(*arguments_on(f"{DEVICE}:0", case))
    for odd in range(len(arguments)):
        mixed = [tensor.clone().to(other if i == odd else f"{DEVICE}:0") for i, tensor in enumerate(arguments)]
        with pytest.raises(RuntimeError) as raised:
            function(*mixed)
        assert type(raised.value) is RuntimeError
        assert f"{DEVICE}:0" in str(raised.value) and other in str(raised.value)
    assert_the_device_works()


@pytest.mark.parametrize("draw", RANDOM.values(), ids=RANDOM)
def test_a_generator_of_another_device_is_refused_at_the_call(draw):
    with pytest.raises(RuntimeError) as expected:
        draw("cpu", torch.Generator(DEVICE))
    with pytest.raises(RuntimeError) as raised:
        draw(DEVICE, torch.Generator("cpu"))
    swapped = {"cpu": DEVICE, DEVICE: "cpu"}
    assert str(raised.value) == re.sub(r"cpu|openreg", lambda name: swapped[name[0]], str(expected.value))
    with pytest.raises(RuntimeError, match="belongs to another device \\(got openreg:1, expected openreg:0\\)"):
        draw(f"{DEVICE}:0", torch.Generator(f"{DEVICE}:1"))
    assert_the_device_works()
