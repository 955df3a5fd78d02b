"""Rejects programs in C++, which Inductor generates for `cpp_wrapper` and AOTInductor."""

from __future__ import annotations

from typing import Any, NoReturn

from torch._inductor.codegen.wrapper import PythonWrapperCodegen


class NoCppWrapper(PythonWrapperCodegen):
    """Takes the place of the generator of such programs."""

    @staticmethod
    def create(*_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(
            "openreg: Inductor cannot write C++ programs (cpp_wrapper, AOTInductor) for this device: PyTorch has C "
            "shims and model runners for cpu, cuda, mps and xpu only; use torch.compile, or torch.export.export and "
            "torch.compile(program.module())"
        )
