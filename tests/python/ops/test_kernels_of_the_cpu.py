"""CPU kernels that do more than their schema or meta function says."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from as_cpu import assert_as_cpu, assert_same_tensor
from devices import DEVICE

pytestmark = pytest.mark.any_device

X = torch.linspace(-2, 3, 2 * 4 * 6 * 6).reshape(2, 4, 6, 6)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x.contiguous(memory_format=torch.channels_last),
        lambda x: x[:, :, ::2],
        lambda x: x.transpose(0, 1),
        lambda x: x[..., :1],
        lambda x: x[:1].expand(2, -1, -1, -1),
    ],
    ids=["contiguous", "channels-last", "step", "transposed", "narrow", "expanded"],
)
def test_batch_norm_trains_on_inputs_of_any_strides(view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    # The CPU's own out form is wrong for some of these, which is why it is not used there.
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        x = x.detach().requires_grad_()
        module = torch.nn.BatchNorm2d(x.shape[1], device=x.device)
        result = module(x)
        result.square().sum().backward()
        return [result.detach(), module.running_mean, module.running_var, x.grad]  # type: ignore[list-item]

    for got, expected in zip(run(view(X.to(DEVICE))), run(view(X)), strict=True):
        assert_same_tensor(got, expected)


def test_an_overlap_is_refused_at_the_call_after_a_call_of_the_same_shapes_without_one() -> None:
    x = torch.arange(16.0, device=DEVICE)
    x[:4].add_(x[4:8])
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        x[:4].add_(x[2:6])
    torch.accelerator.synchronize()
    assert x[:4].tolist() == [4, 6, 8, 10]


@pytest.mark.openreg_only
def test_rows_of_one_tensor_are_planned_once_wherever_they_are() -> None:
    x = torch.ones(20, 8, device=DEVICE)
    x[1].add_(x[0])
    torch.openreg.reset_launch_stats()
    for row in range(1, 20):
        x[row].add_(x[row - 1])
    stats = torch.openreg.launch_stats()
    assert stats["plans_made"] == stats["host_waits"] == 0
    assert x[:, 0].tolist() == [1, *range(3, 22)]


@pytest.mark.openreg_only
def test_an_alias_of_the_same_elements_is_no_reason_to_wait() -> None:
    x = torch.ones(8, device=DEVICE)
    for _ in range(2):
        torch.openreg.reset_launch_stats()
        x.add_(x.detach())
        torch.mul(x, 3.0, out=x.detach())
        assert torch.openreg.launch_stats()["host_waits"] == 0
    assert x.tolist() == [36.0] * 8


@pytest.mark.openreg_only
def test_views_that_do_not_overlap_are_launched_without_a_wait() -> None:
    x = torch.rand(6, 8, device=DEVICE)
    expected = x.cpu()
    x[0].add_(x[1])
    torch.accelerator.synchronize()
    torch.openreg.reset_launch_stats()
    x[0].add_(x[1])
    torch.abs(x[2], out=x[3])
    x[4].masked_fill_(x[5] > 0.5, 0.0)
    assert torch.openreg.launch_stats()["host_waits"] == 0
    expected[0] += 2 * expected[1]
    expected[3] = expected[2]
    expected[4].masked_fill_(expected[5] > 0.5, 0.0)
    assert_same_tensor(x, expected)


def test_dtypes_that_only_large_tensors_refuse_are_refused_at_the_call() -> None:
    x = torch.ones(100, device=DEVICE).to(torch.float8_e4m3fn)
    with pytest.raises(NotImplementedError, match=r"not implemented for 'Float8_e4m3fn'"):
        x.sum()
    torch.accelerator.synchronize()


@pytest.mark.openreg_only
def test_sizes_that_only_the_kernel_checks_are_refused_at_the_call() -> None:
    a, b = torch.ones(2, 3, device=DEVICE), torch.ones(3, 4, device=DEVICE)
    torch.addmm(torch.ones(4, device=DEVICE), a, b)  # from now on the arguments' dtypes are known
    with pytest.raises(RuntimeError, match=r"The expanded size of the tensor \(4\) must match the existing size \(5\)"):
        torch.addmm(torch.ones(5, device=DEVICE), a, b)
    torch.accelerator.synchronize()
    torch.openreg.reset_launch_stats()
    for rows in range(2, 20):  # no trial for each
        torch.addmm(torch.ones(4, device=DEVICE), torch.ones(rows + 3, 3, device=DEVICE), b)
    assert torch.openreg.launch_stats()["host_waits"] == 0


# The warning of a later call of the same shapes is emitted when the host next waits (test_warnings.py): `std` is called
# with a shape that no other test has.
WARNINGS: dict[str, Callable[[str], Any]] = {
    "std": lambda device: torch.ones(1, 1, 1, 1, 1, 1, device=device).std(),
    "searchsorted": lambda device: torch.searchsorted(
        torch.ones(4, 3, device=device).t(), torch.ones(3, 2, device=device)
    ),
    "complex-to-real": lambda device: torch.ones(2, dtype=torch.complex64, device=device).to(torch.float32),
    "index-of-bytes": lambda device: torch.ones(2, device=device)[torch.ones(2, dtype=torch.uint8, device=device)],
    "resized-out": lambda device: torch.add(torch.ones(2, device=device), 1, out=torch.empty(3, device=device)),
    "complex-half": lambda device: torch.ones(3, dtype=torch.complex32, device=device),
}


@pytest.mark.parametrize("name", WARNINGS)
def test_warnings_of_kernels_are_emitted_once_by_the_first_call_as_on_the_cpu(name: str) -> None:
    def warnings_on(device: str) -> list[tuple[type[Warning], str]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            WARNINGS[name](device)
        return [(each.category, str(each.message).split("(Triggered internally")[0]) for each in caught]

    torch.set_warn_always(True)
    try:
        expected, got = warnings_on("cpu"), warnings_on(DEVICE)
        with warnings.catch_warnings(record=True) as late:
            warnings.simplefilter("always")
            torch.accelerator.synchronize()
            torch.zeros(1, device=DEVICE).item()
    finally:
        torch.set_warn_always(False)
    assert len(expected) == 1
    assert got == expected
    assert late == []


@pytest.mark.openreg_only
def test_products_of_vectors_answer_zero_tensors_and_conjugation_without_a_wait() -> None:
    x = torch.arange(1.0, 4)
    zero = torch._efficientzerotensor((3,), device=DEVICE)
    assert torch.dot(x.to(DEVICE), zero)._is_zerotensor()
    z = torch.tensor([1 + 2j, 3 - 1j, 2j])
    there = z.to(DEVICE)
    for operator in (torch.dot, torch.vdot):
        for left, right in ((False, False), (False, True), (True, False), (True, True)):
            a, b = (t.conj() if conj else t for t, conj in ((z, left), (z * 2, right)))
            c, d = (t.conj() if conj else t for t, conj in ((there, left), (there * 2, right)))
            expected = operator(a, b)
            torch.accelerator.synchronize()
            torch.openreg.reset_launch_stats()
            got = operator(c, d)
            assert torch.openreg.launch_stats()["host_waits"] == 0
            assert got.is_conj() == expected.is_conj()
            torch.testing.assert_close(got.cpu(), expected)


@pytest.mark.openreg_only
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("view", [lambda t: t, lambda t: t.t()], ids=["contiguous", "transposed"])
def test_put_(accumulate: bool, view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    index, source = torch.tensor([[0, -1], [5, 7]]), torch.tensor([[1.0, 2], [3, 4]])
    expected = view(torch.zeros(3, 4)).put_(index, source, accumulate)
    got = view(torch.zeros(3, 4, device=DEVICE))
    index, source = index.to(DEVICE), source.to(DEVICE)
    got.put_(index, source, accumulate)
    torch.openreg.reset_launch_stats()
    got.zero_().put_(index, source, accumulate)
    assert torch.openreg.launch_stats()["host_waits"] == 0
    assert_same_tensor(got, expected)


def test_put_finds_indices_out_of_range_on_the_stream_and_the_rest_at_the_call() -> None:
    x, one = torch.zeros(4, device=DEVICE), torch.ones(1, device=DEVICE)
    x.put_(torch.tensor([4], device=DEVICE), one)
    with pytest.raises(torch.AcceleratorError, match="tried to access index 4 on a tensor of 4 elements"):
        torch.accelerator.synchronize()
    for index, source, sentence in (
        (torch.tensor([1.0], device=DEVICE), one, "Expected a long tensor"),
        (torch.tensor([1, 2], device=DEVICE), one, "same number of elements"),
        (torch.tensor([1], device=DEVICE), one.double(), "same dtype"),
    ):
        with pytest.raises((RuntimeError, IndexError), match=sentence):
            x.put_(index, source)
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="put_ does not have a deterministic implementation"):
            x.put_(torch.tensor([1], device=DEVICE), one)
    finally:
        torch.use_deterministic_algorithms(False)
    torch.accelerator.synchronize()


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.half, torch.complex64, torch.complex32, torch.uint16])
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_put_takes_the_dtypes_that_the_cpu_takes(dtype: torch.dtype, accumulate: bool) -> None:
    index, source = torch.tensor([1, -1, 0]), torch.tensor([1, 0, 1]).to(dtype)
    x = torch.tensor([[0, 1], [1, 1]]).to(dtype)
    taken = assert_as_cpu(lambda x, i, s: x.put_(i, s, accumulate), x, index, source)
    assert taken == (dtype not in (torch.complex32, torch.uint16))
    assert assert_as_cpu(lambda x, i, s: x.put_(i, s, accumulate), x, index[:0], source[:0])


@pytest.mark.openreg_only("CUDA raises, because a GPU's kernel is not deterministic")
@pytest.mark.usefixtures("deterministic")
def test_put_that_accumulates_is_deterministic() -> None:
    index = torch.tensor([1, -1, 1, 0]).repeat(20_000)
    source = torch.linspace(0, 1, index.numel())
    assert assert_as_cpu(lambda x, i, s: x.put_(i, s, accumulate=True), torch.zeros(2, 3), index, source)
    there = index.to(DEVICE), source.to(DEVICE)
    first, *others = (torch.zeros(6, device=DEVICE).put_(*there, accumulate=True).cpu() for _ in range(5))
    assert all(torch.equal(first, other) for other in others)

    def gradient(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        x.requires_grad_()
        x.take(i).sum().backward()
        assert x.grad is not None
        return x.grad

    assert assert_as_cpu(gradient, torch.zeros(2, 3), index)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.isin(5.0, x),
        lambda x: torch.isin(4.0, x, invert=True),
        lambda x: torch.isin(5, x, assume_unique=True),
        lambda x: torch.isin(5.0, x, out=torch.empty(0, dtype=torch.bool, device=x.device)),
        lambda x: torch.isin(5.0, x, out=torch.empty((), dtype=torch.bool, device=x.device)),
        lambda x: torch.isin(True, x),
    ],
)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_isin_of_a_number(call: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert_as_cpu(call, torch.tensor([[5.0, 1.0]]))


@pytest.mark.parametrize("view", [lambda t: t, lambda t: t.t(), lambda t: t.conj(), lambda t: t.real, lambda t: t.imag])
def test_conj_physical_(view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    z = torch.tensor([[1 + 2j, 3j], [4, 5 - 6j]])
    assert assert_as_cpu(lambda x: view(x).conj_physical_().clone(), z)
    assert assert_as_cpu(lambda x: view(x).conj_physical_().clone(), z.to(torch.complex32))


@pytest.mark.parametrize("room", [1, 50])
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_a_kernel_that_resizes_its_argument_within_a_longer_storage(room: int) -> None:
    def add(storage: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return storage[:1].view(()).addbmm_(a, b)

    for size in range(1, 11):  # each planned anew; writes beyond the memory of a probe show sooner or later
        assert assert_as_cpu(add, torch.ones(room), torch.ones(2, 5, 3), torch.ones(2, 3, size))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_batch_norm_that_updates_nothing(dtype: torch.dtype) -> None:
    weight, bias, mean, variance = torch.rand(4, 4).unbind()
    operator = torch.ops.aten._batch_norm_no_update
    assert_as_cpu(lambda *tensors: operator(*tensors, 0.1, 1e-5), X.to(dtype), weight, bias, mean, variance)


def test_parameters_of_quantization_are_searched() -> None:
    assert assert_as_cpu(lambda x: torch.choose_qparams_optimized(x, x.numel(), 20, 0.16, 8), torch.linspace(-1, 2, 40))


@pytest.mark.parametrize("shape", [(), (3,), (1, 1), (1, 3), (3, 2), (2, 3)])
def test_addr_broadcasts_no_shape_in_place(shape: tuple[int, ...]) -> None:
    one, two = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0, 5.0])
    assert assert_as_cpu(lambda x, v, w: x.addr_(v, w), torch.ones(shape), one, two) == (shape == (2, 3))
    assert not assert_as_cpu(lambda x, v, w: x.addr_(v, w), torch.ones(shape), one.unsqueeze(0), two)


@pytest.mark.openreg_only
def test_solves_do_not_wait_since_pivots_are_tried_as_ones() -> None:
    a, b = torch.eye(3).to(DEVICE) * 2, torch.ones(3, 1, device=DEVICE)
    lu, pivots, _ = torch.linalg.lu_factor_ex(a)
    torch.openreg.reset_launch_stats()
    result = torch.linalg.lu_solve(lu, pivots, b)
    p, lower, upper = torch.lu_unpack(lu, pivots)
    assert torch.openreg.launch_stats()["host_waits"] == 0
    torch.testing.assert_close(result.cpu(), torch.full((3, 1), 0.5))
    torch.testing.assert_close((p @ lower @ upper).cpu(), torch.eye(3) * 2)


@pytest.mark.parametrize("scramble", [False, True])
def test_sobol_sequences_are_computed_where_their_state_is(scramble: bool) -> None:
    def draw(state: torch.Tensor, quasi: torch.Tensor, matrices: torch.Tensor) -> tuple[torch.Tensor, ...]:
        torch._sobol_engine_initialize_state_(state, 3)
        if scramble:
            torch._sobol_engine_scramble_(state, matrices, 3)
        points, quasi = torch._sobol_engine_draw(quasi, 5, state, 3, 0, dtype=torch.float32)
        torch._sobol_engine_ff_(quasi, 4, state, 3, 5)
        return state, points, quasi

    matrices = torch.randint(2, (3, 30, 30)).tril()
    assert assert_as_cpu(draw, torch.zeros(3, 30, dtype=torch.long), torch.zeros(3, dtype=torch.long), matrices)


def test_a_shape_may_lie_on_the_device() -> None:
    def reshape(x: torch.Tensor, shape: torch.Tensor) -> torch.Tensor:
        x = x.requires_grad_()
        result = torch._reshape_from_tensor(x, shape)
        assert result.data_ptr() == x.data_ptr()
        return torch.autograd.grad(result.square().sum(), x)[0]

    assert assert_as_cpu(reshape, torch.arange(6.0), torch.tensor([2, 3]))
    assert not assert_as_cpu(reshape, torch.arange(6.0), torch.tensor([4, 3]))
    assert not assert_as_cpu(reshape, torch.arange(6.0), torch.tensor([[2, 3]]))
    with torch.inference_mode():
        x, shape = torch.arange(6, device=DEVICE), torch.tensor([3, 2], device=DEVICE)
        assert torch._reshape_from_tensor(x, shape).shape == (3, 2)


@pytest.mark.parametrize("rows", [1, 17])
@pytest.mark.parametrize("length", [1, 7, 33, 64, 100, 127])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_products_with_weights_of_8_bits_for_rows_of_any_length(rows: int, length: int, dtype: torch.dtype) -> None:
    """The CPU's kernel for bfloat16 is wrong, or crashes, unless the length is a multiple of 8."""
    x = (torch.arange(rows * length).view(rows, length) % 5 - 2).to(dtype)
    weight = (torch.arange(31 * length).view(31, length) % 7 - 3).to(torch.int8)
    scales = torch.full((31,), 0.5, dtype=dtype)
    product = torch._weight_int8pack_mm(x.to(DEVICE), weight.to(DEVICE), scales.to(DEVICE)).cpu()
    torch.testing.assert_close(product, (x.float() @ weight.float().t() * 0.5).to(dtype))


@pytest.mark.parametrize("of", ["nan", "inf"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_eigenvalues_of_a_matrix_that_is_not_finite_are_refused(of: str, dtype: torch.dtype) -> None:
    # The CPU's kernel ends the process.
    matrix = torch.full((3, 3), float(of), dtype=dtype).to(DEVICE)
    outputs = torch.empty(3, dtype=torch.complex128 if dtype.is_complex else torch.complex64, device=DEVICE)
    for call in (torch.linalg.eigvals, lambda x: torch.linalg.eigvals(x, out=outputs)):
        with pytest.raises(RuntimeError, match="eigvals: input tensor should not contain infs or NaNs"):
            call(matrix)
    assert_same_tensor(torch.linalg.eigvals(torch.eye(3).to(DEVICE)), torch.linalg.eigvals(torch.eye(3)))
