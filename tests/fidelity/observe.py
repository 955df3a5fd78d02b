#!/usr/bin/env python3
"""What a program can observe of an accelerator, as JSON.

    python tests/fidelity/observe.py cuda > tests/fidelity/cuda.json
    python tests/fidelity/observe.py openreg > openreg.json
    python tests/fidelity/observe.py compare tests/fidelity/cuda.json openreg.json

An observation is an expression: its value, or the type and the first line of what it raises, with the device's name
replaced by DEV. Floating-point numbers that depend on the rounding of a logarithm or a sine are given as bits. The last
group is of errors that a GPU does not survive. tests/python/device/test_fidelity.py compares openreg with what was
observed on a GPU; the file says which one.
"""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import re
import select
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

if len(sys.argv) > 1 and sys.argv[1] != "compare":
    DEVICE = sys.argv[1]
else:
    DEVICE = "cpu"
MODULE: Any = torch.get_device_module(DEVICE) if DEVICE != "cpu" else None


def normal(text: object) -> str:
    line = str(text).strip().split("\n")[0]
    line = re.sub(r"\b(cuda|openreg|CUDA|PrivateUse1|privateuseone)\b", "DEV", line).removeprefix("DEV: ")
    return re.sub(r"0x[0-9a-f]+", "0x", line)


def ones(*shape: int, **options: Any) -> torch.Tensor:
    return torch.ones(*shape, device=DEVICE, **options)


def bits(x: torch.Tensor) -> Any:
    return x.detach().cpu().contiguous().view(torch.int32).flatten().tolist()


def sync() -> None:
    torch.accelerator.synchronize()


def caught(call: Callable[[], Any]) -> str:
    try:
        call()
    except BaseException as error:
        return f"{type(error).__name__}: {normal(error)}"
    return "no error"


# --- helpers of single observations ---


def elapsed(timed: bool, recorded: bool) -> float:
    events = [torch.Event(DEVICE, enable_timing=timed) for _ in range(2)]
    if recorded:
        for event in events:
            event.record()
        sync()
    return events[0].elapsed_time(events[1])


def backward_twice() -> None:
    y = (ones(2, requires_grad=True) * 2).sum().exp()
    y.backward()
    y.backward()


def freed_of_empty() -> int:
    MODULE.synchronize()
    MODULE.empty_cache()
    before = MODULE.memory_allocated()
    kept = torch.empty(0, device=DEVICE)
    del kept
    return MODULE.memory_allocated() - before


def rounding() -> list[int]:
    def size(nbytes: int) -> int:
        before = MODULE.memory_allocated()
        x = torch.empty(nbytes, dtype=torch.uint8, device=DEVICE)
        return MODULE.memory_allocated() - before if x.numel() else 0

    return [size(nbytes) for nbytes in (1, 511, 512, 513, 1 << 20, (1 << 20) + 1)]


def reuses_address(other_stream: bool) -> bool:
    x = ones(1000)
    address = x.data_ptr()
    stream = MODULE.Stream() if other_stream else MODULE.current_stream()
    del x
    with MODULE.stream(stream):
        return torch.empty(1000, device=DEVICE).data_ptr() == address


def peak_and_reset() -> list[int]:
    MODULE.reset_peak_memory_stats()
    before = MODULE.memory_allocated()
    x = torch.empty(1 << 20, device=DEVICE)
    del x
    peak = MODULE.max_memory_allocated() - before
    MODULE.reset_peak_memory_stats()
    return [peak, MODULE.max_memory_allocated() - MODULE.memory_allocated()]


COUNTERS = ("allocation.all.current", "allocation.all.allocated", "allocation.all.freed")
COUNTERS += ("allocated_bytes.all.current", "requested_bytes.all.allocated", "active.all.current")
COUNTERS += ("num_ooms", "num_alloc_retries")


def counters() -> dict[str, int]:
    before = MODULE.memory_stats()
    kept = [torch.empty(1000, device=DEVICE) for _ in range(5)]
    del kept[:2]
    after = MODULE.memory_stats()
    return {name: after[name] - before[name] for name in COUNTERS}


