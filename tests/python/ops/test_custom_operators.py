"""Operators of programs, by torch.library: which kernel runs, where, and what opcheck says of them."""

from __future__ import annotations

import uuid

import pytest
import torch
from devices import DEVICE
from torch import Tensor
from torch.testing import assert_close
from waits import no_waits


def operator(library: torch.library.Library, name: str) -> torch._ops.OpOverload:
    return getattr(getattr(torch.ops, library.ns), name).default


@pytest.fixture
def x() -> Tensor:
    return torch.arange(6.0, device=DEVICE).view(2, 3)


def test_a_kernel_for_the_backends_key_runs_for_its_tensors_only(library, x):
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda t: t * 2, "PrivateUse1")
    twice = operator(library, "twice")
    assert_close(twice(x), x * 2)
    with pytest.raises(NotImplementedError, match=r"twice.*'CPU' backend"):
        twice(x.cpu())


def test_a_kernel_can_be_given_by_the_name_of_the_device(x):
    name = f"openreg_{uuid.uuid4().hex}::triple"

    @torch.library.custom_op(name, mutates_args=(), device_types=DEVICE)
    def triple(t: Tensor) -> Tensor:
        assert t.device.type == DEVICE
        return t * 3

    @triple.register_kernel("cpu")
    def _(t: Tensor) -> Tensor:
        return t * -3

    assert_close(triple(x), x * 3)
    assert_close(triple(x.cpu()), x.cpu() * -3)


def test_a_kernel_for_the_cpu_alone_runs_over_the_devices_memory(library, x):
    library.define("total(Tensor x) -> Tensor")
    seen = []

    def total(t: Tensor) -> Tensor:
        seen.append(t.device.type)
        return torch.from_numpy(t.numpy().sum(keepdims=True))

    library.impl("total", total, "CPU")
    result = operator(library, "total")(x * 2)
    assert seen == ["cpu"]
    assert result.device == x.device and result.tolist() == [[30.0]]


def test_kernels_of_the_cpu_that_ran_for_the_device_are_counted(library, x):
    library.define("for_the_cpu(Tensor x) -> Tensor")
    library.impl("for_the_cpu", lambda t: t * 2, "CPU")
    library.define("for_both(Tensor x) -> Tensor")
    library.impl("for_both", lambda t: t * 2, "CompositeExplicitAutograd")
    before = torch.openreg.launch_stats()["cpu_fallbacks"]
    x.nonzero()  # on the calling thread, but PyTorch's own
    operator(library, "for_both")(x)
    assert torch.openreg.launch_stats()["cpu_fallbacks"] == before
    operator(library, "for_the_cpu")(x)
    assert torch.openreg.launch_stats()["cpu_fallbacks"] == before + 1


def test_kernels_of_the_cpu_are_refused_on_request(run_python):
    result = run_python(
        "import torch\n"
        "@torch.library.custom_op('openreg_fallback::twice', mutates_args=(), device_types='cpu')\n"
        "def twice(t: torch.Tensor) -> torch.Tensor: return t * 2\n"
        "@torch.library.custom_op('openreg_fallback::everywhere', mutates_args=())\n"
        "def everywhere(t: torch.Tensor) -> torch.Tensor: return t * 2\n"
        "x = torch.arange(3.0, device='openreg')\n"
        "assert everywhere(x).tolist() == twice(x.cpu()).tolist() == [0, 2, 4]\n"
        "assert x.nonzero().tolist() == [[1], [2]]\n"
        "try: twice(x)\n"
        "except NotImplementedError as error: print(error)\n"
        "twice.register_kernel('openreg', lambda t: t * 3)\n"
        "assert twice(x).tolist() == [0, 3, 6]\n",
        TORCH_OPENREG_CPU_FALLBACK="0",
    )
    assert result.stdout.strip() == (
        "openreg: openreg_fallback::twice has no kernel for openreg, and TORCH_OPENREG_CPU_FALLBACK=0 disables the "
        'CPU fallback; register one for "openreg" (dispatch key PrivateUse1), or move the tensors to the CPU'
    )


def test_a_kernel_made_of_operators_does_not_wait(library, x):
    library.define("chain(Tensor x) -> Tensor")
    library.impl("chain", lambda t: (t.sin() @ t.t()).softmax(-1), "CompositeExplicitAutograd")
    chain = operator(library, "chain")
    expected = chain(x.cpu())
    chain(x)
    with no_waits():
        got = chain(x)
    assert_close(got.cpu(), expected)


def test_a_kernel_for_the_cpu_draws_from_the_devices_generator(library, x):
    library.define("noise(Tensor x, *, Generator? generator=None) -> Tensor")
    library.impl("noise", lambda t, *, generator=None: torch.rand(t.shape, generator=generator), "CPU")
    noise = operator(library, "noise")
    of_cpu = torch.get_rng_state()
    torch.openreg.manual_seed(3)
    first, second = noise(x), noise(x)
    assert not torch.equal(first, second)
    torch.openreg.manual_seed(3)
    assert torch.equal(noise(x), first)
    generator = torch.Generator(DEVICE).manual_seed(3)
    assert torch.equal(noise(x, generator=generator), first) and torch.equal(noise(x, generator=generator), second)
    assert torch.equal(noise(x), second)  # the generator of the device went on for itself
    assert torch.equal(torch.get_rng_state(), of_cpu)


