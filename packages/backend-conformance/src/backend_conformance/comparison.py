"""Compares operators of the device with the CPU, over dtypes, layouts and gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from backend_conformance import Device, missing, not_applicable, wrong
from backend_conformance.verdicts import Verdict, first_line, verdict_of

Function = Callable[..., Any]

FLOATING = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGRAL = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
COMPLEX = (torch.complex64, torch.complex128)
ALL = (*FLOATING, *INTEGRAL, torch.bool, *COMPLEX)
REQUIRED = (*FLOATING, torch.int64)

# Relative and absolute: some units in the last place for each dtype.
TOLERANCES = {
    torch.float16: 6e-3,
    torch.bfloat16: 5e-2,
    torch.float32: 2e-5,
    torch.float64: 1e-9,
    torch.complex64: 2e-5,
    torch.complex128: 1e-9,
}


def leaves(value: Any) -> list[torch.Tensor]:
    """The tensors in a result."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [leaf for each in value for leaf in leaves(each)]
    return []


def exact(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers of a tensor in float64, for a reference without rounding."""
    return tensor.double() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def with_gradients(outputs: list[torch.Tensor], inputs: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs, then the gradients of the inputs that require one, for weights that differ by element."""
    roots = [each for each in outputs if each.requires_grad]
    weights = [torch.linspace(0.5, 1.5, max(each.numel(), 1))[: each.numel()].view(each.shape) for each in roots]
    seeds = [weight.to(each.device, each.dtype) for weight, each in zip(weights, roots, strict=True)]
    wanted = [each for each in inputs if each.requires_grad]
    found = torch.autograd.grad(roots, wanted, seeds, allow_unused=True) if roots and wanted else ()
    return [*(each.detach() for each in outputs), *(each for each in found if each is not None)]


class Comparison:
    """Collects what differs between the device and the CPU; `conclude` states the verdict.

    Wrong results come first, then refusals. A device need not have all the dtypes of the CPU's kernel: only those
    that are `required` may not be refused, and a dtype of which it cannot hold tensors is left out.
    """

    def __init__(self, device: Device, required: Sequence[torch.dtype] = REQUIRED) -> None:
        self._device = device
        self._required = required
        self._wrong: list[str] = []
        self._refused: list[str] = []
        self._errors: list[tuple[str, Exception]] = []
        self._judged = 0  # calls
        self._differing = 0  # of these
        self._absent: set[torch.dtype] = set()

    def holds(self, dtype: torch.dtype) -> bool:
        """Whether the device can hold tensors of this dtype."""
        if dtype in self._absent:
            return False
        try:
            torch.zeros(1, dtype=dtype).to(self._device.this)
        except (RuntimeError, TypeError):
            self._absent.add(dtype)
            return False
        return True

    def call(
        self,
        what: str,
        function: Function,
        inputs: Sequence[torch.Tensor],
        *,
        gradients: bool = False,
        **tolerance: float,
    ) -> None:
        """Calls a function with inputs on the CPU, and with the same inputs on the device; compares everything.

        The layouts of the inputs are kept. What the CPU refuses is left out.
        """
        if not all(self.holds(each.dtype) for each in inputs):
            return
        reduced = any(each.dtype in (torch.float16, torch.bfloat16) for each in inputs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                native = self._outcome(function, [each.clone() for each in inputs] if reduced else inputs, gradients)
                wanted = self._outcome(function, [exact(each) for each in inputs], gradients) if reduced else native
            except Exception:
                return
            self._judged += 1
            try:
                got = self._outcome(function, [on(each, self._device.this) for each in inputs], gradients)
                before = len(self._wrong)
                self._compare(what, got, native, wanted, tolerance)
                self._differing += len(self._wrong) > before
            except Exception as error:
                if verdict_of(error) is not Verdict.MISSING:
                    self._errors.append((what, error))
                elif all(each.dtype in self._required for each in inputs):
                    self._refused.append(f"{what}: {first_line(error)[:160]}")
                else:
                    self._judged -= 1

    @staticmethod
    def _outcome(function: Function, inputs: Sequence[torch.Tensor], gradients: bool) -> list[torch.Tensor]:
        if not gradients:
            return leaves(function(*inputs))
        inputs = [each.detach().requires_grad_(each.is_floating_point() or each.is_complex()) for each in inputs]
        return with_gradients(leaves(function(*inputs)), inputs)

    def _compare(
        self,
        what: str,
        got: list[torch.Tensor],
        native: list[torch.Tensor],
        wanted: list[torch.Tensor],
        tolerance: dict[str, float],
    ) -> None:
        if len(got) != len(native):
            self._wrong.append(f"{what}: {len(got)} tensors, on the CPU {len(native)}")
            return
        for number, (mine, here, expected) in enumerate(zip(got, native, wanted, strict=True)):
            place = f"{what}, tensor {number}" if len(got) > 1 else what
            if mine.device.type != self._device.name:
                self._wrong.append(f"{place}: the result is on {mine.device}")
            elif mine.dtype != here.dtype:
                self._wrong.append(f"{place}: the dtype is {mine.dtype}, on the CPU {here.dtype}")
            elif mine.shape != here.shape:
                self._wrong.append(f"{place}: the shape is {tuple(mine.shape)}, on the CPU {tuple(here.shape)}")
            else:
                bound = TOLERANCES.get(mine.dtype, 0.0)
                relative, absolute = (max(bound, tolerance.get(name, 0.0)) for name in ("rtol", "atol"))
                host = mine.detach().cpu().resolve_conj().resolve_neg()
                host, expected = exact(host), exact(expected.detach().resolve_conj().resolve_neg())
                try:
                    torch.testing.assert_close(
                        host, expected, rtol=relative, atol=absolute, equal_nan=True, check_dtype=False
                    )
                except AssertionError as error:
                    self._wrong.append(f"{place}: " + " ".join(str(error).split())[:200])

    def conclude(self) -> None:
        """States the verdict on all calls."""
        if self._wrong:
            wrong(f"{self._differing} of {self._judged} calls: " + "; ".join(self._wrong[:3]))
        if self._errors:
            what, error = self._errors[0]
            raise RuntimeError(f"{what} ({len(self._errors)} calls): {type(error).__name__}: {error}") from error
        if self._refused:
            missing(f"{len(self._refused)} of {self._judged} calls: " + "; ".join(self._refused[:3]))
        if not self._judged:
            not_applicable("the device holds none of the dtypes that the CPU has this operator for")


def on(tensor: torch.Tensor, where: torch.device) -> torch.Tensor:
    """A copy of the tensor on another device, in the same layout, also if that is not dense."""
    storage = tensor.untyped_storage()
    flat = torch.empty(0, dtype=tensor.dtype).set_(storage, 0, (storage.nbytes() // tensor.element_size(),), (1,))
    return flat.to(where).as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def layouts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """A matrix in several layouts: contiguous, transposed, with gaps, with an offset."""
    rows, columns = tensor.shape
    gaps = tensor.new_zeros(rows, 2 * columns)[:, ::2]
    shifted = tensor.new_zeros(rows * columns + 3)[3:].view(rows, columns)
    return [tensor, tensor.t().contiguous().t(), gaps.copy_(tensor), shifted.copy_(tensor)]