def out_of_memory(nbytes: int, fraction: float = 1.0) -> list[Any]:
    """Whether the cache was given back, the counted retries and failures, and the error."""
    MODULE.set_per_process_memory_fraction(fraction)
    try:
        MODULE.empty_cache()
        x = torch.empty(64 << 20, dtype=torch.uint8, device=DEVICE)
        del x
        before = MODULE.memory_stats()
        error = caught(lambda: torch.empty(nbytes, dtype=torch.uint8, device=DEVICE)).split(":")[0]
        after = MODULE.memory_stats()
    finally:
        MODULE.set_per_process_memory_fraction(1.0)
    given_back = after["reserved_bytes.all.current"] < before["reserved_bytes.all.current"]
    return [given_back, *(after[name] - before[name] for name in ("num_alloc_retries", "num_ooms")), error]


def error_of_size(make: Callable[[int], Any]) -> list[Any]:
    before = MODULE.memory_stats()["num_ooms"]
    error = caught(lambda: make(1 << 42)).split(":")[0]
    return [error, MODULE.memory_stats()["num_ooms"] - before]


def snapshot_keys() -> list[list[str]]:
    x = torch.empty(1000, device=DEVICE)
    segment = MODULE.memory_snapshot()[0]
    return [sorted(segment), sorted(segment["blocks"][0])] if x.numel() else []


def current_in_context() -> list[bool]:
    before = MODULE.current_stream()
    stream = MODULE.Stream()
    with MODULE.stream(stream):
        inside = MODULE.current_stream() == stream
    return [inside, MODULE.current_stream() == before]


def thread_has_default() -> list[bool]:
    seen: list[bool] = []
    MODULE.set_stream(MODULE.Stream())
    thread = threading.Thread(target=lambda: seen.append(MODULE.current_stream() == MODULE.default_stream()))
    thread.start()
    thread.join()
    MODULE.set_stream(MODULE.default_stream())
    return seen


def busy_query() -> list[bool]:
    a = torch.randn(3000, 3000, device=DEVICE)
    sync()
    for _ in range(20):
        a @ a
    busy = MODULE.current_stream().query()
    sync()
    return [busy, MODULE.current_stream().query()]


def elapsed_positive() -> bool:
    begin, end = (torch.Event(DEVICE, enable_timing=True) for _ in range(2))
    x = torch.randn(500, 500, device=DEVICE)
    begin.record()
    x @ x
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) > 0


def backward_on_forward_stream() -> list[bool]:
    stream, seen = MODULE.Stream(), []

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            seen.append(MODULE.current_stream() == stream)
            return grad

    x = ones(2, requires_grad=True)
    with MODULE.stream(stream):
        y = Watched.apply(x).sum()
    y.backward()
    return seen


def wait_orders() -> float:
    stream = MODULE.Stream()
    x = torch.zeros(1 << 20, device=DEVICE)
    stream.wait_stream(MODULE.current_stream())
    with MODULE.stream(stream):
        for _ in range(50):
            x.add_(1)
    MODULE.current_stream().wait_stream(stream)
    return x[0].item()


def during_capture(work: Callable[[Any], Any], mode: str, other_thread: bool) -> list[str]:
    """Of work on a stream that is not captured, and of the end of the capture: whether they are permitted."""
    stream, other, graph = MODULE.Stream(), MODULE.Stream(), MODULE.CUDAGraph()
    x, host, there = ones(3), torch.ones(100_000), ones(100_000)
    with MODULE.stream(other):
        tensors = host, there, torch.empty_like(there)
    MODULE.synchronize()
    outcomes: list[str] = []

    def outcome(call: Callable[[], Any]) -> str:
        error = caught(call)
        known = {"not permitted when stream is capturing": "not permitted", "previous error during capture": "spoiled"}
        return next((short for text, short in reversed(known.items()) if text in error), error)

    def call() -> None:
        with MODULE.stream(other):
            outcomes.append(outcome(lambda: work(tensors)))

    def capture() -> None:
        with MODULE.graph(graph, stream=stream, capture_error_mode=mode):
            y = x + 1
            if other_thread:
                thread = threading.Thread(target=call)
                thread.start()
                thread.join()
            else:
                call()
            y.add_(1)

    end = outcome(capture)
    return [*outcomes, end]


def in_forked_child(call: Callable[[], Any]) -> str:
    """What a call returns, or raises, in a child of a process that has used the device."""
    ones(1)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = repr(call())
        except BaseException as error:
            text = f"{type(error).__name__}: {normal(error)}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    ready = select.select([read], [], [], 5)[0]
    text = os.read(read, 4096).decode() if ready else "it hangs"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(read)
    return text


