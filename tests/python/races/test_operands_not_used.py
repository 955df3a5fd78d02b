"""What an operator is given and does not read or write needs no order; what it uses does.

Each case is a call, with tensors that it does not use (under the condition that the case's name states) and tensors
that it does, which both may be parts of its operands. All operators' operands: `tests/census/operands.py`, here by a
slice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from censuses import run_census
from torch import nn

DEVICE = "openreg"
aten = torch.ops.aten


class Case(NamedTuple):
    """A call, and what it does with its operands."""

    call: Callable[[], Any]
    unused: Sequence[torch.Tensor] = ()
    used: Sequence[torch.Tensor] = ()
    only_read: Sequence[torch.Tensor] = ()


CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


def ones(*sizes: int, **options: Any) -> torch.Tensor:
    return torch.ones(*sizes, device=DEVICE, **options)


def integers(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.long, device=DEVICE)


# Normalisation


@case
def batch_norm_in_evaluation_reads_its_statistics():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to(DEVICE).eval()
    x = ones(2, 3, 8, 8)
    return Case(lambda: model(x), only_read=[model[1].running_mean, model[1].running_var, model[1].weight])


@case
def the_functional_form_of_batch_norm_in_evaluation():
    x, mean, var = ones(2, 4, 3), ones(4), ones(4)
    return Case(
        lambda: aten._native_batch_norm_legit(x, None, None, mean, var, False, 0.1, 1e-5), only_read=[mean, var, x]
    )


@case
def the_gradient_of_batch_norm_in_training_needs_no_running_statistics():
    x, mean, var, saved = ones(2, 4, 3), ones(4), ones(4), ones(4)
    return Case(
        lambda: aten.native_batch_norm_backward(
            x, x * 1, None, mean, var, saved, saved * 1, True, 1e-5, [True, True, True]
        ),
        unused=[mean, var],
        used=[saved],
    )


@case
def the_gradient_of_batch_norm_in_evaluation_needs_no_saved_statistics():
    x, mean, var, saved, inverse = ones(2, 4, 3), ones(4), ones(4), ones(4), ones(4)
    return Case(
        lambda: aten.native_batch_norm_backward(
            x, x * 1, None, mean, var, saved, inverse, False, 1e-5, [True, True, True]
        ),
        unused=[saved, inverse],
        used=[var],
    )


@case
def a_gradient_that_is_not_asked_for_needs_no_weight():
    x, weight, grad = ones(1, 2, 6, 6), ones(3, 2, 3, 3), ones(1, 3, 4, 4)

    def gradients(*mask: bool) -> Any:
        return aten.convolution_backward(grad, x, weight, [3], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, list(mask))

    return Case(lambda: gradients(False, True, True), unused=[weight], used=[x, grad])


@case
def layer_norm_with_a_bias():
    x, weight, bias = ones(4, 8), ones(8), ones(8)
    mean, inverse = ones(4, 1), ones(4, 1)
    return Case(
        lambda: aten.native_layer_norm_backward(x, x * 1, [8], mean, inverse, weight, bias, [True, True, True]),
        unused=[bias],
        used=[weight],
    )


# Factors that are 0


@case
def what_is_scaled_by_0_and_added_to_a_product():
    added, vector, matrix, batch = ones(8, 8), ones(8), ones(8, 8), ones(2, 8, 8)
    batched = ones(2, 8, 8)

    def call() -> None:
        torch.addmm(added, matrix, matrix, beta=0, alpha=0.5)
        torch.addbmm(added, batch, batch, beta=0.0)
        torch.addr(added, vector, vector, beta=0)
        torch.baddbmm(batched, batch, batch, beta=0)

    return Case(call, unused=[added, batched], used=[batch, matrix])


@case
def a_product_in_float32_of_half_precision_that_ignores_what_it_is_added_to():
    added, matrix = ones(8, 8), ones(8, 8, dtype=torch.bfloat16)
    return Case(
        lambda: torch.addmm(added, matrix, matrix, beta=0, out_dtype=torch.float32), unused=[added], used=[matrix]
    )


@case
def the_factor_is_not_0():
    added, matrix = ones(8, 8), ones(8, 8)
    return Case(lambda: torch.addmm(added, matrix, matrix, beta=0.5), used=[added])


@case
def the_power_0():
    x = ones(8)
    return Case(lambda: torch.pow(x, 0), unused=[x])


# Only the shape


@case
def gradients_of_pooling_and_padding():
    x, grad = ones(1, 2, 4, 4), ones(1, 2, 2, 2)
    indices = torch.zeros(1, 2, 2, 2, dtype=torch.long, device=DEVICE)

    def call() -> None:
        aten.avg_pool2d_backward(grad, x, [2, 2], [2, 2], [0, 0], False, True, None)
        aten._adaptive_avg_pool2d_backward(grad, x)
        aten.max_pool2d_with_indices_backward(grad, x, [2, 2], [2, 2], [0, 0], [1, 1], False, indices)
        aten.reflection_pad2d_backward(ones(1, 2, 6, 6), x, [1, 1, 1, 1])
        aten.replication_pad2d_backward(ones(1, 2, 6, 6), x, [1, 1, 1, 1])

    return Case(call, unused=[x], used=[grad, indices])


@case
def the_gradient_of_nll_loss():
    scores, target, grad, total = ones(4, 8), integers(0, 1, 2, 3), ones(4), ones(())
    return Case(
        lambda: aten.nll_loss_backward(grad, scores, target, None, 0, -100, total),
        unused=[scores, total],
        used=[grad, target],
    )


# Elements that depend on values, or on their places


@case
def experts_without_tokens():
    weights, x = ones(4, 16, 16, dtype=torch.bfloat16), ones(32, 16, dtype=torch.bfloat16)
    ends = torch.tensor([16, 32, 32, 32], device=DEVICE, dtype=torch.int32)
    return Case(lambda: torch._grouped_mm(x, weights, offs=ends), unused=[weights[3]], used=[weights, ends])


@case
def weights_of_classes_that_do_not_occur():
    scores, target, weight = ones(4, 8), integers(0, 1, 0, 1), ones(8)
    return Case(lambda: F.nll_loss(scores, target, weight=weight), unused=[weight[4:]], used=[weight])


@case
def where_the_condition_is_false():
    condition, x, y = torch.arange(8, device=DEVICE) < 4, ones(8), ones(8)
    return Case(lambda: torch.where(condition, x, y), unused=[x[4:], y[:4]], used=[x, y, condition])


@case
def one_side_of_the_diagonal():
    x = ones(8, 8)
    return Case(lambda: torch.tril(x), unused=[x[0, 1:]], used=[x])


@case
def in_place_on_one_side_of_the_diagonal():
    x = ones(8, 8)
    return Case(lambda: x.triu_(), unused=[x[0, 1:]], used=[x])


@case
def sequences_without_their_padding():
    values, ends = ones(6, 4), integers(0, 2, 4)
    return Case(lambda: aten._jagged_to_padded_dense_forward(values, [ends], [3]), unused=[values[4:]], used=[values])


@case
def as_far_as_a_search_goes():
    numbers, order = torch.arange(8.0, device=DEVICE), torch.arange(8, device=DEVICE)
    return Case(
        lambda: torch.searchsorted(numbers, ones(1), sorter=order),
        unused=[numbers[7:], order[7:]],
        used=[numbers, order],
    )


# Nothing to compute


@case
def the_gradient_of_a_norm_of_no_rows():
    nothing, weight, none = ones(0, 8), ones(8), ones(0, 1)
    return Case(
        lambda: aten.native_layer_norm_backward(nothing, nothing, [8], none, none, weight, weight, [True] * 3),
        unused=[weight],
    )


@case
def a_result_without_elements():
    nothing, weight, bias = ones(0, 8), ones(8, 8), ones(8)
    return Case(lambda: (F.linear(nothing, weight, bias), nothing + bias, nothing * weight[0]), unused=[weight, bias])


@case
def an_index_without_elements():
    none, table, x, values = integers(), ones(10, 8), ones(10, 8), ones(0, 8)
    scattered = none.view(0, 8)

    def call() -> None:
        F.embedding(none, table)
        torch.index_select(table, 0, none)
        x.index_add_(0, none, values)
        x.index_copy_(0, none, values)
        x.index_fill_(0, none, 2)
        x.index_put_((none,), table[0])
        x.scatter_(0, scattered, table)
        x.scatter_add_(0, scattered, table)
        x[none] = 1

    return Case(call, unused=[table, x])


@case
def an_index_with_elements():
    some, table, x = integers(1), ones(10, 8), ones(10, 8)

    def call() -> None:
        x.index_add_(0, some, table[:1])
        x.index_put_((some,), table[0])

    return Case(call, used=[table, x])


@case
def an_index_without_elements_from_another_index():
    empty, x, y = torch.zeros(0, 2, dtype=torch.long, device=DEVICE), ones(10, 2), ones(10, 2)
    return Case(lambda: (torch.gather(x, 0, empty), torch.take(y, empty)), unused=[x, y])


def refused(access: Callable[[], Any], side: torch.Stream) -> bool:
    """Whether the detector reports an access on another stream, without an order."""
    try:
        with torch.openreg.stream(side):
            access()
    except torch.openreg.UnsynchronizedAccessError:
        return True
    finally:
        torch.openreg.synchronize()
    return False


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_an_order_is_asked_for_if_the_operand_is_used(name):
    made = CASES[name]()
    side = torch.openreg.Stream()

    def after_the_call(access: Callable[[], Any]) -> bool:
        torch.openreg.synchronize()
        made.call()
        return refused(access, side)

    for i, tensor in enumerate(made.unused):
        assert not after_the_call(lambda t=tensor: t.fill_(2)), f"unused tensor {i}"
    for i, tensor in enumerate(made.only_read):
        assert not after_the_call(lambda t=tensor: t * 1), f"tensor {i} is only read"
    for i, tensor in enumerate([*made.used, *made.only_read]):
        assert after_the_call(lambda t=tensor: t.fill_(1)), f"used tensor {i}"


@pytest.mark.parametrize("replay", [False, True], ids=["captured twice", "replayed"])
@torch.no_grad()
def test_graphs_that_evaluate_batch_norm_beside_reads_of_its_statistics(replay):
    model = nn.BatchNorm2d(4).to(DEVICE).eval()
    x = ones(2, 4, 8, 8)
    torch.openreg.synchronize()
    side, graph = torch.openreg.Stream(), torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        result = model(x)
        if not replay:
            second = model(x)
    torch.openreg.synchronize()
    graph.replay()
    assert not refused(lambda: model.running_mean * 1, side)
    graph.replay()
    assert refused(lambda: model.running_mean.zero_(), side)
    assert replay or torch.equal(result, second)


@torch.no_grad()
def test_a_host_that_computes_a_call_in_evaluation_does_not_write_the_statistics():
    x, statistics = ones(2, 4, 3), ones(4)
    torch.openreg.synchronize()
    side = torch.openreg.Stream()
    statistics * 1
    with torch.openreg.stream(side):  # one tensor for both: the calling thread computes it
        aten._native_batch_norm_legit(x, None, None, statistics, statistics, False, 0.1, 1e-5)
    statistics * 1
    with pytest.raises(torch.openreg.UnsynchronizedAccessError), torch.openreg.stream(side):
        aten._native_batch_norm_legit(x, None, None, statistics, statistics, True, 0.1, 1e-5)


# PyTorch's operator and module databases


def test_operands_in_a_slice(tmp_path):
    """One entry of the databases in 48, with two samples of each."""
    results = run_census(tmp_path, "--slice", "--samples", "2", program="operands.py")
    assert sum(result["samples"] for result in results) >= 40


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_operands_of_all_operators_and_modules(tmp_path):
    """All entries, some 8,200 calls: in about 15 minutes on two cores."""
    results = run_census(tmp_path, program="operands.py")
    assert sum(result["samples"] for result in results) >= 5_000
