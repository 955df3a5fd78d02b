"""The operators of SyncBatchNorm: batch normalisation of parts equals that of the whole."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from devices import DEVICE
from torch import nn
from torch.testing import assert_close
from waits import assert_close_to, waits_allowed

CHANNELS = 5
EPS = 1e-3
MOMENTUM = 0.3

LAYOUTS = {
    "2D": lambda: torch.randn(7, CHANNELS),
    "3D": lambda: torch.randn(4, CHANNELS, 6),
    "4D": lambda: torch.randn(4, CHANNELS, 3, 2),
    "channels last": lambda: torch.randn(4, CHANNELS, 3, 2).to(memory_format=torch.channels_last),
    "5D, channels last": lambda: torch.randn(2, CHANNELS, 3, 2, 2).to(memory_format=torch.channels_last_3d),
    "strided": lambda: torch.randn(8, 2 * CHANNELS, 3)[::2, ::2],
    "transposed": lambda: torch.randn(3, CHANNELS, 6).transpose(0, 2),
}
TYPES = [
    (torch.float64, torch.float64),
    (torch.float32, torch.float32),
    (torch.float16, torch.float32),
    (torch.bfloat16, torch.float32),
]
TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}


pytestmark = [pytest.mark.any_device, pytest.mark.usefixtures("seeded")]


def compare(got: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    assert_close_to(got, expected, TOLERANCES[dtype])


def statistics(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and 1 / deviation of each channel, in float64."""
    rows = x.double().transpose(0, 1).flatten(1)
    return rows.mean(1), (rows.var(1, correction=0) + EPS).rsqrt()


def per_channel(vector: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return vector.view(1, -1, *[1] * (like.dim() - 2))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "wide"), TYPES)
def test_statistics_are_those_of_each_channel_and_wide(layout, dtype, wide, no_waits):
    x = LAYOUTS[layout]().to(dtype)
    device_x = x.to(DEVICE, non_blocking=True)
    mean, invstd = torch.batch_norm_stats(device_x, EPS)
    assert mean.dtype == invstd.dtype == wide
    assert mean.shape == invstd.shape == (CHANNELS,)
    for got, expected in zip((mean, invstd), statistics(x), strict=True):
        compare(got, expected, wide)


def test_statistics_of_large_means_keep_their_digits():
    x = torch.randn(64, CHANNELS, 50) + 1000
    _, invstd = torch.batch_norm_stats(x.to(DEVICE), EPS)
    assert_close(invstd.cpu().double(), statistics(x)[1], rtol=1e-3, atol=0)


def test_statistics_of_nothing_are_nan():
    mean, invstd = torch.batch_norm_stats(torch.empty(0, 3, 2, device=DEVICE), EPS)
    assert mean.isnan().all()
    assert invstd.isnan().all()
    mean, invstd = torch.batch_norm_stats(torch.empty(2, 0, 2, device=DEVICE), EPS)
    assert mean.shape == invstd.shape == (0,)
    for shape in ((0, 3, 2), (2, 0, 2)):
        x = torch.empty(shape, device=DEVICE)
        channels = [torch.ones(shape[1], device=DEVICE)] * 4
        assert torch.batch_norm_elemt(x, *channels, EPS).shape == shape
        sums = torch.batch_norm_backward_reduce(x, x, *channels[:3], True, True, True)
        assert all(torch.equal(each.cpu(), torch.zeros(shape[1])) for each in sums)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "wide"), TYPES)
@pytest.mark.parametrize("affine", [True, False])
def test_elements_are_normalized_in_the_layout_of_the_input(layout, dtype, wide, affine, no_waits):
    x = LAYOUTS[layout]().to(dtype)
    mean, invstd, weight, bias = torch.randn(4, CHANNELS, dtype=wide)
    expected = (x.double() - per_channel(mean, x)) * per_channel(invstd, x)
    if affine:
        expected = expected * per_channel(weight, x) + per_channel(bias, x)
    device_x, *vectors = (t.to(DEVICE, non_blocking=True) for t in (x, weight, bias, mean, invstd))
    if not affine:
        vectors[:2] = None, None
    out = torch.batch_norm_elemt(device_x, *vectors, EPS)
    assert out.dtype == dtype
    assert out.stride() == torch.empty_like(x, memory_format=torch._prims_common.suggest_memory_format(x)).stride()
    compare(out, expected, dtype)

    given = torch.empty(0, dtype=dtype, device=DEVICE)
    assert torch.batch_norm_elemt(device_x, *vectors, EPS, out=given) is given
    with waits_allowed():
        assert torch.equal(given, out)