def test_a_kernel_for_the_cpu_may_be_asked_for_a_device(library, x):
    library.define("doubled(Tensor x, Device device) -> Tensor")
    seen = []

    def doubled(t: Tensor, device: torch.device) -> Tensor:
        seen.append(device)
        return (t * 2).to(device)

    library.impl("doubled", doubled, "CPU")
    op = operator(library, "doubled")
    for device in (f"{DEVICE}:0", "cpu"):
        y = op(x, torch.device(device))
        assert y.device == torch.device(device) and y.tolist() == [[0, 2, 4], [6, 8, 10]]
    with pytest.raises(NotImplementedError, match=r"cannot create a tensor on another device type \(got meta\)"):
        op(x, torch.device("meta"))
    assert seen == [torch.device("cpu")] * 2


def test_arguments_are_changed_in_place(x):
    @torch.library.custom_op(f"openreg_{uuid.uuid4().hex}::scale_", mutates_args={"t"})
    def scale_(t: Tensor, factor: float) -> None:
        t.mul_(factor)

    scale_.register_fake(lambda t, factor: None)
    version = x._version
    compiled = torch.compile(lambda t: scale_(t, 2.0), backend="aot_eager", fullgraph=True)
    compiled(x)
    assert x._version > version and x.sum().item() == 30
    assert set(torch.library.opcheck(scale_, (x, 3.0)).values()) == {"SUCCESS"}


def test_a_compiled_graph_takes_shapes_from_the_fake_kernel(x):
    name = f"openreg_{uuid.uuid4().hex}::positive"

    @torch.library.custom_op(name, mutates_args=())
    def positive(t: Tensor) -> Tensor:
        return t[t > 0].clone()

    @positive.register_fake
    def _(t: Tensor) -> Tensor:
        return t.new_empty(torch.library.get_ctx().new_dynamic_size())

    assert torch.compile(lambda t: positive(t) * 2, backend="aot_eager", fullgraph=True)(x).tolist() == [2, 4, 6, 8, 10]
    assert set(torch.library.opcheck(positive, (x,)).values()) == {"SUCCESS"}


def differentiable(library: torch.library.Library) -> torch._ops.OpOverload:
    library.define("square(Tensor x) -> Tensor")
    library.impl("square", lambda t: t * t, "PrivateUse1")
    name = f"{library.ns}::square"
    torch.library.register_fake(name, torch.empty_like, lib=library)
    torch.library.register_autograd(
        name,
        lambda ctx, gradient: gradient * ctx.saved_tensors[0] * 2,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
        lib=library,
    )
    return operator(library, "square")


def test_a_derivative_is_used_in_eager_and_compiled_code(library, x):
    square = differentiable(library)
    x = x.requires_grad_()
    for function in (square, torch.compile(square, backend="aot_eager", fullgraph=True)):
        (gradient,) = torch.autograd.grad(function(x).sum(), x)
        assert_close(gradient, 2 * x.detach())


def test_opcheck_accepts_a_sound_operator(library, x):
    square = differentiable(library)
    assert torch.library.opcheck(square, (x.requires_grad_(),)) == {
        "test_schema": "SUCCESS",
        "test_autograd_registration": "SUCCESS",
        "test_faketensor": "SUCCESS",
        "test_aot_dispatch_dynamic": "SUCCESS",
    }


def test_opcheck_of_tensors_of_the_host_is_pytorchs(library, x):
    square = differentiable(library)
    assert check_only(square, (x.cpu().requires_grad_(),), "test_autograd_registration") == "SUCCESS"
    library.define("one(Tensor x) -> Tensor")
    library.impl("one", lambda t: t.detach().requires_grad_(), "CPU")
    said = check_only(operator(library, "one"), (x.cpu().requires_grad_(),), "test_autograd_registration")
    assert "does not have an autograd kernel defined at an autograd key" in said


def check_only(op: torch._ops.OpOverload, arguments: tuple[Tensor, ...], test: str) -> str:
    result = torch.library.opcheck(op, arguments, test_utils=test, raise_exception=False)[test]
    return result if isinstance(result, str) else str(result)


def test_opcheck_finds_a_derivative_in_the_backends_kernel(library, x):
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            ctx.save_for_backward(t)
            return t * t

        @staticmethod
        def backward(ctx, gradient):
            return 2 * gradient * ctx.saved_tensors[0]

    library.define("square(Tensor x) -> Tensor")
    library.impl("square", Square.apply, "PrivateUse1")
    said = check_only(operator(library, "square"), (x.requires_grad_(),), "test_autograd_registration")
    assert "no kernel at an autograd key" in said


@pytest.mark.parametrize("key", ["AutogradPrivateUse1", "Autograd", "CompositeImplicitAutograd"])
def test_opcheck_accepts_any_autograd_key(library, x, key):
    library.define("one(Tensor x) -> Tensor")
    if key != "CompositeImplicitAutograd":
        library.impl("one", lambda t: t.detach().clone(), "PrivateUse1")
    library.impl("one", lambda t: t * 1, key)
    assert check_only(operator(library, "one"), (x.requires_grad_(),), "test_autograd_registration") == "SUCCESS"


def test_opcheck_finds_a_wrong_schema_and_a_wrong_fake_kernel(library, x):
    library.define("hidden(Tensor x) -> Tensor")
    library.impl("hidden", lambda t: t.add_(1).clone(), "PrivateUse1")
    torch.library.register_fake(f"{library.ns}::hidden", lambda t: t.new_empty(1), lib=library)
    hidden = operator(library, "hidden")
    assert "mutated" in check_only(hidden, (x,), "test_schema")
    assert check_only(hidden, (x,), "test_faketensor") != "SUCCESS"


def test_autocast_casts_the_arguments_of_an_operator(x):
    @torch.library.custom_op(f"openreg_{uuid.uuid4().hex}::same", mutates_args=())
    def same(t: Tensor) -> Tensor:
        return t.clone()

    same.register_autocast(DEVICE, torch.float16)
    with torch.autocast(DEVICE, dtype=torch.float16):
        assert same(x).dtype == torch.float16
    assert same(x).dtype == torch.float32