def loaded(**options: Any) -> str:
    file = io.BytesIO()
    torch.save(ones(2), file)
    file.seek(0)
    return normal(torch.load(file, **options).device)


def gradient_of(x: torch.Tensor) -> str:
    x.to(DEVICE).sum().backward()
    assert x.grad is not None
    return normal(x.grad.device)


def numpy() -> Any:
    import numpy

    return numpy


# --- the observations ---

ERRORS: dict[str, str] = {
    "mixed_add": "ones(2) + torch.ones(2)",
    "mixed_mm": "ones(2, 2) @ torch.ones(2, 2)",
    "mixed_cat": "torch.cat([ones(2), torch.ones(2)])",
    "mixed_index": "torch.ones(3)[torch.tensor([0], device=DEVICE)]",
    "mixed_where": "torch.where(ones(2) > 0, torch.ones(2), ones(2))",
    "mixed_embedding": "F.embedding(torch.tensor([0]), ones(2, 2))",
    "mixed_linear": "F.linear(torch.ones(2, 2), ones(2, 2))",
    "numpy": "ones(2).numpy()",
    "array": "numpy().asarray(ones(2))",
    "bad_index": "torch.ones(1, device=f'{DEVICE}:99')",
    "set_device_99": "MODULE.set_device(99)",
    "shape_add": "ones(2) + ones(3)",
    "shape_mm": "ones(2, 3) @ ones(2, 3)",
    "shape_bmm": "torch.bmm(ones(2, 2, 3), ones(2, 2, 3))",
    "dtype_mm": "ones(2, 2) @ ones(2, 2, dtype=torch.float64)",
    "bool_mm": "torch.mm(ones(2, 2, dtype=torch.bool), ones(2, 2, dtype=torch.bool))",
    "int_mm": "torch.mm(ones(2, 2, dtype=torch.int64), ones(2, 2, dtype=torch.int64))",
    "neg_dim": "ones(2).sum(5)",
    "reshape": "ones(2).view(3)",
    "conv_channels": "F.conv2d(ones(1, 3, 4, 4), ones(1, 2, 3, 3))",
    "item_many": "ones(2).item()",
    "bool_many": "bool(ones(2))",
    "int_div_zero": "(ones(2, dtype=torch.int64) // 0, sync())",
    "dropout_p": "F.dropout(ones(2), 1.5)",
    "normal_std": "torch.normal(0., -1., (2,), device=DEVICE)",
    "cholesky": "torch.linalg.cholesky(-torch.eye(2, device=DEVICE))",
    "inverse": "torch.linalg.inv(torch.zeros(2, 2, device=DEVICE))",
    "solve": "torch.linalg.solve(torch.zeros(2, 2, device=DEVICE), ones(2))",
    "randperm_neg": "torch.randperm(-1, device=DEVICE)",
    "arange": "torch.arange(0, 5, -1, device=DEVICE)",
    "histc_minmax": "torch.histc(ones(3), 3, 2, 1)",
    "renorm_dim": "torch.renorm(ones(2, 2), 2, 5, 1.)",
    "int8_overflow": "ones(2, dtype=torch.int8).fill_(300)",
    "pin_device": "ones(2).pin_memory()",
    "generator": "torch.rand(2, device=DEVICE, generator=torch.Generator())",
    "stream_of_cpu": "torch.Stream('cpu')",
    "elapsed_unrecorded": "elapsed(timed=True, recorded=False)",
    "elapsed_untimed": "elapsed(timed=False, recorded=True)",
    "record_stream_cpu": "torch.ones(2).record_stream(MODULE.current_stream())",
    "oom_type": "torch.empty(1 << 50, dtype=torch.int8, device=DEVICE)",
    "empty_negative": "torch.empty(-1, device=DEVICE)",
    "share_memory": "ones(2).share_memory_()",
    "fraction": "MODULE.set_per_process_memory_fraction(2.)",
    "props_99": "MODULE.get_device_properties(99)",
    "manual_seed_str": "MODULE.manual_seed('a')",
    "set_rng_short": "MODULE.set_rng_state(torch.zeros(3, dtype=torch.uint8))",
    "dlpack_numpy": "numpy().from_dlpack(ones(2))",
    "tolist": "ones(2).tolist()",
    "autocast_double": "torch.autocast(DEVICE, dtype=torch.float64).__enter__()",
    "scaler_cpu": "torch.amp.GradScaler(DEVICE).scale(torch.ones(1))",
    "backward_twice": "backward_twice()",
    "no_grad_backward": "ones(2).sum().backward()",
}