@pytest.mark.parametrize(("dtype", "wide"), TYPES)
@pytest.mark.parametrize("tracked", [True, False])
def test_statistics_of_unequal_parts_make_those_of_the_whole(dtype, wide, tracked, no_waits):
    x = torch.randn(9, CHANNELS, 4).to(dtype)
    parts = x.split([2, 6, 1])
    running = [torch.randn(CHANNELS, dtype=wide), torch.rand(CHANNELS, dtype=wide)]
    device_running = [r.to(DEVICE, non_blocking=True) for r in running] if tracked else [None, None]
    found = [torch.batch_norm_stats(part.to(DEVICE, non_blocking=True), EPS) for part in parts]
    means, invstds = (torch.stack(each) for each in zip(*found, strict=True))
    counts = torch.tensor([part.shape[0] * part.shape[2] for part in parts], dtype=wide)
    device_x, device_counts = (t.to(DEVICE, non_blocking=True) for t in (x, counts))
    mean, invstd = torch.batch_norm_gather_stats_with_counts(
        device_x, means, invstds, *device_running, MOMENTUM, EPS, device_counts
    )
    assert mean.dtype == invstd.dtype == wide
    for got, expected in zip((mean, invstd), statistics(x), strict=True):
        compare(got, expected, wide)
    if tracked:
        F.batch_norm(x.to(wide), *running, training=True, momentum=MOMENTUM)
        for got, expected in zip(device_running, running, strict=True):
            compare(got, expected, wide)


def test_statistics_of_equal_parts_need_one_count(no_waits):
    x = torch.randn(8, CHANNELS, 4)
    running = [torch.zeros(CHANNELS), torch.ones(CHANNELS)]
    device_running = [r.to(DEVICE, non_blocking=True) for r in running]
    found = [torch.batch_norm_stats(part.to(DEVICE, non_blocking=True), EPS) for part in x.split(2)]
    means, invstds = (torch.stack(each) for each in zip(*found, strict=True))
    device_x = x.to(DEVICE, non_blocking=True)
    got = torch.batch_norm_gather_stats(device_x, means, invstds, *device_running, MOMENTUM, EPS, 2 * 4)
    for g, e in zip(got, statistics(x), strict=True):
        compare(g, e, torch.float32)
    F.batch_norm(x, *running, training=True, momentum=MOMENTUM)
    for g, e in zip(device_running, running, strict=True):
        compare(g, e, torch.float32)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "wide"), TYPES)
@pytest.mark.parametrize("affine", [True, False])
def test_gradients_are_those_of_batch_norm(layout, dtype, wide, affine, no_waits):
    x = LAYOUTS[layout]().to(dtype)
    weight = torch.rand(CHANNELS, dtype=wide) + 0.5
    grad = torch.randn_like(x)
    leaves = [x.double().requires_grad_(), weight.double().requires_grad_(), torch.zeros(CHANNELS).double()]
    leaves[2].requires_grad_()
    F.batch_norm(leaves[0], None, None, *(leaves[1:] if affine else [None, None]), training=True, eps=EPS).backward(
        grad.double()
    )

    device_x, device_grad = (t.to(DEVICE, non_blocking=True) for t in (x, grad))
    device_weight = weight.to(DEVICE, non_blocking=True) if affine else None
    mean, invstd = torch.batch_norm_stats(device_x, EPS)
    sum_dy, sum_dy_xmu, grad_weight, grad_bias = torch.batch_norm_backward_reduce(
        device_grad, device_x, mean, invstd, device_weight, True, affine, affine
    )
    assert sum_dy.dtype == sum_dy_xmu.dtype == wide
    count = torch.tensor([x.numel() // CHANNELS], dtype=torch.int32).to(DEVICE, non_blocking=True)
    grad_input = torch.batch_norm_backward_elemt(
        device_grad, device_x, mean, invstd, device_weight, sum_dy, sum_dy_xmu, count
    )
    assert grad_input.dtype == dtype
    compare(grad_input, leaves[0].grad, dtype)
    compare(sum_dy, per_channel_sum(grad), wide)
    if affine:
        assert grad_weight.dtype == grad_bias.dtype == wide
        compare(grad_weight, leaves[1].grad, dtype)
        compare(grad_bias, leaves[2].grad, dtype)


def per_channel_sum(x: torch.Tensor) -> torch.Tensor:
    return x.double().transpose(0, 1).flatten(1).sum(1)


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True)])
def test_unused_gradients_are_not_computed(wanted):
    x, grad = torch.randn(2, 4, 3, 2, device=DEVICE).unbind()
    mean, invstd = torch.batch_norm_stats(x, EPS)
    results = torch.batch_norm_backward_reduce(grad, x, mean, invstd, torch.ones(3, device=DEVICE), *wanted)
    input_g, weight_g, bias_g = wanted
    assert [r is not None for r in results] == [input_g, input_g, weight_g, bias_g]


def vectors(n: int = CHANNELS, **options) -> torch.Tensor:
    return torch.ones(n, device=DEVICE, **options)


