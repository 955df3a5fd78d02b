#!/usr/bin/env python3
"""Compares openreg with the CPU over PyTorch's operator database (op_db), one process for each entry.

    python tests/census.py [--dtype float32] [--backward] [--samples 3] [--only REGEX] [--json FILE]
    python tests/census.py --slice [...]

Each entry's samples run on the CPU and on the device; values, dtypes, shapes, strides and the device of the results are
compared, with --backward the gradients too, where the CPU has any. Random operators (whose CPU results change with
the seed) are compared in all but values. Entries that fail on the CPU itself, or have no samples, do not count. Exit
status 1 if a process crashed.

--slice is what every run of the tests can afford: one entry in four, each with one of the dtypes of DTYPES
(`in_slice`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import select
import signal
import sys
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

# Entries that the census cannot judge, with the reason.
EXCEPTED = {
    "jiterator_unary": "compiled by CUDA's runtime compiler",
    "jiterator_binary": "compiled by CUDA's runtime compiler",
    "jiterator_4inputs_with_extra_args": "compiled by CUDA's runtime compiler",
    "jiterator_binary_return_by_ref": "compiled by CUDA's runtime compiler",
    "jiterator_2inputs_2outputs": "compiled by CUDA's runtime compiler",
    "tensor_split": "its samples hold CPU tensors that may not be moved",
    "as_strided.partial_views": "its samples are views whose base is lost when they are moved",
}
# The contents of the result are undefined by nature.
UNDEFINED = re.compile(r"^(new_)?empty(_like|_strided|_permuted)?$")
TIMEOUT_SECONDS = 180

# A census for each: its dtype, and whether gradients are compared too.
DTYPES = {"float32": True, "bfloat16": False, "int64": False, "bool": False, "complex64": False}


@dataclass
class Result:
    name: str
    dtype: str
    status: str  # equal, unequal, crashed, cpu, excepted
    detail: str = ""
    samples: int = 0
    launches: dict[str, int] = field(default_factory=dict)


def entry_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def in_slice(op: Any) -> str | None:
    """The dtype with which the entry belongs to the slice, if it does.

    Both come from a hash of its name and nothing else, so that nobody chooses by what passes: one entry in four, and
    the dtypes that it supports take turns.
    """
    import torch

    quotient, remainder = divmod(zlib.crc32(entry_name(op).encode()), 4)
    supported = [dtype for dtype in DTYPES if op.supports_dtype(getattr(torch, dtype), "cpu")]
    return supported[quotient % len(supported)] if remainder == 0 and supported else None


def tensors(value: Any) -> Iterable[Any]:
    """The tensors in a nested result, in order."""
    import torch
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def moved(sample: Any, device: str) -> Any:
    import torch

    def move(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.detach().to(device).requires_grad_(value.requires_grad)
        return device if isinstance(value, torch.device) or value == "cpu" else value

    sample = sample.transform(move)
    sample.args = tuple(move(value) for value in sample.args)
    sample.kwargs = {name: move(value) for name, value in sample.kwargs.items()}
    return sample


def with_gradients(op: Any, sample: Any) -> tuple[Any, list[Any]]:
    """The results, and the gradients of what requires one."""
    import torch

    inputs = [t for t in tensors((sample.input, sample.args, sample.kwargs)) if t.requires_grad]
    result = op(sample.input, *sample.args, **sample.kwargs)
    outputs = [t for t in tensors(result) if t.requires_grad]
    if not inputs or not outputs:
        return result, []
    seeds = [torch.ones_like(t) for t in outputs]
    gradients = torch.autograd.grad(outputs, inputs, seeds, allow_unused=True)
    return result, [gradient for gradient in gradients if gradient is not None]


def run_cpu(op: Any, sample: Any, seed: int) -> Any:
    import torch

    seed_all = torch.manual_seed
    seed_all(seed)
    sample = sample.transform(
        lambda v: v.detach().clone().requires_grad_(v.requires_grad) if isinstance(v, torch.Tensor) else v
    )
    # Random entries set a seed of their own before they draw.
    with patch.object(torch, "manual_seed", lambda _: seed_all(seed)):
        return with_gradients(op, sample)


def same_values(a: Any, b: Any) -> bool:
    import torch

    try:
        torch.testing.assert_close(a, b, equal_nan=True)
    except AssertionError:
        return False
    return True


def compare(name: str, expected: Any, again: Any, got: Any) -> None:
    """Raises AssertionError where the device's result is not the CPU's."""
    import torch

    expected_tensors, got_tensors = tensors(expected), tensors(got)
    assert len(expected_tensors) == len(got_tensors), "another number of results"
    random = not same_values(tensors(expected), tensors(again))
    for e, g in zip(expected_tensors, got_tensors, strict=True):
        assert g.device.type == "openreg", f"the result is on {g.device}"
        assert g.dtype == e.dtype, f"dtype {g.dtype}, on the CPU {e.dtype}"
        assert g.shape == e.shape, f"shape {tuple(g.shape)}, on the CPU {tuple(e.shape)}"
        if e.layout == torch.strided and not random and not UNDEFINED.match(name):
            assert g.stride() == e.stride(), f"strides {g.stride()}, on the CPU {e.stride()}"
            torch.testing.assert_close(g.cpu(), e, equal_nan=True)
    if not expected_tensors and not random:
        torch.testing.assert_close(got, expected, equal_nan=True)


def on_cpu(op: Any, dtype: Any, samples: int, backward: bool) -> tuple[list[Any], list[Any], list[Any]]:
    """The samples, and what the CPU makes of them with one seed and with another."""
    import torch

    torch.manual_seed(0)
    chosen = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=backward), samples))
    return chosen, [run_cpu(op, sample, 0) for sample in chosen], [run_cpu(op, sample, 1) for sample in chosen]


def check_entry(op: Any, dtype_name: str, samples: int, backward: bool) -> Result:
    import torch

    torch.set_num_threads(1)
    name = entry_name(op)
    dtype = getattr(torch, dtype_name)
    result = Result(name, dtype_name, "equal")
    try:
        backward = backward and dtype in op.supported_backward_dtypes("cpu")
        try:
            chosen, expected, again = on_cpu(op, dtype, samples, backward)
        except Exception:
            if not backward:
                raise
            # Of to_sparse and linalg.eig it cannot compute the gradients; the results count.
            chosen, expected, again = on_cpu(op, dtype, samples, False)
    except Exception as error:  # whatever CPU cannot do is not ours to judge
        return Result(name, dtype_name, "cpu", f"{type(error).__name__}: {error}"[:300])
    if not chosen:
        return Result(name, dtype_name, "cpu", "no samples")
    for i, sample in enumerate(chosen):
        try:
            on_device = moved(sample, "openreg")
            torch.manual_seed(0)
            got = with_gradients(op, on_device)
            torch.accelerator.synchronize()
            compare(name, expected[i], again[i], got)
        except Exception as error:
            result.status = "unequal"
            last = traceback.extract_tb(error.__traceback__)[-1]
            result.detail = f"sample {i}: {type(error).__name__}: {error} ({last.name})"[:600]
            break
        result.samples += 1
    result.launches = dict(torch.openreg.launch_stats())  # type: ignore[attr-defined]
    return result


def in_child(work: Callable[[], Result]) -> tuple[int, int]:
    """Runs `work` in a forked process; its pid and the descriptor from which its result comes."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        with os.fdopen(write, "w") as pipe:
            json.dump(asdict(work()), pipe)
        os._exit(0)
    os.close(write)
    return pid, read


