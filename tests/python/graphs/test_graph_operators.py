"""Operators in graphs: each replay computes with the elements of now, and gives the bits that the call gives.

Most element-wise operators and reductions keep their iterators from one replay to the next: dtypes that differ, shapes
that are broadcast, numbers, strides and given outputs are what such an iterator depends on. PyTorch's own samples of
operators are replayed by the census (``--check graphs``).
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from slices import one_in
from torch.utils._pytree import tree_leaves

openreg = torch.openreg
REPLAYS = 4  # the second one makes what is kept, the third proves it
DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)


@pytest.fixture(autouse=True)
def _same_bits(deterministic: None) -> Iterator[None]:
    """Sums are rounded alike, whoever runs a command: an engine, or a host that waits and has more threads."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def elements(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if dtype.is_floating_point:
        return (torch.rand(shape, generator=generator) * 3 + 0.1).to(dtype)
    return torch.randint(1, 9, shape, generator=generator).to(dtype)


def tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def bits(value: Any) -> list[bytes]:
    return [leaf.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes() for leaf in tensors(value)]


def check(work: Callable[..., Any], *inputs: torch.Tensor) -> None:
    """Replays `work` on other elements of the inputs, which it may change: these count as results, too."""

    def feed(seed: int) -> None:
        for i, tensor in enumerate(inputs):
            with torch.no_grad():
                tensor.copy_(elements(tuple(tensor.shape), tensor.dtype, 10 * seed + i))

    feed(0)
    work(*inputs)
    graph = openreg.CUDAGraph()
    with openreg.graph(graph):
        results = work(*inputs)
    for seed in range(REPLAYS):
        feed(seed)
        openreg.manual_seed(seed)
        expected = bits(work(*inputs)), bits(inputs)
        feed(seed)
        openreg.manual_seed(seed)
        graph.replay()
        assert (bits(results), bits(inputs)) == expected, f"replay {seed}"


def new(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device="openreg")


BINARY = {
    name: getattr(torch, name)
    for name in (
        "add sub mul div true_divide floor_divide remainder fmod maximum minimum fmax fmin pow atan2 hypot copysign "
        "nextafter logaddexp xlogy eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or "
        "bitwise_xor bitwise_left_shift gcd lcm heaviside float_power"
    ).split()
}
FEW = ("add", "pow", "lt")  # in every run
OF_INTEGERS = ("floor_divide", "fmod", "remainder")  # which cannot be divided by zero


def takes(work: Callable[..., Any], *inputs: torch.Tensor) -> bool:
    try:
        work(*inputs)
        openreg.synchronize()
    except (RuntimeError, NotImplementedError, TypeError):
        return False
    return True


EACH_OPERATOR = pytest.mark.parametrize(
    "operator",
    [pytest.param(BINARY[name], id=name, marks=() if name in FEW else (pytest.mark.full,)) for name in BINARY],
)


@EACH_OPERATOR
def test_two_tensors_of_all_dtypes(operator):
    checked = 0
    for a, b in itertools.product(DTYPES, DTYPES):
        inputs = new(3, 5, dtype=a), new(3, 5, dtype=b)
        if b == torch.bool and operator.__name__ in OF_INTEGERS:
            continue
        if takes(operator, *inputs):
            check(operator, *inputs)
            checked += 1
    assert checked >= 4


@EACH_OPERATOR
def test_broadcast_strided_and_shared_tensors(operator):
    dtype = torch.float32 if takes(operator, new(2), new(2)) else torch.int64
    base = new(6, 8, dtype=dtype)
    check(operator, new(6, 8, dtype=dtype), new(8, dtype=dtype))
    check(operator, new(6, 1, dtype=dtype), new(1, 8, dtype=dtype))
    check(operator, new(8, 6, dtype=dtype).T, new(6, 8, dtype=dtype))
    check(lambda x: operator(x[::2, 1::3], x[1::2, ::3]), base)
    check(lambda x: operator(x, x), base)
    check(lambda x, y: operator(x.expand(4, 6, 8), y), base, new(6, 8, dtype=dtype))
    check(operator, new(0, 8, dtype=dtype), new(8, dtype=dtype))
    check(operator, new(dtype=dtype), new(dtype=dtype))
    check(operator, new(2, 3, 2, 3, 2, dtype=dtype).permute(4, 2, 0, 3, 1), new(2, 1, 3, dtype=dtype))
    check(operator, new(70000, dtype=dtype), new(70000, dtype=dtype))