def image(**options) -> torch.Tensor:
    return torch.ones(2, CHANNELS, 3, device=DEVICE, **options)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: torch.batch_norm_stats(image(dtype=torch.int64), EPS),
            NotImplementedError,
            "not implemented for 'Long'",
        ),
        (lambda: torch.batch_norm_stats(vectors(), EPS), RuntimeError, "at least 2D"),
        (
            lambda: torch.batch_norm_elemt(image(), None, None, vectors(4), vectors(), EPS),
            RuntimeError,
            "each of the 5 channels",
        ),
        (
            lambda: torch.batch_norm_elemt(image(), None, None, vectors(), vectors(), EPS, out=vectors().half()),
            RuntimeError,
            "expected out of dtype Float",
        ),
        (
            lambda: torch.batch_norm_elemt(image(), None, None, torch.ones(CHANNELS), vectors(), EPS),
            RuntimeError,
            "same device",
        ),
        (
            lambda: torch.batch_norm_gather_stats_with_counts(
                image(), image()[0].t(), image()[0].t(), None, None, MOMENTUM, EPS, vectors(2)
            ),
            RuntimeError,
            "a count for each of the 3 rows",
        ),
        (
            lambda: torch.batch_norm_gather_stats_with_counts(
                image(), image()[0].t(), image()[0].t(), vectors(), None, MOMENTUM, EPS, vectors(3)
            ),
            RuntimeError,
            "both running statistics or none",
        ),
        (
            lambda: torch.batch_norm_gather_stats_with_counts(
                image(), image()[0].t(), image()[0].t(), vectors(), vectors(), MOMENTUM, EPS, vectors(3).double()
            ),
            RuntimeError,
            "expected scalar type Float but found Double",
        ),
        (
            lambda: torch.batch_norm_backward_reduce(
                image()[:1], image(), vectors(), vectors(), None, True, False, False
            ),
            RuntimeError,
            "a gradient of the input's shape",
        ),
        (
            lambda: torch.batch_norm_backward_reduce(
                image(), image(), vectors(), vectors().double(), None, True, False, False
            ),
            RuntimeError,
            "mean and invstd need to have the same data types",
        ),
        (
            lambda: torch.batch_norm_backward_elemt(image(), image(), *[vectors()] * 5, vectors(1)),
            RuntimeError,
            "expected scalar type Int but found Float",
        ),
    ],
)
def test_wrong_arguments_raise_at_the_call(call, error, message):
    with pytest.raises(error, match=message):
        call()


def train(module: nn.Module, x: torch.Tensor, grad: torch.Tensor) -> list[torch.Tensor]:
    x = x.detach().requires_grad_()
    y = module(x)
    y.backward(grad)
    return [y.detach(), x.grad, *(p.grad for p in module.parameters())]


def test_sync_batch_norm_of_two_processes_equals_batch_norm_of_all(monkeypatch):
    threaded = pytest.importorskip("torch.testing._internal.distributed.multi_threaded_pg")

    if torch.accelerator.device_count() < 2:
        pytest.skip("two processes with a device each")
    x, grad = torch.randn(2, 6, CHANNELS, 4).unbind()
    whole = nn.BatchNorm1d(CHANNELS)
    nn.init.uniform_(whole.weight)
    module = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(whole))
    expected = train(whole, x, grad)
    parts = [2, 4]

    def process(rank: int) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
        dist.init_process_group("threaded", rank=rank, world_size=len(parts), store=store)
        try:
            device = f"{DEVICE}:{rank}"
            mine = [t.split(parts)[rank].to(device) for t in (x, grad)]
            replica = copy.deepcopy(module).to(device)
            return [t.cpu() for t in train(replica, *mine)], {k: v.cpu() for k, v in replica.state_dict().items()}
        except BaseException:
            threaded.ProcessLocalGroup.exception_handle(None)  # the other does not wait for this one
            raise
        finally:
            dist.destroy_process_group()

    # By this name SyncBatchNorm gathers into a list, where groups of threads do not get rows and columns wrong.
    monkeypatch.setattr(threaded.ProcessLocalGroup, "_get_backend_name", lambda _: "gloo", raising=False)
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    threaded._install_threaded_pg()
    store = dist.HashStore()
    try:
        with ThreadPoolExecutor(len(parts)) as threads:
            results = list(threads.map(process, range(len(parts))))
    finally:
        threaded._uninstall_threaded_pg()
        torch._C._distributed_c10d._set_thread_isolation_mode(False)
    outputs, input_grads, *parameter_grads = zip(*(tensors for tensors, _ in results), strict=True)
    assert_close(torch.cat(outputs), expected[0])
    assert_close(torch.cat(input_grads), expected[1])
    for got, one in zip(parameter_grads, expected[2:], strict=True):
        assert_close(sum(got), one)
    for _, state in results:
        assert_close(state, dict(whole.state_dict()))
