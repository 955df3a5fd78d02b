"""Errors of commands, and the lines that launched them: printed as JSON. With ``TORCH_OPENREG_STACKS=1``."""

from __future__ import annotations

import collections.abc
import contextlib
import functools
import json
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import profile

NOWHERE = torch.tensor([99], device="openreg")
X = torch.ones(4, device="openreg")
WEIGHTS = torch.ones(4, 2, device="openreg")
TORCH = Path(torch.__file__).parent


def fail(x: torch.Tensor) -> torch.Tensor:
    return x[NOWHERE]  # the line of most errors


class Lookup(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding(NOWHERE, x)  # PyTorch's own lines launch


class Rows(collections.abc.Mapping):
    __getitem__ = staticmethod(functools.partial(torch.nn.functional.embedding, weight=WEIGHTS))
    __iter__ = __len__ = None


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


def of_a_callback() -> None:
    with contextlib.ExitStack() as stack:  # the standard library calls PyTorch
        stack.callback(torch.nn.functional.embedding, NOWHERE, WEIGHTS)


def of_a_frozen_module() -> None:
    Rows().get(NOWHERE)  # so does a part of it that the interpreter contains


def of_generated_code(file: str, **variables: object) -> None:
    code = compile("weight = embedding(weight, input)", file, "exec")
    exec(code, {"embedding": torch.embedding, "weight": WEIGHTS, "input": NOWHERE, **variables})  # runs other code


def of_pytorchs_generated_code() -> None:
    of_generated_code("<string>", __file__=str(TORCH / "nn/functional.py"))


def of_pytorch_compiled_elsewhere() -> None:
    of_generated_code("torch/nn/functional.py", __file__=str(TORCH / "nn/functional.pyc"))


def of_functorch() -> None:
    of_generated_code(str(TORCH.parent / "functorch/dim/__init__.py"))


def of_own_generated_code() -> None:
    of_generated_code("<string>", __file__=__file__)


def error_of(call: Callable[[], None]) -> str:
    call()
    try:
        torch.openreg.synchronize()
    except torch.AcceleratorError as error:
        return str(error)
    return "nothing"


@torch.compile
def compiled(x: torch.Tensor) -> torch.Tensor:
    return x @ x  # Inductor's code launches


def lines_of_a_trace() -> dict[str, str]:
    x = X.clone().requires_grad_()
    compiled(torch.eye(4, device="openreg"))
    torch.openreg.synchronize()
    with profile() as prof:
        (x.exp() @ X).backward()
        compiled(torch.eye(4, device="openreg"))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        prof.export_chrome_trace(str(file))
        events = json.loads(file.read_text())["traceEvents"]
    return {event["name"]: event["args"]["launched by"] for event in events if event.get("cat") == "kernel"}


if __name__ == "__main__":
    calls = (of_a_call, of_a_module, of_a_backward_pass, of_a_thread, of_a_callback, of_a_frozen_module)
    generated = (of_pytorchs_generated_code, of_pytorch_compiled_elsewhere, of_functorch, of_own_generated_code)
    results: dict[str, object] = {call.__name__: error_of(call) for call in calls + generated}
    results["lines_of_a_trace"] = lines_of_a_trace()
    print(json.dumps(results))
    fail(X)  # not collected by any call
