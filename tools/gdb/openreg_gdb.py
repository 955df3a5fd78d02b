"""gdb commands that show the streams, fences, engines and heaps of a stopped process.

Load it with `gdb -p <pid> -x tools/gdb/openreg_gdb.py`, or with gdb's command `source`. Commands:

    openreg streams            every stream: its state, its next command, and the end of its chain of waits
    openreg fences             the fences in the queues, and the streams and threads that wait for them
    openreg engines            the threads of the device, and the streams that are ready for them
    openreg heap [N] [blocks]  the memory of device N, or of all devices; with `blocks`, every block

`print` shows a Stream, Fence, FenceRef, Block, Segment, Mutex or Heap in one line; `print/r` shows all members.

The commands need debug information (a build of type RelWithDebInfo) and GCC's standard library. They only read memory,
call no function of the process, and take no lock, so they can show a stream between two states if the process was
stopped in the middle of a change.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gdb

sys.path.insert(0, str(Path(__file__).resolve().parent))
from openreg_state import (
    Threads,
    blocks,
    chain,
    describe_block,
    describe_fence,
    describe_heap,
    describe_segment,
    describe_stream,
    elements,
    fences,
    heaps,
    load,
    map_values,
    owner_of,
    pools,
    static_local,
    stream_name,
    streams,
)

_KINDS = {0: "compute", 1: "copy"}  # EngineKind


# --- Printers of `print` ---


class _OneLine:
    def __init__(self, text: str) -> None:
        self._text = text

    def to_string(self) -> str:
        return self._text


def _describe_base(stream: gdb.Value) -> str:
    return describe_stream(stream.cast(gdb.lookup_type("openreg::StreamImpl")))


def _describe_reference(reference: gdb.Value) -> str:
    return describe_fence(reference["fence_"].dereference()) if reference["fence_"] else "no fence"


def _describe_mutex(mutex: gdb.Value) -> str:
    return f"held by LWP {owner_of(mutex)}" if owner_of(mutex) else "free"


_PRINTERS = {
    "openreg::StreamImpl": describe_stream,
    "openreg::Stream": _describe_base,
    "openreg::Fence": describe_fence,
    "openreg::FenceRef": _describe_reference,
    "openreg::Mutex": _describe_mutex,
    "openreg::memory::Block": describe_block,
    "openreg::memory::Segment": describe_segment,
    "openreg::memory::Heap": describe_heap,
}


def _printer(value: gdb.Value) -> _OneLine | None:
    describe = _PRINTERS.get(value.type.strip_typedefs().unqualified().name or "")
    return _OneLine(describe(value)) if describe else None


# --- Commands ---


class _Openreg(gdb.Command):
    """Shows the state of the device openreg: streams, fences, engines, heap."""

    def __init__(self) -> None:
        super().__init__("openreg", gdb.COMMAND_STATUS, gdb.COMPLETE_NONE, prefix=True)


class _Streams(gdb.Command):
    """Shows every stream: its state, its next command, and the end of its chain of waits."""

    def __init__(self) -> None:
        super().__init__("openreg streams", gdb.COMMAND_STATUS)

    def invoke(self, argument: str, from_tty: bool) -> None:
        threads = Threads()
        for stream in streams():
            print(describe_stream(stream, threads))
            if stream["ownership"]["parked_on_"]:
                print(f"    waits for {chain(stream, threads)}")


class _Fences(gdb.Command):
    """Shows the fences in the queues, and the streams and threads that wait for them."""

    def __init__(self) -> None:
        super().__init__("openreg fences", gdb.COMMAND_STATUS)

    def invoke(self, argument: str, from_tty: bool) -> None:
        threads = Threads()
        for address, fence in fences().items():
            parked = [stream_name(stream) for stream in elements(fence["parked_"], "link")]
            hosts = [threads.on_stack(waiter) for waiter in elements(fence["waiters_"], "at_fence")]
            waiting = f"; awaited by {', '.join(parked + hosts)}" if parked or hosts else ""
            references = int(load(fence["references_"]))
            print(f"{hex(address)} {describe_fence(fence)}; {references} references{waiting}")


class _Engines(gdb.Command):
    """Shows the threads of the device, and the streams that are ready for them."""

    def __init__(self) -> None:
        super().__init__("openreg engines", gdb.COMMAND_STATUS)

    def invoke(self, argument: str, from_tty: bool) -> None:
        pools()
        scheduler = static_local("openreg::Scheduler::get()::scheduler", "openreg::Scheduler")
        if scheduler is None:
            raise gdb.GdbError("openreg: the scheduler has not started")
        threads = Threads()
        for index, kind in _KINDS.items():
            engines = scheduler["engines_"][index]
            counts = ", ".join(
                f"{int(engines[name])} {name}" for name in ("threads", "sleeping", "blocked", "visitors")
            )
            print(f"{kind} engines: {counts}, {int(engines['wanted'])} wanted")
            for priority in (0, 1):
                for stream in elements(engines["run_queues"][priority], "link"):
                    print(f"    ready: {describe_stream(stream, threads)}")
        owner = owner_of(gdb.parse_and_eval("'openreg::scheduler_mutex'"))
        print(f"scheduler's mutex: {f'held by {threads.by_system_number(owner)}' if owner else 'free'}")
        if load(scheduler["stopping_"]):
            print("the device has been shut down: no more commands start")


class _Heap(gdb.Command):
    """Shows the memory of a device, or of all devices: `openreg heap [N] [blocks]`."""

    def __init__(self) -> None:
        super().__init__("openreg heap", gdb.COMMAND_STATUS)

    def invoke(self, argument: str, from_tty: bool) -> None:
        words = argument.split()
        numbers = {int(word) for word in words if word.isdigit()}
        if unknown := [word for word in words if not word.isdigit() and word != "blocks"]:
            raise gdb.GdbError(
                f"openreg heap: unknown argument (got {unknown[0]}, expected a device index or `blocks`)"
            )
        for device, heap in heaps():
            if numbers and device not in numbers:
                continue
            taken = "; its lock is taken" if load(heap["mutex_"]["taken_"]) else ""
            print(f"openreg:{device}: {describe_heap(heap['heap_'])}{taken}")
            for segment in map_values(heap["heap_"]["segments_"]):
                print(f"    {describe_segment(segment)}")
                if "blocks" in words:
                    for block in blocks(segment):
                        print(f"        {describe_block(block)}")


for command in (_Openreg, _Streams, _Fences, _Engines, _Heap):
    command()
gdb.pretty_printers.append(_printer)