def run(entries: list[tuple[Any, str, bool]], samples: int, jobs: int) -> list[Result]:
    """All entries, each with its dtype and whether gradients count, `jobs` at a time.

    This process never touches the device, so its children may.
    """
    results: list[Result] = []
    running: dict[int, tuple[int, Result, float, list[bytes]]] = {}
    waiting = list(reversed(entries))
    while waiting or running:
        while waiting and len(running) < jobs:
            entry = waiting.pop()
            op, dtype, backward = entry
            name = entry_name(op)
            if name in EXCEPTED:
                results.append(Result(name, dtype, "excepted", EXCEPTED[name]))
                continue
            pid, fd = in_child(partial(check_entry, op, dtype, samples, backward))
            running[fd] = (pid, Result(name, dtype, "crashed"), time.monotonic() + TIMEOUT_SECONDS, [])
        ready, _, _ = select.select(list(running), [], [], 1.0)
        for fd in list(running):
            pid, crashed, deadline, chunks = running[fd]
            if fd in ready:
                data = os.read(fd, 65536)
                if data:
                    chunks.append(data)
                    continue
            elif time.monotonic() < deadline:
                continue
            else:
                os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            os.close(fd)
            del running[fd]
            text = b"".join(chunks)
            if status == 0 and text:
                results.append(Result(**json.loads(text)))
            else:
                crashed.detail = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {status}"
                results.append(crashed)
    return sorted(results, key=lambda result: result.name)


def op_db() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return list(op_db)


def census(dtype: str, backward: bool) -> list[tuple[Any, str, bool]]:
    import torch

    return [(op, dtype, backward) for op in op_db() if op.supports_dtype(getattr(torch, dtype), "cpu")]


def census_slice() -> list[tuple[Any, str, bool]]:
    return [(op, dtype, DTYPES[dtype]) for op in op_db() if (dtype := in_slice(op)) is not None]


def summary(results: list[Result]) -> str:
    counts = Counter(result.status for result in results)
    judged = counts["equal"] + counts["unequal"] + counts["crashed"]
    tiers: Counter[str] = Counter()
    for result in results:
        tiers.update(result.launches)
    lines = [f"{r.status:9} {r.name}, {r.dtype}: {r.detail}" for r in results if r.status != "equal"]
    lines.append(f"equal to CPU: {counts['equal']} of {judged} ({100 * counts['equal'] / max(judged, 1):.1f} %)")
    lines.append(f"launches: {dict(tiers)}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slice", action="store_true", help="one entry in four, dtypes in turn")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--backward", action="store_true", help="compare gradients too")
    parser.add_argument("--samples", type=int, default=3, help="of each entry, at most")
    parser.add_argument("--only", default="", help="entries whose name matches this regular expression")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", help="write all results there")
    options = parser.parse_args()
    pattern = re.compile(options.only)
    entries = census_slice() if options.slice else census(options.dtype, options.backward)
    entries = [entry for entry in entries if pattern.search(entry_name(entry[0]))]
    results = run(entries, options.samples, options.jobs)
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(result) for result in results], indent=1))
    print(summary(results))
    return int(any(result.status == "crashed" for result in results))


if __name__ == "__main__":
    sys.exit(main())
