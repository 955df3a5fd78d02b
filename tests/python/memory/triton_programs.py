"""Programs with kernels in Triton, which reads the source of a kernel from a file. Run without computing."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from devices import DEVICE

COUNT = 16 << 20


@triton.jit
def add(x, y, out, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


CONFIGS = [triton.Config({"BLOCK": size}) for size in (128, 256, 512)]


@triton.autotune(CONFIGS, key=["count"], restore_value=["out"])
@triton.jit
def add_to(x, out, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(out + at, tl.load(out + at, mask=inside) + tl.load(x + at, mask=inside), mask=inside)


def grid(meta: dict[str, Any]) -> tuple[int]:
    return (triton.cdiv(meta["count"], meta["BLOCK"]),)


def launch() -> None:
    x, y = torch.randn(2, COUNT, device=DEVICE)
    indices = torch.arange(8, device=DEVICE)
    out, others = torch.empty_like(x), torch.empty_like(indices)
    before = torch.openreg.launch_stats()["compiled"]
    add[grid](x, y, out, COUNT, BLOCK=256)
    add[grid](indices, indices, others, 8, BLOCK=16)
    assert torch.openreg.launch_stats()["compiled"] == before + 2
    assert indices.tolist() == list(range(8))  # which are only read
    assert torch.openreg.compute_report()["unknown_reads"] == []
    assert out.sum().item() == 0 and others.tolist() == [0] * 8
    assert len(torch.openreg.compute_report()["unknown_reads"]) == 2
    add[(0,)](x, y, out, 0, BLOCK=256)
    assert torch.openreg.launch_stats()["compiled"] == before + 2


def tune() -> None:
    x, out = torch.randn(2, COUNT, device=DEVICE)
    torch.accelerator.reset_peak_memory_stats()
    before = torch.accelerator.memory_allocated()
    add_to[grid](x, out, COUNT)
    assert add_to.best_config is CONFIGS[0]
    # Triton keeps a copy of what is restored, and clears a cache of 256 MiB.
    assert torch.accelerator.max_memory_allocated() - before == 4 * COUNT + (256 << 20)


def race() -> None:
    torch.openreg.set_race_detection_mode("error")
    x, y = torch.randn(2, COUNT, device=DEVICE)
    outs = torch.empty(3, COUNT, device=DEVICE)
    side = torch.Stream(DEVICE)
    side.wait_stream(torch.accelerator.current_stream())
    add[grid](x, y, outs[0], COUNT, BLOCK=256)
    with side:
        add[grid](x, y, outs[1], COUNT, BLOCK=256)  # which reads the same
        try:
            add[grid](x, y, outs[0], COUNT, BLOCK=256)
        except torch.openreg.UnsynchronizedAccessError as error:
            assert "triton::add" in str(error)
        else:
            raise AssertionError("a race was not found")


def compile_around() -> None:
    @torch.compile
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z, out = x * 2, torch.empty_like(x)
        add[grid](z, y, out, COUNT, BLOCK=256)
        return out + 1

    x, y = torch.randn(2, COUNT, device=DEVICE)
    assert program(x, y).shape == (COUNT,)


def refuse() -> None:
    x = torch.randn(COUNT, device=DEVICE)
    for call, words in (
        (lambda: add[(1,)](x.cpu(), x, x, COUNT, BLOCK=16), "cannot be accessed from Triton"),
        (lambda: add.warmup(x, x, x, COUNT, BLOCK=16, grid=(1,)), "openreg: add cannot be compiled ahead"),
        (lambda: add[(1,)](x), "missing a required argument"),
    ):
        try:
            call()
        except (TypeError, ValueError, RuntimeError) as error:
            assert words in str(error), error
        else:
            raise AssertionError(words)


def run_all() -> None:
    for program in (launch, tune, compile_around, refuse, race):
        program()