@EACH_OPERATOR
def test_numbers_and_tensors_of_the_cpu_without_dimensions(operator):
    checked = 0
    for dtype, number in itertools.product(DTYPES, (2, 2.5, True)):
        x = new(3, 5, dtype=dtype)
        for other in (number, torch.tensor(number)):
            for work in (lambda x, other=other: operator(x, other), lambda x, other=other: operator(other, x)):
                if takes(work, x):
                    check(work, x)
                    checked += 1
    assert checked >= 2


@EACH_OPERATOR
def test_given_outputs_and_changes_in_place(operator):
    checked = 0
    for a, b, out in itertools.product((torch.float32, torch.float16, torch.int64), repeat=3):
        target = new(5, 3, dtype=out).T
        for work in (
            lambda x, y, out: operator(x, y, out=out),
            lambda x, y, out: operator(x, y, out=out[:, ::1]),
            lambda x, y, out: operator(out, y, out=out),
        ):
            if takes(work, new(3, 5, dtype=a), new(3, 5, dtype=b), target):
                check(work, new(3, 5, dtype=a), new(3, 5, dtype=b), target)
                checked += 1
    in_place = getattr(torch.Tensor, f"{operator.__name__}_", None)
    for a, b in itertools.product(DTYPES, DTYPES) if in_place else ():
        if b == torch.bool and operator.__name__ in OF_INTEGERS:
            continue
        if takes(in_place, new(3, 5, dtype=a), new(5, dtype=b)):
            check(in_place, new(3, 5, dtype=a), new(5, dtype=b))
            check(lambda x, y: in_place(x[:, ::2], y), new(3, 10, dtype=a), new(5, dtype=b))
            checked += 1
    assert checked >= 3


REDUCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(torch, name)
    for name in (
        "sum mean prod amax amin argmax argmin all any std var logsumexp norm nansum count_nonzero max min median "
        "cumsum cumprod softmax log_softmax logcumsumexp cummax sort topk kthvalue mode aminmax std_mean var_mean"
    ).split()
}


def reduced(name: str, x: torch.Tensor, dim: int) -> Any:
    if name in ("topk", "kthvalue"):
        return REDUCTIONS[name](x, 2, dim)
    if name == "norm":
        return torch.linalg.vector_norm(x, 2, dim)
    return REDUCTIONS[name](x, dim=dim)


@pytest.mark.parametrize("name", [one_in(4, name, name) for name in REDUCTIONS])
def test_reductions(name):
    checked = 0
    for dtype in DTYPES:
        for x, dim in ((new(6, 9, dtype=dtype), 0), (new(6, 9, dtype=dtype), 1), (new(9, 4, 6, dtype=dtype).mT, -2)):
            work = lambda x, dim=dim: reduced(name, x, dim)  # noqa: E731
            if takes(work, x):
                check(work, x)
                checked += 1
    assert checked >= 3


