"""Reads the device's state in gdb: C++ values, threads, streams, fences and heaps. openreg_gdb.py has the commands."""

from __future__ import annotations

from collections.abc import Iterator

import gdb

_STRIDE = 5  # Chunk::place
_UNPUBLISHED = 2**64 - 1  # Fence::kUnpublished
_NO_LIMIT = 2**64 - 1


# --- C++ values ---


def load(atomic: gdb.Value) -> gdb.Value:
    """The value of a std::atomic."""
    names = {field.name for field in atomic.type.strip_typedefs().fields()}
    if "_M_i" in names:
        return atomic["_M_i"]
    if "_M_b" in names:  # a pointer
        return atomic["_M_b"]["_M_p"]
    if "_M_base" in names:  # a bool
        return atomic["_M_base"]["_M_i"]
    return load(
        atomic.cast(atomic.type.strip_typedefs().fields()[0].type)
    )  # an integer: the member is in the base class


def enum_name(value: gdb.Value) -> str:
    """`running` for State::kRunning."""
    return str(value).rpartition("::")[2].removeprefix("k").lower()


def elements(intrusive: gdb.Value, link: str) -> Iterator[gdb.Value]:
    """The elements of an IntrusiveList that are linked through their member `link`."""
    element = intrusive["first_"]
    while element:
        yield element.dereference()
        element = element[link]["next"]


def vector_elements(vector: gdb.Value) -> Iterator[gdb.Value]:
    element, end = vector["_M_impl"]["_M_start"], vector["_M_impl"]["_M_finish"]
    while element != end:
        yield element.dereference()
        element += 1


def map_values(tree: gdb.Value) -> Iterator[gdb.Value]:
    """The values of a std::map with pointers as keys, in the order of the keys."""
    value = tree.type.strip_typedefs().template_argument(1).pointer()
    header = tree["_M_t"]["_M_impl"]["_M_header"]
    node, end = header["_M_left"], header.address
    while node != end:
        # The node's base is followed by the key, which has the size of a pointer, and the value.
        yield ((node + 1).cast(node.type.pointer()) + 1).cast(value).dereference()
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


def static_local(name: str, pointee: str) -> gdb.Value | None:
    """The target of a reference that is a static variable of a function; None if it is not initialised."""
    try:
        address = int(gdb.parse_and_eval(f"'{name}'").referenced_value().address)
    except gdb.error:  # its type is not known yet, or unknown
        try:
            address = int(gdb.parse_and_eval(f"*(unsigned long*)&'{name}'"))
        except gdb.error:
            return None
    return gdb.Value(address).cast(gdb.lookup_type(pointee).pointer()) if address else None


