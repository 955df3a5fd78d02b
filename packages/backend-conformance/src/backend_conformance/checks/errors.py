"""Errors: wrong calls raise at the call, and errors of running kernels are raised at a later one.

What the host can see (shapes, dtypes, devices) must be refused at the call, with the exception type that the CPU
uses, and leave everything as it was. What only the device can see (an index out of range in a tensor) may be raised
by the call, or by the next one that waits. It must not be lost, and must not end the process without an exception.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from backend_conformance import Device, Level, check, wrong
from backend_conformance.evidence import expect_error, refused

WRONG_CALLS: dict[str, Callable[[str], object]] = {
    "shapes": lambda d: torch.ones(2, 3, device=d) + torch.ones(2, 4, device=d),
    "matrix_product": lambda d: torch.ones(2, 3, device=d) @ torch.ones(2, 3, device=d),
    "product_dtypes": lambda d: torch.ones(2, 2, device=d) @ torch.ones(2, 2, dtype=torch.int64, device=d),
    "view_size": lambda d: torch.ones(6, device=d).view(4),
    "view_strides": lambda d: torch.ones(2, 3, device=d).t().view(6),
    "reshape": lambda d: torch.ones(6, device=d).reshape(5),
    "select_index": lambda d: torch.ones(3, device=d).select(0, 3),
    "dimension": lambda d: torch.ones(3, device=d).sum(dim=2),
    "index_dtype": lambda d: torch.ones(3, device=d).gather(0, torch.zeros(1, dtype=torch.float32, device=d)),
    "in_place_result_dtype": lambda d: torch.ones(3, dtype=torch.int64, device=d).add_(0.5),
    "in_place_broadcast": lambda d: torch.ones(3, device=d).add_(torch.ones(2, 3, device=d)),
    "out_dtype": lambda d: torch.add(torch.ones(3, device=d), 1.5, out=torch.empty(3, dtype=torch.int64, device=d)),
    "cat_shapes": lambda d: torch.cat([torch.ones(2, 3, device=d), torch.ones(3, 2, device=d)]),
    "stack_shapes": lambda d: torch.stack([torch.ones(2, device=d), torch.ones(3, device=d)]),
    "convolution_channels": lambda d: torch.nn.functional.conv2d(
        torch.ones(1, 3, 4, 4, device=d), torch.ones(2, 4, 3, 3, device=d)
    ),
    "negative_size": lambda d: torch.empty(-1, device=d),
    "item_of_many": lambda d: torch.ones(2, device=d).item(),
    "truth_of_many": lambda d: bool(torch.ones(2, device=d)),
    "copy_shapes": lambda d: torch.ones(3, device=d).copy_(torch.ones(2)),
    "as_strided_beyond": lambda d: torch.ones(4, device=d).as_strided((3,), (2,), -1),
    "linspace_steps": lambda d: torch.linspace(0, 1, -2, device=d),
    "softmax_dimension": lambda d: torch.softmax(torch.ones(2, device=d), 3),
    "embedding_dtype": lambda d: torch.nn.functional.embedding(
        torch.zeros(2, dtype=torch.float32, device=d), torch.ones(3, 2, device=d)
    ),
}


@check(level=Level.TRAINS, hook="argument checks of the kernels", cases=tuple(WRONG_CALLS))
def wrong_call_raises_as_on_the_cpu(device: Device, case: str) -> None:
    """A call with wrong shapes, dtypes or dimensions raises at the call, with the CPU's exception type.

    Structured kernels inherit these checks from PyTorch; hand-written kernels need their own. A kernel without the
    check reads or writes beyond its tensors.
    """
    call = WRONG_CALLS[case]
    try:
        call("cpu")
    except Exception as error:
        expected = type(error)
    else:
        raise RuntimeError(f"the CPU accepts the call {case}")
    try:
        result = call(device.name)
    except NotImplementedError:
        raise
    except Exception as error:
        assert isinstance(error, expected), f"raised {type(error).__name__} ({error}), the CPU {expected.__name__}"
    else:
        wrong(f"was accepted, and returned {type(result).__name__}; the CPU raises {expected.__name__}")
    device.cpu_equal(torch.ones(3, device=device.name) + 1, torch.full((3,), 2.0))


@check(level=Level.TRAINS, hook="argument checks of the kernels")
def failed_call_leaves_its_arguments_alone(device: Device) -> None:
    """An in-place call or a call with `out=` that is refused changes neither values nor shape.

    The check comes before the first write.
    """
    x = torch.arange(3.0, device=device.this)
    expect_error(lambda: x.add_(torch.ones(2, 3, device=device.this)), RuntimeError)
    expect_error(lambda: x.copy_(torch.ones(2)), RuntimeError)
    expect_error(
        lambda: torch.mm(torch.ones(2, 3, device=device.this), torch.ones(2, 3, device=device.this), out=x),
        RuntimeError,
    )
    device.cpu_equal(x, torch.arange(3.0))


@check(level=Level.TRAINS, hook="operators check the devices of their tensors", needs=("several_devices",))
def tensors_of_two_devices_are_refused(device: Device) -> None:
    """An operator with tensors of two devices raises RuntimeError.

    PyTorch's structured kernels check it; hand-written kernels and fallbacks must. Reading the other device's memory
    as if it were one's own gives wrong values, or a crash.
    """
    a, b = torch.ones(3, 3, device=device.this), torch.ones(3, 3, device=device.other)
    calls: dict[str, Callable[[], object]] = {
        "add": lambda: a + b,
        "mm": lambda: a @ b,
        "cat": lambda: torch.cat([a, b]),
        "add_": lambda: a.add_(b),
        "out=": lambda: torch.add(a, a, out=b),
        "linear": lambda: torch.nn.functional.linear(a, b),
        "where": lambda: torch.where(a > 0, a, b),
    }
    for name, call in calls.items():
        refused(call, f"{name} accepts tensors of two devices")
    device.cpu_equal(a, torch.ones(3, 3))
    device.cpu_equal(b, torch.ones(3, 3))


@check(level=Level.TRAINS, hook="operators check the devices of their tensors")
def tensors_of_the_cpu_are_refused(device: Device) -> None:
    """An operator with a tensor of the device and a CPU tensor that has dimensions raises RuntimeError.

    CPU tensors without dimensions are allowed: they count as numbers.
    """
    a, b = torch.ones(3, 3, device=device.this), torch.ones(3, 3)
    calls: dict[str, Callable[[], object]] = {
        "add": lambda: a + b,
        "reversed add": lambda: b + a,
        "mm": lambda: a @ b,
        "add_": lambda: a.add_(b),
        "in place on the CPU": lambda: b.add_(a),
        "linear": lambda: torch.nn.functional.linear(a, b),
    }
    for name, call in calls.items():
        refused(call, f"{name} accepts a tensor of the CPU beside one of the device")
    device.cpu_equal(a + torch.tensor(2.0), torch.full((3, 3), 3.0))
    device.cpu_equal(torch.tensor(2.0) * a, torch.full((3, 3), 2.0))


def reported(call: Callable[[], object]) -> None:
    """The call, or the wait for the device that follows, has to raise an error."""
    try:
        result = call()
        torch.accelerator.synchronize()
        found = result.cpu() if isinstance(result, torch.Tensor) else result
    except NotImplementedError:
        raise
    except Exception:
        return
    wrong(f"no exception: the result is {found}")


INDEXED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "index": lambda x, i: x[i],
    "gather": lambda x, i: torch.gather(x, 0, i),
    "embedding": lambda x, i: torch.nn.functional.embedding(i, x.view(-1, 1)),
    "index_put": lambda x, i: x.index_put((i,), x[:2]),
}


@check(level=Level.ASYNCHRONOUS, hook="errors of kernels", alone=True, cases=tuple(INDEXED))
def index_out_of_range_is_reported(device: Device, case: str) -> None:
    """An index in a tensor that is out of range raises at the call, or at the next call that waits.

    The values of an index tensor are known to the device only. A kernel must check them, and the error must reach the
    host as an exception: silently reading beyond the tensor is wrong, and so is ending the process.
    """
    x, index = torch.arange(4.0, device=device.this), torch.tensor([1, 99], device=device.this)
    device.cpu_equal(INDEXED[case](x, index.clamp(max=2)).sum() * 0, torch.tensor(0.0))
    reported(lambda: INDEXED[case](x, index))


@check(level=Level.ASYNCHRONOUS, hook="errors of kernels", alone=True)
def error_is_not_lost_between_streams(device: Device) -> None:
    """The error of a kernel on one stream is raised although the host waits for the device, not for that stream.

    synchronizeDevice must look at the errors of all streams.
    """
    stream = torch.Stream(device.this)
    x, index = torch.arange(4.0, device=device.this), torch.tensor([99], device=device.this)
    torch.accelerator.synchronize()

    def call() -> None:
        with stream:
            x[index]

    reported(call)


@check(level=Level.COMPLETE, hook="TORCH_CHECK in a kernel that ran behind the host", alone=True)
def assert_async_reports_a_false_condition(device: Device) -> None:
    """`torch._assert_async` accepts true conditions, and reports a false one at the latest when the host waits.

    Compiled programs check their assumptions with it.
    """
    torch._assert_async(torch.ones((), device=device.this))
    torch.accelerator.synchronize()
    reported(lambda: torch._assert_async(torch.zeros((), device=device.this)))


@check(level=Level.TRAINS, hook="exceptions in backward()")
def error_in_backward_reaches_the_caller(device: Device) -> None:
    """An exception in a custom backward function is raised by `backward`, and the next backward pass works.

    The engine's thread of the device passes the exception on; the guards must restore their state.
    """

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
            raise ValueError("the gradient is refused")

    x = torch.ones(3, device=device.this, requires_grad=True)
    expect_error(lambda: Fails.apply(x).sum().backward(), ValueError, "refused")  # type: ignore[no-untyped-call]
    (x * 2).sum().backward()
    assert x.grad is not None
    device.cpu_equal(x.grad, torch.full((3,), 2.0))
