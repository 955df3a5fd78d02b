"""gdb: what the streams, fences, engines and heaps of a stopped process are doing.

Load it with `gdb -p <pid> -x tools/gdb/openreg_gdb.py`, or by gdb's command `source`. Then

    openreg streams            every stream: its state, its next command, and what a waiting one waits for in the end
    openreg fences             the fences in the queues, and the streams and threads that wait for them
    openreg engines            the threads of the device, and the streams that are ready for them
    openreg heap [N] [blocks]  the memory of device N, or of all; with `blocks`, every block

`print` of a Stream, Fence, FenceRef, Block, Segment, Mutex or Heap gives one line; `print/r` gives all members.

It needs debug information (a build of type RelWithDebInfo) and GCC's standard library. It only reads memory, calls no
function of the process, and takes no lock: a process that is stopped in the middle of a change can show a stream
between two states.
"""

from __future__ import annotations

from collections.abc import Iterator

import gdb

_STRIDE = 5  # Chunk::place
_UNPUBLISHED = 2**64 - 1  # Fence::kUnpublished
_NO_LIMIT = 2**64 - 1
_KINDS = {0: "compute", 1: "copy"}  # EngineKind


# --- C++ values ---


def _load(atomic: gdb.Value) -> gdb.Value:
    """The value of a std::atomic."""
    names = {field.name for field in atomic.type.strip_typedefs().fields()}
    if "_M_i" in names:
        return atomic["_M_i"]
    if "_M_b" in names:  # a pointer
        return atomic["_M_b"]["_M_p"]
    if "_M_base" in names:  # a bool
        return atomic["_M_base"]["_M_i"]
    return _load(atomic.cast(atomic.type.strip_typedefs().fields()[0].type))  # an integer: the base class has it


def _enum(value: gdb.Value) -> str:
    """`running` for State::kRunning."""
    return str(value).rpartition("::")[2].removeprefix("k").lower()


def _list(intrusive: gdb.Value, link: str) -> Iterator[gdb.Value]:
    """The elements of an IntrusiveList, whose links are their member `link`."""
    element = intrusive["first_"]
    while element:
        yield element.dereference()
        element = element[link]["next"]


def _vector(vector: gdb.Value) -> Iterator[gdb.Value]:
    element, end = vector["_M_impl"]["_M_start"], vector["_M_impl"]["_M_finish"]
    while element != end:
        yield element.dereference()
        element += 1


def _map_values(tree: gdb.Value) -> Iterator[gdb.Value]:
    """The values of a std::map, in the order of their keys."""
    pair = tree.type.strip_typedefs().template_argument(3).template_argument(0)  # of the allocator
    header = tree["_M_t"]["_M_impl"]["_M_header"]
    node, end = header["_M_left"], header.address
    while node != end:
        # The pair lies behind the node's base, which is four words: a colour and three pointers.
        yield (node + 1).cast(pair.pointer()).dereference()["second"]
        if node["_M_right"]:
            node = node["_M_right"]
            while node["_M_left"]:
                node = node["_M_left"]
            continue
        parent = node["_M_parent"]
        while node == parent["_M_right"]:
            node, parent = parent, parent["_M_parent"]
        if node["_M_right"] != parent:
            node = parent


def _static_local(name: str, pointee: str) -> gdb.Value | None:
    """What a reference that is a function's static variable refers to; None if it is not initialised."""
    try:
        address = gdb.parse_and_eval(f"*(unsigned long*)&'{name}'")
    except gdb.error:
        return None
    return address.cast(gdb.lookup_type(pointee).pointer()) if address else None