MEMORY: dict[str, str] = {
    "empty_is_free": "freed_of_empty()",
    "rounding": "rounding()",
    "reuse_same_address": "reuses_address(other_stream=False)",
    "other_stream_not_reused": "reuses_address(other_stream=True)",
    "peak_and_reset": "peak_and_reset()",
    "stat_keys": "sorted(name for name in MODULE.memory_stats() if not name.startswith('reserved_bytes_by'))",
    "counts": "counters()",
    "oom_huge": "out_of_memory(1 << 45)",
    "oom_limit": "out_of_memory(int(MODULE.mem_get_info()[1] * .02), fraction=.01)",
    "snapshot_keys": "snapshot_keys()",
    "mem_info": "[type(each).__name__ for each in MODULE.mem_get_info()]",
}
SIZES: dict[str, str] = {
    "arange": "torch.arange(n, device=DEVICE)",
    "eye": "torch.eye(1 << 22, device=DEVICE)",
    "hann_window": "torch.hann_window(n, device=DEVICE)",
    "tril_indices": "torch.tril_indices(1 << 21, 1 << 21, device=DEVICE)",
    "randperm": "torch.randperm(n, device=DEVICE)",
    "bincount": "torch.bincount(torch.zeros(1, dtype=torch.int64, device=DEVICE), minlength=n)",
    "histc": "torch.histc(ones(3), 1 << 40)",
    "pad": "F.pad(ones(1), (0, n))",
    "repeat": "ones(1).repeat(n)",
    "full": "torch.full((n,), 1., device=DEVICE)",
    "linspace": "torch.linspace(0, 1, n, device=DEVICE)",
    "flip": "ones(1).expand(n).flip(0)",
    "roll": "ones(1).expand(n).roll(1)",
    "median": "ones(1).expand(n).median()",
    "cumsum": "ones(1).expand(n).cumsum(0)",
    "complex": "torch.complex(ones(1).expand(n), ones(1).expand(n))",
    "sort": "ones(1).expand(n).sort()",
}
MEMORY |= {f"oom_{name}": f"error_of_size(lambda n: {call})" for name, call in SIZES.items()}

STREAMS: dict[str, str] = {
    "default_id": "MODULE.default_stream().stream_id",
    "pool_repeats": "len({MODULE.Stream().stream_id for _ in range(70)})",
    "fresh_event_query": "torch.Event(DEVICE).query()",
    "fresh_event_sync": "caught(lambda: torch.Event(DEVICE).synchronize())",
    "context_restores": "current_in_context()",
    "thread_has_default": "thread_has_default()",
    "busy_query": "busy_query()",
    "elapsed_positive": "elapsed_positive()",
    "backward_on_forward_stream": "backward_on_forward_stream()",
    "wait_orders": "wait_orders()",
}

WORK = {
    "to": "t[1].copy_(t[0])",
    "to_few": "t[1][:10].copy_(t[0][:10])",
    "from": "t[0].copy_(t[1])",
    "within": "t[2].copy_(t[1])",
    "item": "t[1][:1].item()",
}
CAPTURES: dict[str, str] = {
    f"{name}.{'other_thread' if other else 'own_thread'}.{mode}": f"during_capture(lambda t: {call}, {mode!r}, {other})"
    for name, call in WORK.items()
    for other in (False, True)
    for mode in ("global", "thread_local", "relaxed")
}