WORK: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "where": (lambda a, b: torch.where(a > b, a, b * 2), [(3, 5), (5,)]),
    "where, numbers": (lambda a: (torch.where(a > 1, 1, a), torch.where(a > 1, a, 2.5)), [(3, 5)]),
    "where, dtypes": (lambda a, b: torch.where(a > b, a.half(), b.double()), [(3, 5), (3, 5)]),
    "clamp": (lambda a, b: (a.clamp(0.5, 2), a.clamp(min=b), a.clamp_(max=1.5)), [(3, 5), (5,)]),
    "addcmul": (lambda a, b, c: (torch.addcmul(a, b, c, value=2), a.addcdiv_(b, c, value=3)), [(3, 5)] * 3),
    "lerp": (lambda a, b, c: (torch.lerp(a, b, 0.3), torch.lerp(a, b, c)), [(3, 5)] * 3),
    "copies": (lambda a, b: (a.copy_(b), a.to(torch.int32), a.half(), a.T.contiguous(), a.bool()), [(3, 5), (5,)]),
    "fills": (lambda a: (a.fill_(3), a.zero_(), torch.full_like(a, 2), torch.zeros(3, device="openreg")), [(3, 5)]),
    "factories": (lambda a: (torch.arange(5, device="openreg") + a, torch.eye(5, device="openreg") * a), [(5,)]),
    "views": (lambda a: (a.view(5, 3).T[1:] + 1, a.unfold(1, 2, 1).sum(), a.diagonal() * 2), [(3, 5)]),
    "cat": (lambda a, b: (torch.cat([a, b]), torch.stack([a, a * 2]), torch.cat([a, b.half()])), [(3, 5), (2, 5)]),
    "index_select": (lambda a, b: a.index_select(0, (b * 0.9).long()), [(9, 5), (4,)]),
    "index": (lambda a, b: (a[(b * 0.9).long()], a[:, (b * 0.9).long()]), [(9, 9), (4,)]),
    "index_put": (lambda a, b: a.index_put_(((b * 0.9).long(),), a[0].clone(), accumulate=True), [(9, 5), (4,)]),
    "gather": (lambda a, b: (a.gather(0, b.long()), a.scatter_(0, b.long(), b)), [(9, 5), (4, 5)]),
    "scatter_add": (lambda a, b: (a.scatter_add(0, b.long(), b), a.index_add(0, b[:, 0].long(), b)), [(9, 5), (4, 5)]),
    "masked_fill": (lambda a, b: (a.masked_fill(b > 1, 7), a.masked_fill_(b > 2, 9)), [(3, 5), (5,)]),
    "take_along": (lambda a: a.take_along_dim(a.argsort(1), 1), [(3, 5)]),
    "embedding": (lambda a, b: F.embedding((b * 0.9).long(), a), [(9, 5), (4, 2)]),
    "one_hot": (lambda a: (a.unsqueeze(1) == torch.arange(3, device="openreg")).long(), [(5,)]),
    "tril": (lambda a: (a.tril(), a.triu_(1), a.flip(0), a.roll(2, 1), a.rot90()), [(4, 5)]),
    "matmul": (lambda a, b: (a @ b, torch.addmm(b[:3], a, b), (a @ b).relu_(), a @ b[:, 0]), [(3, 5), (5, 5)]),
    "bmm": (lambda a, b: (a @ b, torch.einsum("bij,bjk->ik", a, b), torch.baddbmm(b, b, b)), [(2, 3, 5), (2, 5, 5)]),
    "linear": (lambda a, b, c: (F.linear(a, b, c), F.linear(a.bfloat16(), b.bfloat16())), [(3, 5), (4, 5), (4,)]),
    "linalg": (lambda a: (torch.linalg.inv_ex(a + 9 * torch.eye(4, device="openreg"))[0], a.trace()), [(4, 4)]),
    "cholesky": (lambda a: torch.linalg.cholesky_ex(a @ a.T + torch.eye(4, device="openreg"))[0], [(4, 4)]),
    "fft": (lambda a: (torch.fft.rfft(a).abs(), torch.fft.ifft(torch.fft.fft(a)).real), [(3, 8)]),
    "conv1d": (lambda a, b: F.conv1d(a, b, padding=1), [(2, 3, 8), (4, 3, 3)]),
    "conv2d": (lambda a, b, c: F.conv2d(a, b, c, stride=2, groups=2), [(2, 4, 7, 7), (4, 2, 3, 3), (4,)]),
    "conv_transpose": (lambda a, b: F.conv_transpose2d(a, b, stride=2), [(2, 3, 4, 4), (3, 2, 3, 3)]),
    "pools": (lambda a: (F.max_pool2d(a, 2), F.avg_pool2d(a, 3, 2), F.adaptive_avg_pool2d(a, 2)), [(2, 3, 8, 8)]),
    "interpolate": (lambda a: (F.interpolate(a, scale_factor=2, mode="bilinear"), F.pad(a, (1, 2))), [(1, 2, 4, 4)]),
    "layer_norm": (lambda a, b: (F.layer_norm(a, (5,), b), F.rms_norm(a, (5,), b)), [(3, 5), (5,)]),
    "batch_norm": (lambda a, b, c: F.batch_norm(a, b, c, training=True), [(4, 3, 5), (3,), (3,)]),
    "batch_norm, evaluated": (lambda a, b, c: F.batch_norm(a, b, c), [(4, 3, 5), (3,), (3,)]),
    "group_norm": (lambda a, b: (F.group_norm(a, 2, b), F.instance_norm(a)), [(4, 6, 5), (6,)]),
    "activations": (
        lambda a: [f(a - 1) for f in (F.relu, F.gelu, F.silu, F.elu, F.softplus, F.hardswish, F.mish, F.leaky_relu)],
        [(3, 5)],
    ),
    "views of an argument": (lambda a: (F.glu(a), F.glu(a, 0)), [(4, 6)]),  # the iterator borrows views that are gone
    "in place": (lambda a: (F.relu_(a.sub_(1)), a.sigmoid_(), a.exp_(), a.neg_(), a.pow_(2), a.abs_()), [(3, 5)]),
    "losses": (
        lambda a, b: (F.mse_loss(a, b), F.cross_entropy(a, b[:, 0].long()), F.smooth_l1_loss(a, b), F.kl_div(a, b)),
        [(4, 5), (4, 5)],
    ),
    "attention": (lambda a: F.scaled_dot_product_attention(a, a * 2, a + 1, is_causal=True), [(2, 2, 8, 4)]),
    "attention with a mask": (
        lambda a, b: F.scaled_dot_product_attention(a, a, a, attn_mask=b > 1),
        [(2, 2, 8, 4), (8, 8)],
    ),
    "complex": (lambda a, b: (torch.complex(a, b) * 2j).abs() + torch.polar(a, b).real, [(3, 5), (3, 5)]),
    "foreach": (
        lambda a, b, c: (
            torch._foreach_add([a, b, c], 1),
            torch._foreach_mul([a, b, c], [c, a, b]),
            torch._foreach_add_([a, b, c], [b, c, a], alpha=2),
            torch._foreach_sqrt([a, b, c]),
            torch._foreach_norm([a, b, c]),
            torch._foreach_addcdiv([a], [b], [c], value=2),
            torch._foreach_lerp_([a, b], [b, c], 0.3),
        ),
        [(3, 5)] * 3,
    ),
    "number of a tensor": (lambda a: a / a.sum() + a.max() - (a * a.mean()).std(), [(3, 5)]),
    "temporaries": (lambda a: sum((a + i) * (a - i) for i in range(20)), [(3, 5)]),
}


