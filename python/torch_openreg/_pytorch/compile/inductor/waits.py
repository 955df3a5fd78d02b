"""Waits between the streams of a program, beyond those that its author wrote.

A program waits where its author says so, which is enough for the values that its author wrote down. A compiled backward
pass has more of them: values that it computes again, without the waits around them, and gradients that come from the
autograd engine and go back to it. In eager mode the engine waits between the streams of such values, so the program
does too. PyTorch's own waits know only some of them, and need objects that exist only where the graph was traced: a
program from the cache has none (`graph_order.leave_waits_to_programs`).
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch._inductor import ir
from torch._inductor.codegen import wrapper
from torch._inductor.dependencies import WeakDep
from torch._inductor.scheduler import NopKernelSchedulerNode, Scheduler
from torch._inductor.stream_constants import DEFAULT_STREAM
from torch._inductor.stream_utils import get_stream_name
from torch._inductor.virtualized import V

from ...._slot import NAME

CURRENT_STREAM = 0
"""The number of the stream that is current at the call, among the objects of a program."""

Position = tuple[str, int]
"""A stream, by its name in the program, and the number of a command there."""


class Order:
    """Which commands precede which, as far as the program has been written."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.sent: dict[str, int] = defaultdict(int)
        self.known: dict[str, dict[str, int]] = defaultdict(dict)  # per stream, what its next command comes after
        self.host: dict[str, int] = {}  # what the next command of any stream comes after
        self.events: dict[int, dict[str, int]] = {}
        self.written: dict[str, list[Position]] = {}
        self.devices: dict[str, int] = {}  # of the buffers
        self.objects = {user: get_stream_name(stream) for stream, user in scheduler.stream_idx_to_user_obj_idx.items()}
        if len(devices_of(scheduler)) == 1:
            self.objects[CURRENT_STREAM] = DEFAULT_STREAM

    def add_inputs(self, inputs: dict[str, Any]) -> None:
        """Values that the current stream has before the first command, as the autograd engine's are."""
        for name, value in inputs.items():
            device = value.get_device() if isinstance(value, ir.IRNode) else None
            if device is not None and device.type == NAME:
                self.devices[name] = device.index
                stream = default_stream(self.scheduler, device.index)
                self.sent[stream] = 1
                self.written[name] = [(stream, 1)]

    def missing_waits(self, node: Any) -> list[tuple[str, str]]:
        """Pairs of a stream that runs the node that is written next, and one that it has to wait for."""
        if self._follow(node.node):
            return []
        read = list(reads(node))
        needed = [position for name in read for position in self.written.get(name, ())]
        device = node.get_device()
        on_the_device = device is not None and device.type == NAME
        # A kernel on the CPU copies a tensor of a device.
        of_devices = list(dict.fromkeys(self.devices[name] for name in read if name in self.devices))
        index = device.index if on_the_device else next(iter(of_devices), 0)
        if isinstance(node, NopKernelSchedulerNode):
            self._note(node, index, needed)
            return []
        number = self.scheduler.node_to_stream[node]
        # A copy between devices runs on a stream of each device, and makes the two wait for each other.
        streams = list(dict.fromkeys(stream_on(self.scheduler, number, each) for each in (index, *of_devices)))
        others = [position for position in needed if position[0] not in streams]
        waits = [(stream, other) for stream in streams for other in self._wait(stream, others)]
        for stream in streams:
            self.sent[stream] += 1
        if on_the_device:
            self._note(node, index, [(streams[0], self.sent[streams[0]])])
        return waits

    def _note(self, node: Any, device: int, positions: list[Position]) -> None:
        for name in node.get_buffer_names():
            self.written[name], self.devices[name] = positions, device

    def missing_at_the_end(self) -> Iterator[tuple[str, str]]:
        """Pairs of a current stream and one that it has to wait for, so that it comes after all commands."""
        others = [(stream, number) for stream, number in self.sent.items() if not is_default(stream)]
        for device in sorted(devices_of(self.scheduler)):
            stream = default_stream(self.scheduler, device)
            yield from ((stream, other) for other in self._wait(stream, others))

    def stream_of_a_result(self, name: str) -> str | None:
        """The current stream of a result's device, if another stream has computed it."""
        others = [stream for stream, _ in self.written.get(name, ()) if not is_default(stream)]
        return default_stream(self.scheduler, self.devices[name]) if others else None

    def _object(self, user: int) -> str:
        return self.objects.setdefault(user, f"object {user}")

    def _wait(self, stream: str, positions: list[Position]) -> list[str]:
        known, waits = self.known[stream], []
        _merge(known, self.host)
        for other, number in positions:
            if other != stream and known.get(other, 0) < number:
                waits.append(other)
                _merge(known, self._now(other))
        return waits

    def _now(self, stream: str) -> dict[str, int]:
        now = dict(self.known[stream])
        _merge(now, self.host)
        _merge(now, {stream: self.sent[stream]})
        return now

    def _follow(self, kernel: Any) -> bool:
        """Whether the kernel is an operation on streams, which says what comes after what."""
        operator = getattr(kernel, "op_overload", None)
        if not isinstance(operator, torch._ops.OpOverload) or operator.namespace != "streams":
            return False
        name = operator._schema.name.partition("::")[2]
        objects = [each for each in kernel.constant_args if isinstance(each, int)]
        if name == "synchronize_device":
            for stream in list(self.sent):
                _merge(self.host, self._now(stream))
        elif name == "synchronize_event":
            _merge(self.host, self.events.get(objects[0], {}))
        elif name == "synchronize_stream":
            _merge(self.host, self._now(self._object(objects[0])))
        elif name == "record_event":
            self.events[objects[0]] = self._now(self._object(objects[1]))
        elif name == "wait_event":
            _merge(self.known[self._object(objects[1])], self.events.get(objects[0], {}))
        elif name == "wait_stream":
            _merge(self.known[self._object(objects[0])], self._now(self._object(objects[1])))
        return True