def size_text(count: gdb.Value | int) -> str:
    number = int(count)
    power = min(max(number.bit_length() - 1, 0) // 10, 4)
    return f"{number / 1024**power:.1f} {'KMGT'[power - 1]}iB" if power else f"{number} bytes"


# --- Threads ---


class Threads:
    """Maps streams to the threads that run them, and objects to the threads whose stacks contain them."""

    def __init__(self) -> None:
        self.running: dict[int, str] = {}  # thread name by stream address
        self._stacks: list[tuple[int, str]] = []
        self._names: dict[int, str] = {}  # by system thread id
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
        """Adds the streams whose commands the current thread runs. There may be several, because waits nest."""
        try:
            slice = gdb.parse_and_eval("'openreg::RunSlice::innermost_'")
            while slice:
                self.running[int(slice["stream_"].address)] = name
                slice = slice["outer_"]
        except gdb.error:
            pass  # no thread-local storage: a core file without libthread_db, or a thread that is starting

    def on_stack(self, value: gdb.Value) -> str:
        """The thread whose stack contains `value`: the one with the nearest top of stack below it."""
        address = int(value.address)
        below = [(top, name) for top, name in self._stacks if top <= address]
        return max(below)[1] if below else "a thread"

    def by_system_number(self, number: int) -> str:
        return self._names.get(number, f"LWP {number}")


# --- Streams and fences ---


def streams() -> Iterator[gdb.Value]:
    """All streams of all devices that have been used."""
    for pool in pools():
        for pointer in vector_elements(pool["streams_"]):
            yield pointer.dereference()


def pools() -> list[gdb.Value]:
    try:
        pools = load(gdb.parse_and_eval("'openreg::(anonymous namespace)::g_pools'"))
        gdb.lookup_type("openreg::StreamImpl")
    except gdb.error as error:
        raise gdb.GdbError(
            "openreg: the device is not loaded, or its library has no debug information; build it with\n"
            "  pip install --no-build-isolation --config-settings=cmake.build-type=RelWithDebInfo -e ."
        ) from error
    if not pools:
        raise gdb.GdbError("openreg: no device has been used")
    return [pointer.dereference() for pointer in vector_elements(pools.dereference())]


def stream_name(stream: gdb.Value) -> str:
    """`openreg:0 stream 3`."""
    return f"openreg:{int(stream['device_index'])} stream {int(stream['number'])}"


def records(stream: gdb.Value) -> Iterator[gdb.Value]:
    """The records of a queue that have not completed, the next one first."""
    record = gdb.lookup_type("openreg::Record").pointer()
    queue = stream["queue"]
    chunk, used = queue["reader_"]["chunk_"], int(queue["reader_"]["used_"])
    for _ in range(int(load(queue["tail_"])) - int(load(queue["head_"]))):
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
    kind = enum_name(record["kind"])
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
    return bool(load(fence["fired_"])) or bool(source and load(source["queue"]["head_"]) > load(fence["position_"]))


def describe_fence(fence: gdb.Value) -> str:
    if fence["name_"]:
        what = f'fence of "{fence["name_"].string()}"'
    elif fence["source_"]:
        position = int(load(fence["position_"]))
        at = "not yet submitted" if position == _UNPUBLISHED else f"command {position}"
        what = f"fence of {stream_name(fence['source_'])}, {at}"
    else:
        what = "fence"
    if not fence_done(fence):
        return what
    failed = fence["failure_"]["_M_ptr"] or fence["error_"]["_M_exception_object"]
    return f"{what} (completed{' with an error' if failed else ''})"


def _failure(stream: gdb.Value) -> str:
    failure = stream["failure"]["failure_"]["_M_ptr"]
    return f"failed in {failure['source_'].string()}" if failure else ""


def describe_stream(stream: gdb.Value, threads: Threads | None = None) -> str:
    head, tail = int(load(stream["queue"]["head_"])), int(load(stream["queue"]["tail_"]))
    state = enum_name(load(stream["ownership"]["state_"]))
    parts = [stream_name(stream), state, f"{head} of {tail} commands completed"]
    following = next(records(stream), None)
    if following is not None:
        parts.append(f"next: {describe_record(following)}")
    if enum_name(stream["level"]) == "high":
        parts.append("high priority")
    if stream["queue"]["closed_"]:
        parts.append("destroyed")
    if load(stream["captured_by"]):
        parts.append(f"captured by {int(load(stream['captured_by']))}")
    if failure := _failure(stream):
        parts.append(failure)
    if threads:
        if (runner := threads.running.get(int(stream.address))) is not None:
            parts.append(f"run by {runner}")
        helpers = [threads.on_stack(waiter) for waiter in elements(stream["ownership"]["helpers_"], "as_helper")]
        if helpers:
            parts.append(f"awaited by {', '.join(helpers)}")
    return "; ".join(parts)


def chain(stream: gdb.Value, threads: Threads) -> str:
    """The chain of waits of a parked stream: from fence to fence to a stream that is not parked, or outside."""
    parts, seen = [], {int(stream.address)}
    while stream["ownership"]["parked_on_"]:
        fence = stream["ownership"]["parked_on_"].dereference()
        parts.append(describe_fence(fence))
        if not fence["source_"]:
            return " -> ".join([*parts, "signalled from outside the device"])
        stream = fence["source_"].dereference()
        if int(stream.address) in seen:
            return " -> ".join([*parts, "a cycle"])
        seen.add(int(stream.address))
    state = enum_name(load(stream["ownership"]["state_"]))
    following = next(records(stream), None)
    doing = describe_record(following) if following is not None else "nothing left"
    runner = threads.running.get(int(stream.address))
    return " -> ".join([*parts, f"{state}: {doing}{f', by {runner}' if runner else ''}"])


def fences() -> dict[int, gdb.Value]:
    """The fences that streams are parked on or that queues refer to, by address."""
    pointer = gdb.lookup_type("openreg::Fence").pointer()
    found = {}
    for stream in streams():
        candidates = [stream["ownership"]["parked_on_"]]
        for record in records(stream):
            if enum_name(record["kind"]) in ("record", "wait"):
                candidates.append(record["target"].cast(pointer))
            candidates.append(record["fence"])
        found.update({int(fence): fence.dereference() for fence in candidates if fence})
    return found


# --- Memory ---


def heaps() -> Iterator[tuple[int, gdb.Value]]:
    """Each device with its DeviceHeap."""
    table = static_local("openreg::memory::device_heap(int)::heaps", "openreg::memory::DeviceHeap")
    if table is None:
        return
    table = table.cast(gdb.lookup_type("openreg::memory::DeviceHeap").pointer().pointer())
    for device in range(len(pools())):
        yield device, table[device].dereference()


def blocks(segment: gdb.Value) -> Iterator[gdb.Value]:
    block = segment["first"]
    while block:
        yield block.dereference()
        block = block["right"]


def describe_block(block: gdb.Value) -> str:
    text = f"{enum_name(block['state'])} {hex(int(block['address']))}, {size_text(block['bytes'])}"
    if enum_name(block["state"]) != "free":
        text += f", {int(block['requested'])} bytes requested"
    if marks := int(block["marks"]):
        text += f", pending marks of other streams: {marks}"
    return text


def describe_segment(segment: gdb.Value) -> str:
    stream = segment["stream"].cast(gdb.lookup_type("openreg::StreamImpl").pointer())
    counts: dict[str, list[int]] = {}
    for block in blocks(segment):
        counts.setdefault(enum_name(block["state"]), []).append(int(block["bytes"]))
    inside = ", ".join(f"{len(sizes)} {state} ({size_text(sum(sizes))})" for state, sizes in counts.items())
    of_pool = "" if not any(_pool_id(segment)) else f", pool {_pool_id(segment)}"
    where = f"{hex(int(segment['address']))}, {size_text(segment['bytes'])}"
    return f"segment {where}, {enum_name(segment['size_class'])}, of {stream_name(stream)}{of_pool}: {inside}"


def _pool_id(segment: gdb.Value) -> tuple[int, int]:
    pool = segment["pool"]["id_"]
    return int(pool["first"]), int(pool["second"])


def describe_heap(heap: gdb.Value) -> str:
    segments = list(map_values(heap["segments_"]))
    totals = {"held": 0, "pending": 0, "free": 0}
    for segment in segments:
        for block in blocks(segment):
            state = enum_name(block["state"])
            totals[state] = totals.get(state, 0) + int(block["bytes"])
    limit, reserved = int(heap["limit_"]), sum(int(segment["bytes"]) for segment in segments)
    of_limit = f" of {size_text(limit)}" if limit < _NO_LIMIT else ""  # set at the first use of the heap
    inside = ", ".join(f"{size_text(total)} {state}" for state, total in totals.items())
    return f"{size_text(reserved)} reserved{of_limit} in {len(segments)} segments; {inside}"


# --- Locks ---


def owner_of(mutex: gdb.Value) -> int:
    """The system id of the thread that holds an openreg::Mutex; 0 if it is free."""
    return int(mutex["mutex_"]["_M_mutex"]["__data"]["__owner"])
