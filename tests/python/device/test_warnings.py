"""Warnings that operators raise reach Python's `warnings`: as on the CPU, with its category and sentence, as often."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings

import pytest
import torch
from devices import DEVICE

pytestmark = pytest.mark.any_device

# Each is run three times in a process of its own for each device, since many warnings are given once in a process; and
# then again with torch.set_warn_always, where they are given each time.
CASES = {
    "shapes of a loss": "F.mse_loss(ones(3, 1), ones(3))",
    "complex to real": "torch.ones(3, dtype=torch.complex64, device=device).to(torch.float32)",
    "boundaries with strides": "torch.searchsorted(ones(4, 3).t(), ones(3, 2))",
    "values with strides": "torch.bucketize(ones(4, 4).t(), ones(8))",
    "no degrees of freedom": "ones(1).std()",
    "no degrees of freedom in rows": "torch.var(ones(3, 1), 1)",
    "covariance of one": "torch.cov(ones(3, 1))",
    "condition of bytes": "torch.where(torch.ones(3, dtype=torch.uint8, device=device), ones(3), ones(3))",
    "mask of bytes": "ones(3)[torch.ones(3, dtype=torch.uint8, device=device)]",
    "beta": "ones(3).index_reduce_(0, torch.tensor([0], device=device), ones(1), 'mean')",
    "reduction by name": "ones(3).scatter_(0, torch.tensor([0], device=device), ones(1), reduce='add')",
    "deprecated solver": "torch.triangular_solve(ones(2, 1), torch.eye(2, device=device))",
    "deprecated factor": "torch.lu(torch.eye(3, device=device))",
    "deprecated transposition": "ones(2, 3, 4).T",
    "deprecated range": "torch.range(0, 3, device=device)",
    "output of another size": "torch.add(ones(3), 1, out=ones(2))",
    "outputs of other sizes": "torch.sort(ones(3), out=(ones(2), torch.ones(2, dtype=torch.long, device=device)))",
    "output of a sum": "torch.cumsum(ones(3), 0, out=ones(2))",
    "output of a factorisation": "torch.linalg.qr(torch.eye(3, device=device), out=(ones(2), ones(2)))",
    "missing dimension": "F.softmax(ones(3))",
    "half complex": "torch.ones(3, dtype=torch.complex32, device=device)",
    "gradient of a node": "(torch.ones(1, device=device, requires_grad=True) * 2).grad",
    "graph that holds itself": "torch.ones(1, device=device, requires_grad=True).mul(2).backward(create_graph=True)",
    "padding of an even kernel": "F.conv1d(ones(1, 1, 5), ones(1, 1, 4), padding='same')",
    "unaligned corners": "F.grid_sample(ones(1, 1, 4, 4), ones(1, 2, 2, 2))",
    "schedule before step": "torch.optim.lr_scheduler.StepLR(torch.optim.SGD([ones(2)], 0.1), 1).step()",
}

CHILD = """
import json, warnings
import torch
import torch.nn.functional as F

device, cases = DEVICE, CASES
def ones(*size): return torch.ones(*size, device=device)
ones(2, 2).sum().item()

def run(code):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            eval(code)
            ones(1).cpu()
    found = [(w.category.__name__, str(w.message).partition(" (Triggered internally")[0], w.filename) for w in caught]
    return [[*each, found.count(each)] for each in dict.fromkeys(found)]

result = {}
for always in False, True:
    torch.set_warn_always(always)
    for name, code in cases.items():
        result[f"{name}, always" if always else name] = run(code)
print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def warned(tmp_path_factory):
    """What each case warns of, on the CPU and on the device."""

    def run(device: str) -> dict[str, list[list[str | int]]]:
        code = CHILD.replace("DEVICE", repr(device)).replace("CASES", repr(CASES))
        result = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            cwd=tmp_path_factory.mktemp("run"),
            timeout=120,
        )
        assert result.returncode == 0, result.stderr
        assert "Warning" not in result.stderr
        return json.loads(result.stdout)

    return run("cpu"), run(DEVICE)


@pytest.mark.parametrize("always", [False, True], ids=["by default", "always"])
@pytest.mark.parametrize("name", CASES)
def test_a_warning_is_given_as_on_the_cpu(warned, name, always):
    expected, got = (devices[f"{name}, always" if always else name] for devices in warned)
    assert len(expected) > 0
    assert got == expected  # category, sentence, file, how often


def caught_while_waiting(wait) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.ones(1, device=DEVICE).std()
        wait()
        torch.ones(1, device=DEVICE).cpu()
    return [str(w.message).partition(":")[0] for w in caught]


@pytest.mark.parametrize(
    "wait",
    [
        torch.accelerator.synchronize,
        lambda: torch.accelerator.current_stream().synchronize(),
        lambda: torch.accelerator.current_stream().record_event().synchronize(),
        lambda: None,
    ],
    ids=["device", "stream", "event", "a copy"],
)
def test_a_warning_comes_whatever_the_host_waits_for(wait, capfd):
    assert caught_while_waiting(wait) == ["std()"]
    assert capfd.readouterr().err == ""


def test_a_warning_that_is_an_error_is_raised():
    x = torch.ones(1, device=DEVICE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="degrees of freedom"):
            x.std().cpu()
    assert (x + 1).item() == 2


@pytest.mark.openreg_only
def test_a_python_kernel_warns_at_the_call():
    with torch.library._scoped_library("openreg_warnings", "DEF") as library:
        library.define("warn(Tensor x) -> Tensor")

        def warn(x: torch.Tensor) -> torch.Tensor:
            warnings.warn("from the kernel", FutureWarning, stacklevel=1)
            return x.clone()

        library.impl("warn", warn, "PrivateUse1")
        with pytest.warns(FutureWarning, match="from the kernel") as caught:
            torch.ops.openreg_warnings.warn(torch.ones(1, device=DEVICE))
        assert len(caught) == 1
