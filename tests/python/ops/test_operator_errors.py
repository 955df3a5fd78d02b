"""What is refused at the call, and where an error of the stream is raised. Bad input by families: test_bad_input.py."""

from __future__ import annotations

import pytest
import torch
from devices import DEVICE

pytestmark = pytest.mark.any_device


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
