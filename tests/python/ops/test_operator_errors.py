"""What is refused at the call, and where an error of the stream is raised. Bad input by families: test_bad_input.py."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from devices import DEVICE

pytestmark = pytest.mark.any_device

TWO = (f"{DEVICE}:0", f"{DEVICE}:1")
MIXED = [TWO, TWO[::-1], (f"{DEVICE}:0", "cpu"), ("cpu", f"{DEVICE}:0")]


def named(message: str, first: str, second: str) -> bool:
    return "same device" in message and first in message and second in message


@pytest.mark.parametrize(("first", "second"), MIXED)
@pytest.mark.parametrize(
    "op",
    [
        torch.add,  # structured, element-wise
        torch.matmul,  # structured, not element-wise
        lambda a, b: torch.cat([a, b]),  # a list
        lambda a, b: torch.add(a, a, out=b),  # output elsewhere
        lambda a, b: a.mul_(b),
        torch.linalg.lstsq,  # synchronous
        lambda a, b: a.masked_fill_(b > 0, 1.0),
        lambda a, b: torch.where(a > 0, a, b),
        lambda a, b: F.linear(a, b),
        lambda a, b: torch.index_select(a, 0, torch.zeros(1, dtype=torch.long).to(b.device)),
    ],
)
def test_mixed_devices_are_refused_at_the_call(op, first, second):
    a, b = torch.ones(3, 3, device=first), torch.ones(3, 3, device=second)
    with pytest.raises(RuntimeError) as raised:
        op(a, b)
    message = str(raised.value)
    assert first in message and second in message, message
    assert torch.ones(2, device=f"{DEVICE}:0").sum().item() == 2.0


@pytest.mark.openreg_only
@pytest.mark.parametrize(
    "op",
    [
        lambda x: torch.tensor(1.0).masked_fill_(x > 0, 3.0),
        lambda x: torch.frac(x, out=torch.tensor(0.0)),
        lambda x: torch.abs(x, out=torch.tensor(0.0)),
        lambda x: torch.tensor([1.0]).index_put_([], x.reshape(1)),
    ],
)
def test_a_cpu_tensor_that_would_be_written_is_refused_without_dimensions_too(op):
    with pytest.raises(RuntimeError, match=r"openreg:0.*cpu|cpu.*openreg:0"):
        op(torch.ones((), device=DEVICE))


@pytest.mark.openreg_only
def test_an_index_on_the_cpu_is_refused_without_dimensions_too():
    x = torch.ones(3, device=DEVICE)
    with pytest.raises(RuntimeError, match=r"same device.*openreg:0.*cpu"):
        torch.index_select(x, 0, torch.tensor(1))


def test_the_error_is_raised_where_the_host_reads():
    torch.ones(3, device=DEVICE)[torch.tensor([7], device=DEVICE)]
    with pytest.raises(torch.AcceleratorError, match="aten::index"):
        torch.ones(1, device=DEVICE).item()
    assert torch.ones(1, device=DEVICE).item() == 1.0


@pytest.mark.openreg_only
def test_launch_blocking_raises_at_the_call(run_python):
    run_python(
        """
import torch
x = torch.ones(3, device="openreg")
index = torch.tensor([7], device="openreg")
try:
    torch.gather(x, 0, index)
except RuntimeError as error:
    cpu = None
    try:
        torch.gather(x.cpu(), 0, index.cpu())
    except RuntimeError as e:
        cpu = e
    assert type(error) is type(cpu), type(error)
    assert str(error) == str(cpu), error
else:
    raise SystemExit("nothing was raised at the call")
assert (x + 1).sum().item() == 6
""",
        TORCH_OPENREG_LAUNCH_BLOCKING="1",
    )


@pytest.mark.parametrize(
    "op",
    [
        lambda x: torch.gather(torch.tensor(1.0), 0, torch.zeros(1, dtype=torch.long, device=DEVICE)),
        lambda x: torch.index_put_(x, [torch.tensor([0])], torch.ones(1)),  # indices may be on the CPU, values not
        lambda x: torch.linalg.lu_factor_ex(x, out=(torch.empty(0), torch.empty(0, dtype=torch.int), torch.empty(0))),
    ],
)
def test_cpu_tensors_are_taken_only_where_they_may_be(op):
    with pytest.raises(RuntimeError) as raised:
        op(torch.ones(3, 3, device=DEVICE))
    assert f"{DEVICE}:0" in str(raised.value) and "cpu" in str(raised.value), raised.value


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(2, device=DEVICE, pin_memory=True),
        lambda: torch.tril_indices(2, 2, device=DEVICE, pin_memory=True),
    ],
)
def test_pinning_a_device_tensor_is_refused(make):
    with pytest.raises(RuntimeError, match="nly dense CPU tensors can be pinned"):
        make()


def test_numpy_of_a_device_tensor_names_the_way_out():
    with pytest.raises(TypeError, match=r"Use Tensor.cpu\(\)"):
        torch.ones(2, device=DEVICE).numpy()