@pytest.mark.parametrize("name", [one_in(2, name, name) for name in WORK])
def test_operators_of_all_kinds(name):
    work, shapes = WORK[name]
    check(work, *(new(*shape) for shape in shapes))


# They change what their gradients need, or have none; the formula for that of a maximum asks for elements.
WITHOUT_GRADIENTS = ("clamp", "gather", "in place", "foreach", "number of a tensor", "fills", "losses")


@pytest.mark.parametrize("name", [one_in(4, name, name) for name in WORK if name not in WITHOUT_GRADIENTS])
def test_gradients_of_operators_of_all_kinds(name):
    work, shapes = WORK[name]

    def gradients(*inputs: torch.Tensor) -> tuple[Any, ...]:
        leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
        changed = [leaf * 1 for leaf in leaves]  # which may be changed in place
        if name == "batch_norm" or name == "batch_norm, evaluated":
            changed[1:] = [leaf.detach() for leaf in leaves[1:]]
        outputs = [t for t in tensors(work(*changed)) if t.requires_grad]
        if not outputs:
            return ()
        return torch.autograd.grad(sum(t.abs().sum() for t in outputs), leaves, allow_unused=True)

    check(gradients, *(new(*shape) for shape in shapes))


@pytest.mark.parametrize("kind", [torch.nn.RNN, torch.nn.LSTM, torch.nn.GRU], ids=["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}], ids=["plain", "two layers"])
def test_recurrent_networks(kind, options):
    network = kind(5, 4, **options).to("openreg")

    def work(x: torch.Tensor) -> tuple[Any, ...]:
        output, state = network(x)
        return output, state, torch.autograd.grad(output.sum(), list(network.parameters()))

    check(work, new(6, 2, 5))


def test_a_transformer():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True).to("openreg")

    def work(x: torch.Tensor) -> tuple[Any, ...]:
        output = layer(x)
        return output, torch.autograd.grad(output.square().sum(), list(layer.parameters()))

    check(work, new(3, 5, 8))
    layer.eval()
    check(layer, new(3, 5, 8))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(dtype):
    network = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2)).to("openreg")

    def work(x: torch.Tensor) -> Any:
        with torch.autocast("openreg", dtype=dtype, cache_enabled=False):
            output = network(x)
        return output, torch.autograd.grad(output.float().sum(), list(network.parameters()))

    check(work, new(3, 5))


