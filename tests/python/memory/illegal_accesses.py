"""Programs that use device memory after it was given back, one for each way to the memory. With the names of ways as
arguments, runs them, and prints what each raised; the device has to be usable afterwards."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import sys
import time
from collections.abc import Callable

import torch

openreg = torch.get_device_module()  # of another device where only the names of ways are asked for
DEVICE = "openreg"
COUNT = 8 << 20
WHEN_FAULTHANDLER = sys.argv[1] if len(sys.argv) > 1 else "never"


def give_back() -> None:
    gc.collect()
    openreg.empty_cache()
    if WHEN_FAULTHANDLER == "late":
        faulthandler.enable()


def freed(count: int = COUNT) -> torch.Tensor:
    """A tensor over memory that is no longer there, as a library makes it that keeps a pointer for too long."""
    memory = torch.ones(4 * count, device=DEVICE)
    openreg.synchronize()
    pointer = memory.data_ptr() + 3 * 4 * count  # results get the first addresses
    storage = torch._C._construct_storage_from_data_pointer(pointer, memory.device, 4 * count)
    del memory
    give_back()
    return torch.empty(0, device=DEVICE).set_(storage, 0, (count,))


def graph_reads() -> object:
    x = torch.ones(COUNT, device=DEVICE)
    graph = openreg.CUDAGraph()
    with openreg.graph(graph):
        y = x + 1
        z = y.sum()
    del x
    give_back()
    graph.replay()
    return z.item()


def graph_writes() -> object:
    x = torch.ones(COUNT, device=DEVICE)
    graph = openreg.CUDAGraph()
    with openreg.graph(graph):
        x.add_(1)
    del x
    give_back()
    graph.replay()
    openreg.synchronize()
    return None


def graph_with_two_lanes() -> object:
    x, other = torch.ones(COUNT, device=DEVICE), torch.ones(8, device=DEVICE)
    graph, side = openreg.CUDAGraph(), openreg.Stream()
    with openreg.graph(graph):
        side.wait_stream(openreg.current_stream())
        with openreg.stream(side):
            y = x * 2
        z = other * 2
        openreg.current_stream().wait_stream(side)
        z = z + y[:8]
    del x
    give_back()
    graph.replay()
    return z.tolist()


def command_reads() -> object:
    return (freed() + 1)[0].item()


def command_writes() -> object:
    freed().fill_(3)
    openreg.synchronize()
    return None


def command_changes() -> object:
    freed().mul_(3)
    openreg.synchronize()
    return None


def command_with_a_team() -> object:
    result = torch.empty(2048, 2048, device=DEVICE)  # before, or it gets the same addresses
    x = freed(4 << 20).view(2048, 2048)
    return torch.mm(x, x, out=result)[0, 0].item()


def command_on_an_engine() -> object:
    event = openreg.Event()
    x = freed()
    x.add_(1)
    event.record()
    while not event.query():
        time.sleep(0.001)
    openreg.synchronize()
    return None


def command_of_another_stream() -> object:
    stream = openreg.Stream()
    x = freed()
    with openreg.stream(stream):
        x.sum()
    stream.synchronize()
    return None


def copy_to_the_cpu() -> object:
    return freed().cpu()[0]


def copy_from_the_cpu() -> object:
    freed().copy_(torch.ones(COUNT))
    return None


def copy_to_pinned_memory() -> object:
    pinned = torch.empty(COUNT, pin_memory=True)
    pinned.copy_(freed(), non_blocking=True)
    openreg.synchronize()
    return None


def copy_between_devices() -> object:
    return freed().to("openreg:1")[0].item()


def item() -> object:
    return freed()[5].item()


def operator_on_the_host() -> object:
    return freed().nonzero().shape


def custom_operator() -> object:
    library = torch.library.Library("illegal", "FRAGMENT")
    library.define("double(Tensor x) -> Tensor")
    library.impl("double", lambda x: x * 2, "CPU")
    return torch.ops.illegal.double(freed())[0].item()


def compiled_kernel() -> object:
    function = torch.compile(lambda x: (x * 2 + 1).sum())
    function(torch.ones(COUNT, device=DEVICE))
    return function(freed()).item()


WAYS: dict[str, Callable[[], object]] = {
    each.__name__: each
    for each in (
        graph_reads,
        graph_writes,
        graph_with_two_lanes,
        command_reads,
        command_writes,
        command_changes,
        command_with_a_team,
        command_on_an_engine,
        command_of_another_stream,
        copy_to_the_cpu,
        copy_from_the_cpu,
        copy_to_pinned_memory,
        copy_between_devices,
        item,
        operator_on_the_host,
        custom_operator,
        compiled_kernel,
    )
}


def main() -> None:
    if WHEN_FAULTHANDLER == "early":
        faulthandler.enable()
    for name in sys.argv[2:]:
        try:
            result = WAYS[name]()
            print(name, "returned", result)
        except torch.AcceleratorError as error:
            print(name, "raised", str(error).replace("\n", " "))
        for index in (0, 1):  # an event has passed the failure to the other device's stream
            with contextlib.suppress(torch.AcceleratorError):
                openreg.synchronize(index)
        x = torch.ones(COUNT, device=DEVICE)
        assert x.sum().item() == COUNT and (x + x)[-1].item() == 2, name
        del x
    print("end")


if __name__ == "__main__":
    main()