def _size(count: gdb.Value | int) -> str:
    number = int(count)
    power = min(max(number.bit_length() - 1, 0) // 10, 4)
    return f"{number / 1024**power:.1f} {'KMGT'[power - 1]}iB" if power else f"{number} bytes"


# --- Threads ---


class Threads:
    """Which thread runs which stream, and on which thread's stack an object lies."""

    def __init__(self) -> None:
        self.running: dict[int, str] = {}  # by the address of the stream
        self._stacks: list[tuple[int, str]] = []
        self._names: dict[int, str] = {}  # by the system's number
        selected = gdb.selected_thread()
        frame = gdb.selected_frame() if selected else None
        try:
            for thread in gdb.selected_inferior().threads():
                thread.switch()
                name = f"thread {thread.num}"
                self._names[thread.ptid[1]] = name
                self._stacks.append((int(gdb.newest_frame().read_register("sp")), name))
                self._add_turns(name)
        finally:
            if selected:
                selected.switch()
                frame.select()

    def _add_turns(self, name: str) -> None:
        """The streams whose commands the current thread runs: one inside the other, as waits nest."""
        try:
            turn = gdb.parse_and_eval("'openreg::Turn::innermost_'")
            while turn:
                self.running[int(turn["strand_"].address)] = name
                turn = turn["outer_"]
        except gdb.error:
            pass  # no thread-local storage: a core file without libthread_db, or a thread that begins

    def on_stack(self, value: gdb.Value) -> str:
        """The thread on whose stack `value` lies: the one whose top of the stack is next below."""
        address = int(value.address)
        below = [(top, name) for top, name in self._stacks if top <= address]
        return max(below)[1] if below else "a thread"

    def by_system_number(self, number: int) -> str:
        return self._names.get(number, f"LWP {number}")


# --- Streams and fences ---


def strands() -> Iterator[gdb.Value]:
    """All streams of all devices that have been used."""
    for pool in _pools():
        for pointer in _vector(pool["streams_"]):
            yield pointer.dereference()


def _pools() -> list[gdb.Value]:
    try:
        pools = _load(gdb.parse_and_eval("'openreg::(anonymous namespace)::g_pools'"))
        gdb.lookup_type("openreg::Strand")
    except gdb.error as error:
        raise gdb.GdbError(
            "openreg: the device is not loaded, or its library has no debug information; build it with\n"
            "  pip install --no-build-isolation --config-settings=cmake.build-type=RelWithDebInfo -e ."
        ) from error
    if not pools:
        raise gdb.GdbError("openreg: no device has been used")
    return [pointer.dereference() for pointer in _vector(pools.dereference())]


def stream_name(strand: gdb.Value) -> str:
    """`openreg:0 stream 3`."""
    return f"openreg:{int(strand['device_index'])} stream {int(strand['number'])}"


def records(strand: gdb.Value) -> Iterator[gdb.Value]:
    """The records of a queue that have not completed, the next one first."""
    record = gdb.lookup_type("openreg::Record").pointer()
    chunk, used = strand["reader"]["chunk_"], int(strand["reader"]["used_"])
    for _ in range(int(_load(strand["tail"])) - int(_load(strand["head"]))):
        places = chunk["places"]
        count = places.type.range()[1] + 1
        if used == count:
            chunk, used = chunk["next"], 0
            if not chunk:
                return
            places = chunk["places"]
        yield places[used * _STRIDE % count].address.cast(record).dereference()
        used += 1


def describe_record(record: gdb.Value) -> str:
    kind = _enum(record["kind"])
    if kind == "run":
        kernel = record["target"].cast(gdb.lookup_type("openreg::Kernel").pointer())
        return f"run {kernel['name_'].string()}"
    if kind == "graph":
        run = record["target"].cast(gdb.lookup_type("openreg::GraphRun").pointer())
        return f"run a graph: {int(run['next_'])} of {int(run['nodes_']['_M_extent']['_M_extent_value'])} nodes"
    fence = record["target"].cast(gdb.lookup_type("openreg::Fence").pointer()).dereference()
    return f"{'wait for' if kind == 'wait' else kind} {describe_fence(fence)}"


def fence_done(fence: gdb.Value) -> bool:
    """As Fence::done()."""
    source = fence["source_"]
    return bool(_load(fence["fired_"])) or bool(source and _load(source["head"]) > _load(fence["position_"]))


def describe_fence(fence: gdb.Value) -> str:
    if fence["name_"]:
        what = f'fence of "{fence["name_"].string()}"'
    elif fence["source_"]:
        position = int(_load(fence["position_"]))
        at = "not yet submitted" if position == _UNPUBLISHED else f"command {position}"
        what = f"fence of {stream_name(fence['source_'])}, {at}"
    else:
        what = "fence"
    if not fence_done(fence):
        return what
    failed = fence["failure_"]["_M_ptr"] or fence["error_"]["_M_exception_object"]
    return f"{what} (completed{' with an error' if failed else ''})"


def _failure(strand: gdb.Value) -> str:
    failure = strand["failure_"]["_M_ptr"]
    return f"failed in {failure['source_'].string()}" if failure else ""


def describe_strand(strand: gdb.Value, threads: Threads | None = None) -> str:
    head, tail = int(_load(strand["head"])), int(_load(strand["tail"]))
    parts = [stream_name(strand), _enum(_load(strand["state"])), f"{head} of {tail} commands completed"]
    following = next(records(strand), None)
    if following is not None:
        parts.append(f"next: {describe_record(following)}")
    if _enum(strand["level"]) == "high":
        parts.append("high priority")
    if strand["closed"]:
        parts.append("destroyed")
    if _load(strand["captured_by"]):
        parts.append(f"captured by {int(_load(strand['captured_by']))}")
    if failure := _failure(strand):
        parts.append(failure)
    if threads:
        if (runner := threads.running.get(int(strand.address))) is not None:
            parts.append(f"run by {runner}")
        helpers = [threads.on_stack(waiter) for waiter in _list(strand["helpers"], "as_helper")]
        if helpers:
            parts.append(f"awaited by {', '.join(helpers)}")
    return "; ".join(parts)


def chain(strand: gdb.Value, threads: Threads) -> str:
    """What a parked stream waits for in the end: along the fences, to a stream that is not parked, or outside."""
    parts, seen = [], {int(strand.address)}
    while strand["parked_on"]:
        fence = strand["parked_on"].dereference()
        parts.append(describe_fence(fence))
        if not fence["source_"]:
            return " -> ".join([*parts, "signalled from outside of the device"])
        strand = fence["source_"].dereference()
        if int(strand.address) in seen:
            return " -> ".join([*parts, "a cycle"])
        seen.add(int(strand.address))
    state = _enum(_load(strand["state"]))
    following = next(records(strand), None)
    doing = describe_record(following) if following is not None else "nothing left"
    runner = threads.running.get(int(strand.address))
    return " -> ".join([*parts, f"{state}: {doing}{f', by {runner}' if runner else ''}"])


def fences() -> dict[int, gdb.Value]:
    """The fences that streams are parked on or that queues refer to, by address."""
    pointer = gdb.lookup_type("openreg::Fence").pointer()
    found = {}
    for strand in strands():
        candidates = [strand["parked_on"]]
        for record in records(strand):
            if _enum(record["kind"]) in ("record", "wait"):
                candidates.append(record["target"].cast(pointer))
            candidates.append(record["fence"])
        found.update({int(fence): fence.dereference() for fence in candidates if fence})
    return found


# --- Memory ---


def heaps() -> Iterator[tuple[int, gdb.Value]]:
    """The device and its DeviceHeap, of each heap."""
    table = _static_local("openreg::memory::device_heap(int)::heaps", "openreg::memory::DeviceHeap")
    if table is None:
        return
    table = table.cast(gdb.lookup_type("openreg::memory::DeviceHeap").pointer().pointer())
    for device in range(len(_pools())):
        yield device, table[device].dereference()


def blocks(segment: gdb.Value) -> Iterator[gdb.Value]:
    block = segment["first"]
    while block:
        yield block.dereference()
        block = block["right"]


def describe_block(block: gdb.Value) -> str:
    text = f"{_enum(block['state'])} {hex(int(block['address']))}, {_size(block['bytes'])}"
    if _enum(block["state"]) != "free":
        text += f", {int(block['requested'])} bytes asked for"
    if marks := int(block["marks"]):
        text += f", marks of other streams that have not passed: {marks}"
    return text


def describe_segment(segment: gdb.Value) -> str:
    strand = segment["stream"].cast(gdb.lookup_type("openreg::Strand").pointer())
    counts: dict[str, list[int]] = {}
    for block in blocks(segment):
        counts.setdefault(_enum(block["state"]), []).append(int(block["bytes"]))
    inside = ", ".join(f"{len(sizes)} {state} ({_size(sum(sizes))})" for state, sizes in counts.items())
    of_pool = "" if not any(_pool_id(segment)) else f", pool {_pool_id(segment)}"
    where = f"{hex(int(segment['address']))}, {_size(segment['bytes'])}"
    return f"segment {where}, {_enum(segment['size_class'])}, of {stream_name(strand)}{of_pool}: {inside}"


def _pool_id(segment: gdb.Value) -> tuple[int, int]:
    pool = segment["pool"]["id_"]
    return int(pool["first"]), int(pool["second"])


def describe_heap(heap: gdb.Value) -> str:
    segments = list(_map_values(heap["segments_"]))
    totals = {"held": 0, "pending": 0, "free": 0}
    for segment in segments:
        for block in blocks(segment):
            state = _enum(block["state"])
            totals[state] = totals.get(state, 0) + int(block["bytes"])
    limit, reserved = int(heap["limit_"]), sum(int(segment["bytes"]) for segment in segments)
    of_limit = f" of {_size(limit)}" if limit < _NO_LIMIT else ""  # set when the heap is first used
    inside = ", ".join(f"{_size(total)} {state}" for state, total in totals.items())
    return f"{_size(reserved)} reserved{of_limit} in {len(segments)} segments; {inside}"


# --- Locks ---


def _owner(mutex: gdb.Value) -> int:
    """The thread that holds an openreg::Mutex, by the system's number; 0: none does."""
    return int(mutex["mutex_"]["_M_mutex"]["__data"]["__owner"])


# --- Printers of `print` ---


class _OneLine:
    def __init__(self, text: str) -> None:
        self._text = text

    def to_string(self) -> str:
        return self._text


def _describe_stream(stream: gdb.Value) -> str:
    return describe_strand(stream.cast(gdb.lookup_type("openreg::Strand")))


def _describe_reference(reference: gdb.Value) -> str:
    return describe_fence(reference["fence_"].dereference()) if reference["fence_"] else "no fence"


def _describe_mutex(mutex: gdb.Value) -> str:
    return f"held by LWP {_owner(mutex)}" if _owner(mutex) else "free"


_PRINTERS = {
    "openreg::Strand": describe_strand,
    "openreg::Stream": _describe_stream,
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
    """What the device openreg is doing: streams, fences, engines, heap."""

    def __init__(self) -> None:
        super().__init__("openreg", gdb.COMMAND_STATUS, gdb.COMPLETE_NONE, prefix=True)


class _Streams(gdb.Command):
    """Every stream: its state, its next command, and what a waiting one waits for in the end."""

    def __init__(self) -> None:
        super().__init__("openreg streams", gdb.COMMAND_STATUS)

    def invoke(self, argument: str, from_tty: bool) -> None:
        threads = Threads()
        for strand in strands():
            print(describe_strand(strand, threads))
            if strand["parked_on"]:
                print(f"    waits for {chain(strand, threads)}")


class _Fences(gdb.Command):
    """The fences in the queues, and the streams and threads that wait for them."""

    def __init__(self) -> None:
        super().__init__("openreg fences", gdb.COMMAND_STATUS)

    def invoke(self, argument: str, from_tty: bool) -> None:
        threads = Threads()
        for address, fence in fences().items():
            parked = [stream_name(strand) for strand in _list(fence["parked_"], "link")]
            hosts = [threads.on_stack(waiter) for waiter in _list(fence["waiters_"], "at_fence")]
            waiting = f"; awaited by {', '.join(parked + hosts)}" if parked or hosts else ""
            references = int(_load(fence["references_"]))
            print(f"{hex(address)} {describe_fence(fence)}; {references} references{waiting}")


class _Engines(gdb.Command):
    """The threads of the device, and the streams that are ready for them."""

    def __init__(self) -> None:
        super().__init__("openreg engines", gdb.COMMAND_STATUS)

    def invoke(self, argument: str, from_tty: bool) -> None:
        _pools()
        scheduler = _static_local("openreg::Scheduler::get()::scheduler", "openreg::Scheduler")
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
                for strand in _list(engines["run_queues"][priority], "link"):
                    print(f"    ready: {describe_strand(strand, threads)}")
        owner = _owner(gdb.parse_and_eval("'openreg::scheduler_mutex'"))
        print(f"scheduler's mutex: {f'held by {threads.by_system_number(owner)}' if owner else 'free'}")
        if _load(scheduler["stopping_"]):
            print("the device has been shut down: no further command begins")


class _Heap(gdb.Command):
    """The memory of a device, or of all: `openreg heap [N] [blocks]`."""

    def __init__(self) -> None:
        super().__init__("openreg heap", gdb.COMMAND_STATUS)

    def invoke(self, argument: str, from_tty: bool) -> None:
        words = argument.split()
        numbers = {int(word) for word in words if word.isdigit()}
        if unknown := [word for word in words if not word.isdigit() and word != "blocks"]:
            raise gdb.GdbError(f"openreg heap: no such argument (got {unknown[0]}, expected a device, or blocks)")
        for device, heap in heaps():
            if numbers and device not in numbers:
                continue
            taken = "; its lock is taken" if _load(heap["mutex_"]["taken_"]) else ""
            print(f"openreg:{device}: {describe_heap(heap['heap_'])}{taken}")
            for segment in _map_values(heap["heap_"]["segments_"]):
                print(f"    {describe_segment(segment)}")
                if "blocks" in words:
                    for block in blocks(segment):
                        print(f"        {describe_block(block)}")


for command in (_Openreg, _Streams, _Fences, _Engines, _Heap):
    command()
gdb.pretty_printers.append(_printer)
