"""Errors of commands, and the lines that launched them: printed as JSON. With ``TORCH_OPENREG_STACKS=1``."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import profile

NOWHERE = torch.tensor([99], device="openreg")
X = torch.ones(4, device="openreg")


def fail(x: torch.Tensor) -> torch.Tensor:
    return x[NOWHERE]  # the line of most errors


class Lookup(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding(NOWHERE, x)  # PyTorch's own lines launch


class FailsLate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return fail(grad).expand(4)


def of_a_call() -> None:
    fail(X)
    X.exp()


def of_a_module() -> None:
    Lookup()(torch.ones(4, 2, device="openreg"))


def of_a_backward_pass() -> None:
    FailsLate.apply(X.clone().requires_grad_()).sum().backward()


def of_a_thread() -> None:
    thread = threading.Thread(target=fail, args=[X])
    thread.start()
    thread.join()


def error_of(call: Callable[[], None]) -> str:
    call()
    try:
        torch.openreg.synchronize()
    except torch.AcceleratorError as error:
        return str(error)
    return "nothing"


def lines_of_a_trace() -> dict[str, str]:
    x = X.clone().requires_grad_()
    torch.openreg.synchronize()
    with profile() as prof:
        (x.exp() @ X).backward()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        prof.export_chrome_trace(str(file))
        events = json.loads(file.read_text())["traceEvents"]
    return {event["name"]: event["args"]["launched by"] for event in events if event.get("cat") == "kernel"}


if __name__ == "__main__":
    results: dict[str, object] = {
        call.__name__: error_of(call) for call in (of_a_call, of_a_module, of_a_backward_pass, of_a_thread)
    }
    results["lines_of_a_trace"] = lines_of_a_trace()
    print(json.dumps(results))
    fail(X)  # not collected by any call