FORKS: dict[str, str] = {
    name: f"in_forked_child(lambda: {call})"
    for name, call in {
        "initial_seed": "MODULE.initial_seed()",
        "get_rng_state": "type(MODULE.get_rng_state())",
        "mem_get_info": "type(MODULE.mem_get_info())",
        "memory_stats": "type(MODULE.memory_stats())",
        "memory_allocated": "MODULE.memory_allocated()",
        "memory_reserved": "MODULE.memory_reserved() > 0",
        "memory_summary": "type(MODULE.memory_summary())",
        "empty_cache": "MODULE.empty_cache()",
        "manual_seed": "MODULE.manual_seed(1)",
        "seed": "MODULE.seed()",
        "synchronize": "MODULE.synchronize()",
        "is_available": "MODULE.is_available()",
        "is_initialized": "MODULE.is_initialized()",
        "get_device_properties": "type(MODULE.get_device_properties(0))",
        "get_device_name": "type(MODULE.get_device_name())",
        "get_device_capability": "type(MODULE.get_device_capability())",
        "Stream": "type(MODULE.Stream())",
        "Event": "MODULE.Event().query()",
        "ones": "ones(1)",
        "pin_memory": "torch.ones(3).pin_memory().is_pinned()",
        "reset_peak_memory_stats": "MODULE.reset_peak_memory_stats()",
        "set_per_process_memory_fraction": "MODULE.set_per_process_memory_fraction(.5)",
        "get_per_process_memory_fraction": "MODULE.get_per_process_memory_fraction()",
        "MemPool": "type(MODULE.MemPool())",
        "accelerator.synchronize": "torch.accelerator.synchronize()",
        "accelerator.current_device_index": "torch.accelerator.current_device_index()",
        "torch.manual_seed": "torch.manual_seed(3).initial_seed()",
        "ipc_collect": "MODULE.ipc_collect()",
        "can_device_access_peer": "MODULE.can_device_access_peer(0, 0)",
        "Generator": "torch.Generator(DEVICE).initial_seed()",
        "list_gpu_processes": "type(MODULE.list_gpu_processes())",
        "get_arch_list": "type(MODULE.get_arch_list())",
        "get_sync_debug_mode": "MODULE.get_sync_debug_mode()",
        "is_bf16_supported": "MODULE.is_bf16_supported()",
    }.items()
}

RANDOM: dict[str, str] = {
    "rand": "bits(torch.rand(9, device=DEVICE))",
    "rand_big": "bits(torch.rand(700_000, device=DEVICE)[-5:])",
    "randn": "bits(torch.randn(9, device=DEVICE))",
    "randint": "torch.randint(0, 1000, (9,), device=DEVICE).tolist()",
    "randint64": "torch.randint(0, 1 << 40, (5,), device=DEVICE).tolist()",
    "randperm": "torch.randperm(12, device=DEVICE).tolist()",
    "randperm_big": "torch.randperm(40_000, device=DEVICE)[:6].tolist()",
    "bernoulli": "torch.bernoulli(torch.full((16,), .3, device=DEVICE)).tolist()",
    "dropout": "F.dropout(ones(16), .5).tolist()",
    "exponential": "bits(torch.empty(5, device=DEVICE).exponential_())",
    "multinomial": "torch.multinomial(torch.arange(1., 9., device=DEVICE), 5).tolist()",
    "multinomial_repl": "torch.multinomial(torch.arange(1., 9., device=DEVICE), 9, True).tolist()",
    "poisson": "torch.poisson(torch.full((6,), 4., device=DEVICE)).tolist()",
    "normal_half": "torch.randn(6, device=DEVICE, dtype=torch.half).tolist()",
    "rand_double": "torch.rand(4, device=DEVICE, dtype=torch.float64).tolist()",
    "cauchy": "bits(torch.empty(5, device=DEVICE).cauchy_())",
    "geometric": "torch.empty(6, device=DEVICE).geometric_(.3).tolist()",
    "log_normal": "bits(torch.empty(5, device=DEVICE).log_normal_())",
    "gamma": "bits(torch._standard_gamma(torch.full((4,), 2., device=DEVICE)))",
    "two_draws": "[bits(torch.rand(3, device=DEVICE)) for _ in range(2)]",
    "state_after": "(torch.rand(1000, device=DEVICE), MODULE.get_rng_state().tolist())[1]",
    "rrelu": "bits(F.rrelu(-ones(6), training=True))",
    "uniform_range": "bits(torch.empty(5, device=DEVICE).uniform_(-3, 7))",
}