@pytest.mark.parametrize("name", ["_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_"])
def test_fused_optimizers(name):
    lists = [new(3, 5), new(7)], [new(3, 5), new(7)], [new(3, 5), new(7)], [new(3, 5), new(7)]
    steps = [torch.ones((), device="openreg") for _ in range(2)]

    def work(*_: torch.Tensor) -> Any:
        parameters, gradients, first, second = lists
        options = {"weight_decay": 0.01, "maximize": False, "grad_scale": None, "found_inf": None}
        torch._foreach_add_(steps, 1)
        if name == "_fused_sgd_":
            more = {"momentum": 0.9, "lr": 0.1, "dampening": 0.0, "nesterov": True, "is_first_step": False}
            torch._fused_sgd_(parameters, gradients, first, **options, **more)
        elif name == "_fused_adagrad_":
            torch._fused_adagrad_(parameters, gradients, first, steps, lr=0.1, lr_decay=0.0, eps=1e-8, **options)
        else:
            more = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "amsgrad": False}
            getattr(torch, name)(parameters, gradients, first, second, [], steps, **options, **more)
        return parameters

    check(work, *itertools.chain(*lists), *steps)


def test_more_elements_than_one_thread_takes():
    def work(a: torch.Tensor, b: torch.Tensor) -> Any:
        return (a + b).exp().sum(0), (a * b).to(torch.float16), a.T @ b, (a > b).sum()

    check(work, new(700, 600), new(700, 600))


def test_denormals_are_flushed_as_at_the_capture():
    x = torch.full((4,), 1e-38, device="openreg")
    graph = openreg.CUDAGraph()
    if not torch.set_flush_denormal(True):
        pytest.skip("the processor cannot flush denormals")
    try:
        with openreg.graph(graph):
            y = x * 1e-3
    finally:
        torch.set_flush_denormal(False)
    for _ in range(REPLAYS):
        assert (x * 1e-3).ne(0).all().item()
        graph.replay()
        assert y.tolist() == [0.0] * 4


def test_the_default_dtype_is_that_of_the_capture():
    x = torch.arange(1, 5, device="openreg")
    graph = openreg.CUDAGraph()
    torch.set_default_dtype(torch.float64)
    try:
        with openreg.graph(graph):
            y = x / 3, x.sqrt(), x * 0.1
    finally:
        torch.set_default_dtype(torch.float32)
    for value in range(REPLAYS):
        x.fill_(value + 2)
        graph.replay()
        for got, expected in zip(y, (x.double() / 3, x.double().sqrt(), x.double() * 0.1), strict=True):
            assert got.dtype == torch.float64 and torch.equal(got, expected)


def test_threads_that_replay_while_others_compute():
    a = new(300, 400)

    def work(a: torch.Tensor) -> Any:
        return (a * 2).sum(1), a.argmax(1), a @ a.T

    openreg.manual_seed(1)
    side = openreg.Stream()
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        other = torch.rand(500, 500, device="openreg")
        for _ in range(30):
            other = (other @ other).sigmoid()
    check(work, a)
    torch.accelerator.current_stream().wait_stream(side)
    assert other.isfinite().all().item()