def _merge(known: dict[str, int], more: dict[str, int]) -> None:
    for stream, number in more.items():
        known[stream] = max(known.get(stream, 0), number)


def reads(node: Any) -> Iterator[str]:
    """The buffers that a node reads or overwrites, without those that it only follows in the program's order."""
    for dependency in node.read_writes.reads:
        if not (isinstance(dependency, WeakDep) and dependency.is_fake):
            yield dependency.name


def devices_of(scheduler: Any) -> set[int]:
    """The devices of a program, by their indices."""
    devices: set[int] | None = scheduler.__dict__.get("openreg_devices")
    if devices is None:
        found = [node.get_device() for node in scheduler.nodes]
        devices = {device.index for device in found if device is not None and device.type == NAME}
        scheduler.openreg_devices = devices
    return devices


def default_stream(scheduler: Any, device: int) -> str:
    """The name of the current stream of a device at the call. PyTorch's own name means the current device's."""
    return DEFAULT_STREAM if len(devices_of(scheduler)) == 1 else f"{DEFAULT_STREAM}_{device}"


def stream_on(scheduler: Any, stream: int, device: int) -> str:
    """The name of the stream that is current on a device while a stream of the program is.

    This is the stream itself, if it is of that device: in a program on several devices, this is known only at run time.
    """
    if stream not in scheduler.stream_idx_to_user_obj_idx:
        return default_stream(scheduler, device)
    name: str = get_stream_name(stream)
    return name if len(devices_of(scheduler)) == 1 else f"{name}_on_{device}"


def is_default(stream: str) -> bool:
    """Whether the name is that of a current stream."""
    return stream.startswith(DEFAULT_STREAM)


def uses(scheduler: Any, buffer: str) -> set[int]:
    """The streams that a buffer is used on, by the scheduler's indices."""
    of_buffers: dict[str, set[int]] | None = scheduler.__dict__.get("openreg_uses")
    if of_buffers is None:
        of_buffers = scheduler.openreg_uses = defaultdict(set)
        for node in scheduler.nodes:
            if not isinstance(node, NopKernelSchedulerNode):
                for name in (*reads(node), *node.get_buffer_names()):
                    of_buffers[_memory_of(scheduler, name)].add(scheduler.node_to_stream[node])
    return of_buffers.get(_memory_of(scheduler, buffer), set())


def _memory_of(scheduler: Any, buffer: str) -> str:
    return str(scheduler.mutation_real_name.get(buffer, buffer))


def order() -> Order | None:
    """The order of the graph that is being compiled; None if the graph does not switch streams."""
    scheduler = V.graph.scheduler
    if not scheduler._has_multi_stream_nodes():
        return None
    known: Order | None = scheduler.__dict__.get("openreg_order")
    if known is None:
        known = scheduler.__dict__["openreg_order"] = Order(scheduler)
        if V.graph.is_backward:
            known.add_inputs(V.graph.graph_inputs)
    return known


def wait_where_values_need_it() -> None:
    """Writes a wait in front of a kernel that reads what another stream computes, if the program has none.

    Memory that several streams use is not used again in the program: nothing says when all of them are done with it.
    """
    switch = Scheduler.generate_stream_ctx_switching
    has_hazard = Scheduler.has_cross_stream_hazard
    reuse_key = wrapper.buffer_reuse_key

    @functools.wraps(switch)
    def generate_stream_ctx_switching(self: Any, node: Any) -> None:
        known = order()
        waits = [] if known is None else known.missing_waits(node)
        switch(self, node)
        for stream, other in waits:
            V.graph.wrapper_code.writeline(f"{stream}.wait_stream({other})")

    @functools.wraps(has_hazard)
    def has_cross_stream_hazard(self: Any, buf_name: str, node: Any) -> bool:
        return has_hazard(self, buf_name, node) or len(uses(self, buf_name)) > 1

    @functools.wraps(reuse_key)
    def buffer_reuse_key(node: Any) -> Any:
        key = reuse_key(node)
        return key if len(uses(V.graph.scheduler, node.get_name())) < 2 else (*key, node.get_name())

    Scheduler.generate_stream_ctx_switching = generate_stream_ctx_switching  # type: ignore[method-assign]
    Scheduler.has_cross_stream_hazard = has_cross_stream_hazard  # type: ignore[method-assign]
    wrapper.buffer_reuse_key = buffer_reuse_key
