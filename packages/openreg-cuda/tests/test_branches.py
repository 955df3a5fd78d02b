"""Where ATen checks for CUDA: docs/cuda-branches.md lists the places, and names these tests."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

CUDA = torch.device("cuda")


def same(function, *tensors: torch.Tensor, **limits: float) -> None:
    """Results and gradients are those of the CPU."""
    on_cpu = [each.detach().requires_grad_(each.is_floating_point()) for each in tensors]
    on_cuda = [each.detach().to(CUDA).requires_grad_(each.is_floating_point()) for each in tensors]
    expected, found = function(*on_cpu), function(*on_cuda)
    assert found.is_cuda
    assert_close(found.cpu(), expected, **limits)
    expected.sum().backward()
    found.sum().backward()
    for a, b in zip(on_cuda, on_cpu, strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            assert_close(a.grad.cpu(), b.grad, **limits)


def test_copies() -> None:
    x = torch.arange(6.0).view(2, 3)
    y = torch.empty(3, 2, device=CUDA, dtype=torch.float64).t()
    y.copy_(x)
    assert torch.equal(y.cpu().float(), x)
    z = torch.empty(2, 3, device="cuda:1").copy_(y, non_blocking=True)
    assert torch.equal(z.cpu(), x)


@pytest.mark.parametrize("options", [{}, {"groups": 4}, {"dilation": 2}, {"stride": 2, "padding": 1}], ids=str)
def test_convolutions(options: dict[str, int]) -> None:
    w = torch.randn(8, 4 // options.get("groups", 1), 3, 3)
    same(lambda x, w: F.conv2d(x, w, **options), torch.randn(2, 4, 9, 9), w)
    w = torch.randn(4, 8 // options.get("groups", 1), 3, 3)
    same(lambda x, w: F.conv_transpose2d(x, w, **options), torch.randn(2, 4, 9, 9), w, atol=1e-4, rtol=1e-4)


def test_softmax_in_autocast() -> None:
    x = torch.randn(4, 5, device=CUDA, dtype=torch.float16, requires_grad=True)
    with torch.autocast("cuda"):
        y = x.softmax(1)
    assert y.dtype == torch.float32
    y.square().sum().backward()
    assert x.grad.dtype == torch.float16 and x.grad.abs().sum() > 0


def test_ctc_loss() -> None:
    targets, lengths = torch.randint(1, 5, (2, 3), dtype=torch.int32), torch.tensor([6, 6], dtype=torch.int32)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return F.ctc_loss(x.log_softmax(2), targets.flatten(), lengths, torch.tensor([3, 3], dtype=torch.int32))

    same(loss, torch.randn(6, 2, 5), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool) -> None:
    q, k, v = torch.randn(3, 2, 4, 16, 8)
    same(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), q, k, v, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("driver", ["gesvd", "gesvdj", "gesvda", None])
def test_drivers(driver: str | None) -> None:
    x = torch.randn(3, 5, 4, device=CUDA)
    u, s, vh = torch.linalg.svd(x, full_matrices=False, driver=driver)
    assert_close(u @ s.diag_embed() @ vh, x, atol=1e-4, rtol=1e-4)
    assert_close(torch.linalg.svdvals(x, driver=driver), s)
    with pytest.raises(RuntimeError, match="unknown svd driver"):
        torch.linalg.svd(x, driver="other")


@pytest.mark.parametrize("shape", [(4, 4), (2, 5, 3), (3, 5), (0, 0)], ids=str)
def test_no_exchange_of_rows(shape: tuple[int, ...]) -> None:
    x = torch.randn(*shape, device=CUDA) + 5 * torch.eye(*shape[-2:], device=CUDA)
    p, low, u = torch.linalg.lu(x, pivot=False)
    assert p.numel() == 0
    assert_close(low @ u, x, atol=1e-4, rtol=1e-4)
    assert torch.equal(low.triu(1), torch.zeros_like(low)) and torch.equal(u.tril(-1), torch.zeros_like(u))
    factors, pivots, info = torch.linalg.lu_factor_ex(x, pivot=False)
    assert_close(factors.triu()[..., : u.shape[-2], :], u)
    assert pivots.dtype == info.dtype == torch.int32
    assert torch.equal(pivots.cpu(), torch.arange(1, min(shape[-2:]) + 1, dtype=torch.int32).expand(pivots.shape))
    assert not info.any()


def test_a_pivot_of_zero_is_reported() -> None:
    x = torch.tensor([[0.0, 1.0], [1.0, 0.0]], device=CUDA)
    assert torch.linalg.lu_factor_ex(x, pivot=False).info.item() == 1
    assert torch.linalg.lu_factor_ex(x).info.item() == 0
    with pytest.raises(RuntimeError, match="zero"):
        torch.linalg.lu_factor_ex(x, pivot=False, check_errors=True)


def test_factors_without_exchanges_have_gradients() -> None:
    x = torch.randn(3, 3, dtype=torch.float64, device=CUDA) + 5 * torch.eye(3, dtype=torch.float64, device=CUDA)
    torch.autograd.gradcheck(lambda a: torch.linalg.lu(a, pivot=False)[1:], x.requires_grad_())


def test_storages() -> None:
    storage = torch.UntypedStorage(8, device="cuda")
    assert storage.resize_(0).nbytes() == 0
    assert storage.resize_(16).nbytes() == 16 and storage.device == torch.device("cuda:0")
    filled = torch.UntypedStorage([1, 2, 255], device="cuda")
    assert filled.device == storage.device and filled.tolist() == [1, 2, 255]
    assert torch.UntypedStorage(device="cuda").nbytes() == 0
    with pytest.raises(RuntimeError, match="from a sequence"):
        torch.UntypedStorage("ab", device="cuda")


@pytest.mark.filterwarnings("ignore:The torch.cuda")
def test_types() -> None:
    assert torch.ones(2).type("torch.cuda.DoubleTensor").dtype == torch.float64
    assert torch.ones(2).type(torch.cuda.LongTensor).is_cuda
    assert isinstance(torch.cuda.FloatTensor([1, 2, 3]), torch.cuda.FloatTensor)
    assert torch.ones(2, device=CUDA).type() == "torch.cuda.FloatTensor"
    listed = {kind for kind in torch._tensor_classes if kind.__module__.startswith("torch.cuda")}
    assert {torch.cuda.FloatTensor, torch.cuda.sparse.FloatTensor} <= listed
    assert all(kind.is_cuda and kind(2, 3).is_cuda for kind in listed)


def test_types_of_sparse_tensors() -> None:
    indices, values = torch.tensor([[0, 1], [1, 0]], device=CUDA), torch.tensor([1.0, 2.0], device=CUDA)
    x = torch.cuda.sparse.FloatTensor(indices, values, (2, 2))
    assert x.is_sparse and x.type() == "torch.cuda.sparse.FloatTensor" and x.to_dense().tolist() == [[0, 1], [2, 0]]
    assert isinstance(x, torch.cuda.sparse.FloatTensor) and not isinstance(x, torch.cuda.FloatTensor)
    assert not isinstance(x.to_dense(), torch.cuda.sparse.FloatTensor)
    for kind in (torch.cuda.sparse.DoubleTensor, "torch.cuda.sparse.DoubleTensor"):
        assert x.type(kind).type() == "torch.cuda.sparse.DoubleTensor"


def test_batch_normalisation() -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(4)
    on_cuda = nn.BatchNorm2d(4).to(CUDA)
    x = torch.randn(3, 4, 5, 5)
    assert_close(on_cuda(x.to(CUDA)).cpu(), norm(x))
    assert_close(on_cuda.running_var.cpu(), norm.running_var)
    assert_close(on_cuda.eval()(x.to(CUDA)).cpu(), norm.eval()(x))


@pytest.mark.filterwarnings("error:.*cuDNN")
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_networks(kind: type[nn.RNNBase]) -> None:
    net = kind(3, 5, num_layers=2, bidirectional=True)
    x = torch.randn(4, 2, 3)
    expected = net(x)[0]
    net.to(CUDA).flatten_parameters()
    assert_close(net(x.to(CUDA))[0].cpu(), expected)


def test_grids() -> None:
    theta = torch.eye(2, 3).expand(2, 2, 3)
    same(lambda t: F.affine_grid(t, (2, 1, 4, 4), align_corners=True), theta)
    same(lambda x, g: F.grid_sample(x, g, align_corners=True), torch.randn(2, 1, 4, 4), torch.rand(2, 3, 3, 2) - 0.5)


@pytest.mark.parametrize("library", ["cusolver", "magma"])
def test_libraries(library: str) -> None:
    torch.backends.cuda.preferred_linalg_library(library)
    try:
        x = torch.randn(4, 4, device=CUDA)
        values, vectors = torch.linalg.eigh(x @ x.T)
        assert_close(vectors @ values.diag() @ vectors.T, x @ x.T, atol=1e-3, rtol=1e-3)
        assert_close(torch.linalg.svd(x).S, torch.linalg.svd(x.cpu()).S.to(CUDA), atol=1e-4, rtol=1e-4)
    finally:
        torch.backends.cuda.preferred_linalg_library("default")


def test_pinned_memory() -> None:
    x = torch.ones(4).pin_memory()
    assert x.is_pinned() and x.is_pinned("cuda") and not torch.ones(4).is_pinned()


def test_dropout() -> None:
    x = torch.ones(1000, device=CUDA, requires_grad=True)
    torch.manual_seed(1)
    y = F.dropout(x, 0.25)
    y.sum().backward()
    assert torch.equal(x.grad, y) and y.unique().tolist() == pytest.approx([0, 4 / 3])
    torch.manual_seed(1)
    assert torch.equal(F.dropout(x, 0.25), y)


def test_normalisation() -> None:
    same(lambda x, w: F.rms_norm(x, (8,), w), torch.randn(4, 8), torch.randn(8))
    same(lambda x, w, b: F.layer_norm(x, (8,), w, b), torch.randn(4, 8), torch.randn(8), torch.randn(8))


@pytest.mark.parametrize("deterministic", [False, True])
def test_repeated_indices(deterministic: bool) -> None:
    torch.use_deterministic_algorithms(deterministic)
    try:
        index = torch.tensor([0, 2, 0, 0], device=CUDA)
        values = torch.tensor([1.0, 2.0, 3.0, 4.0], device=CUDA)
        assert torch.zeros(3, device=CUDA).index_put_((index,), values, accumulate=True).tolist() == [8, 0, 2]
        assert torch.zeros(3, device=CUDA).scatter_add_(0, index, values).tolist() == [8, 0, 2]
        assert torch.zeros(3, device=CUDA).index_add_(0, index, values).tolist() == [8, 0, 2]
    finally:
        torch.use_deterministic_algorithms(False)


def test_transforms() -> None:
    x = torch.randn(16, device=CUDA, dtype=torch.float16)
    assert_close(torch.fft.fft(x).to(torch.complex64), torch.fft.fft(x.float()), atol=2e-2, rtol=2e-2)
    assert torch.backends.cuda.cufft_plan_cache.max_size >= 0


@pytest.mark.parametrize("sizes", [[(3, 4), (0, 4), (1, 4)], [(3,), (0,), (2,)]], ids=["rows", "numbers"])
def test_nested_tensors_with_a_row_for_each_part(sizes: list[tuple[int, ...]]) -> None:
    parts = [torch.randn(size) for size in sizes]
    rows = torch.randn(3, 1, *sizes[0][1:])
    n = torch.nested.nested_tensor(parts, device=CUDA)
    for function in (torch.add, torch.mul):
        for part, row, found in zip(parts, rows, function(n, rows.to(CUDA)).unbind(), strict=True):
            assert found.is_cuda and torch.equal(found.cpu(), function(part, row))
    with pytest.raises(RuntimeError, match="Expected both self and other to be nested"):
        n + torch.randn(3, 2, 4, device=CUDA)


def test_nested_images_with_a_number_for_each_channel() -> None:
    images, scale = [torch.randn(2, 3, 4), torch.randn(2, 5, 1)], torch.randn(2, 1, 1)
    n = torch.nested.nested_tensor(images, device=CUDA) * scale.to(CUDA)
    assert all(torch.equal(a.cpu(), b * scale) for a, b in zip(n.unbind(), images, strict=True))


def test_numbers() -> None:
    x = torch.ones(2, device=CUDA)
    assert (x + torch.tensor(2)).tolist() == [3, 3] and (torch.tensor(2.5) * x).tolist() == [2.5, 2.5]
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(2)


def test_least_squares() -> None:
    a, b = torch.randn(6, 3), torch.randn(6, 2)
    expected = torch.linalg.lstsq(a, b).solution
    assert_close(torch.linalg.lstsq(a.to(CUDA), b.to(CUDA)).solution.cpu(), expected, atol=1e-4, rtol=1e-4)


def test_streams() -> None:
    side = torch.cuda.Stream()
    x = torch.ones(8, device=CUDA, requires_grad=True)
    with torch.cuda.stream(side):
        side.wait_stream(torch.cuda.default_stream())
        y = (x * 3).sum()
    torch.cuda.current_stream().wait_stream(side)
    y.backward()
    x.grad.record_stream(side)
    assert x.grad.tolist() == [3] * 8


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_fused_scripts() -> None:
    @torch.jit.script
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return ((x * 2 + y).relu() * x).sigmoid()

    assert not torch._C._jit_can_fuse_on_gpu()
    x, y = torch.randn(2, 8, 8, device=CUDA)
    for _ in range(4):  # the executor optimises after the second run
        assert_close(f(x, y), ((x * 2 + y).relu() * x).sigmoid())


def test_operators_of_libraries_are_refused() -> None:
    x = torch.randn(1, 1, 4, 4, device=CUDA)
    for call in (
        lambda: torch.cudnn_convolution(x, x, (0, 0), (1, 1), (1, 1), 1, False, False, False),
        lambda: torch.ops.aten._conv_depthwise2d(x, x, (4, 4), None, (1, 1), (0, 0), (1, 1)),
        lambda: torch._cslt_compress(x.half()),
        lambda: torch._convert_weight_to_int4pack(torch.zeros(8, 16, dtype=torch.uint8, device=CUDA), 2),
    ):
        with pytest.raises(NotImplementedError, match="has no kernel for cuda, and no kernel for the CPU"):
            call()