OTHERS: dict[str, str] = {
    "type.repr": "normal(repr(torch.tensor([1., 2.], device=DEVICE)))",
    "type.repr_scalar": "normal(repr(torch.tensor(1, device=DEVICE)))",
    "type.device_str": "normal(ones(1).device)",
    "type.device_no_index": "torch.device(DEVICE).index",
    "type.type": "normal(ones(1).type())",
    "type.is_pinned": "ones(1).is_pinned()",
    "type.is_shared": "ones(1).is_shared()",
    "type.get_device": "ones(1).get_device()",
    "type.numpy_ok_cpu": "ones(2).cpu().numpy().tolist()",
    "type.bool_index": "ones(3)[torch.tensor([True, False, True], device=DEVICE)].tolist()",
    "type.nonzero_strides": "list(torch.nonzero(torch.eye(3, device=DEVICE)).stride())",
    "type.sort_stable": "torch.sort(torch.tensor([2, 1, 2, 1], device=DEVICE), stable=True)[1].tolist()",
    "type.channels_last": (
        "list(F.conv2d(ones(2, 3, 8, 8).to(memory_format=torch.channels_last), ones(4, 3, 3, 3)).stride())"
    ),
    "type.cdouble": "str(ones(1, dtype=torch.cdouble).dtype)",
    "type.promote": "str((ones(2, dtype=torch.half) + torch.tensor(2., dtype=torch.float64)).dtype)",
    "type.sum_bool": "str(ones(2, dtype=torch.bool).sum().dtype)",
    "copy.nb_pageable_blocks": "ones(4).to('cpu', non_blocking=False).tolist()",
    "copy.to_same_is_same": "(lambda x: x.to(DEVICE) is x)(ones(2))",
    "copy.to_index_is_same": "(lambda x: x.to(f'{DEVICE}:0') is x)(ones(2))",
    "copy.deepcopy": "copy.deepcopy(ones(2)).tolist()",
    "copy.pickle": "normal(pickle.loads(pickle.dumps(ones(2))).device)",
    "copy.save_load": "loaded()",
    "copy.map_location": "loaded(map_location='cpu')",
    "copy.module_to": "normal(next(torch.nn.Linear(2, 2).to(DEVICE).parameters()).device)",
    "module.initialized": "MODULE.is_initialized()",
    "module.current_device": "MODULE.current_device()",
    "module.bf16": "MODULE.is_bf16_supported()",
    "module.accelerator": "normal(torch.accelerator.current_accelerator())",
    "autograd.grad_device": "gradient_of(ones(2, requires_grad=True))",
    "autograd.cpu_grad": "gradient_of(torch.ones(2, requires_grad=True))",
    "amp.dtype": "str(torch.get_autocast_dtype(DEVICE))",
    "amp.available": "torch.amp.is_autocast_available(DEVICE)",
    "amp.scale": "torch.amp.GradScaler(DEVICE).get_scale()",
}

LATE: dict[str, str] = {
    "gather": "(ones(3).index_select(0, torch.tensor([9], device=DEVICE)), sync())",
    "multinomial": "(torch.multinomial(-ones(3), 1), sync())",
    "embedding": "(F.embedding(torch.tensor([9], device=DEVICE), ones(2, 2)), sync())",
}


NAMES: dict[str, Any] = {"F": F, "copy": copy, "pickle": pickle}


def value_of(expression: str) -> Any:
    return eval(expression, {**globals(), **NAMES})


def error_type(expression: str) -> str:
    return caught(partial(value_of, expression)).split(":")[0]


def observe() -> dict[str, Any]:
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {}

    def note(name: str, call: Callable[[], Any]) -> None:
        try:
            found[name] = call()
        except BaseException as error:
            found[name] = f"{type(error).__name__}: {normal(error)}"

    for name, expression in ERRORS.items():
        note(f"error.{name}", partial(caught, partial(value_of, expression)))
    for group, expressions in {"memory": MEMORY, "stream": STREAMS, "capture": CAPTURES, "fork": FORKS}.items():
        for name, expression in expressions.items():
            note(f"{group}.{name}", partial(value_of, expression))
    for name, expression in RANDOM.items():
        torch.manual_seed(42)
        note(f"random.{name}", partial(value_of, expression))
    for name, expression in OTHERS.items():
        note(name, partial(value_of, expression))
    for name, expression in LATE.items():
        note(f"late.{name}", partial(error_type, expression))
    machine = MODULE.get_device_name()
    # As JSON has them: a tuple is a list.
    return json.loads(json.dumps({"torch": torch.__version__, "device": machine, "observations": found}))


def compare(a: dict[str, Any], b: dict[str, Any]) -> None:
    differing = [name for name in a if a[name] != b.get(name)]
    for name in differing:
        print(name, *(f"   {str(each.get(name, 'not observed'))[:300]}" for each in (a, b)), sep="\n")
    print(f"{len(a) - len(differing)} of {len(a)} observations agree")


if __name__ == "__main__":
    if sys.argv[1] == "compare":
        compare(*(json.loads(Path(file).read_text())["observations"] for file in sys.argv[2:4]))
    else:
        json.dump(observe(), sys.stdout, indent=1)
