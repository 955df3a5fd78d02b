"""Tensors in other processes: they have the same memory there, for as long as anyone uses it."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import pickle
import resource
import threading
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import peer as peer_module
import pytest
import torch
from devices import DEVICE
from peer import Peer
from torch import multiprocessing

MIB = 1 << 20

KINDS = {
    "tensor": lambda x: x,
    "view": lambda x: x.t()[1:],
    "parameter": torch.nn.Parameter,
    "frozen parameter": lambda x: torch.nn.Parameter(x, requires_grad=False),
    "leaf": lambda x: x.clone().requires_grad_(),
    "empty": lambda x: x[:0].clone(),
    "scalar": lambda x: x.sum(),
    "integers": lambda x: x.to(torch.int8),
    "sparse": lambda x: x.to_sparse(),
    "compressed": lambda x: x.to_sparse_csr(),
    "lazy clone": lambda x: torch._lazy_clone(x),
    "last device": lambda x: x.to(f"{DEVICE}:{torch.openreg.device_count() - 1}"),
    "list": lambda x: [torch.ones(2), x],
}


JAGGED = pytest.param("jagged", marks=pytest.mark.full)  # imports for seconds in the other process


def make(kind):
    if kind == "jagged":
        x = torch.ones(2, 3, device=DEVICE)
        return torch.nested.nested_tensor([x, x], layout=torch.jagged)
    return KINDS[kind](torch.arange(6.0, device=DEVICE).view(2, 3))


def memory_of(tensor):
    return tensor.untyped_storage().data_ptr()


@pytest.fixture(scope="module")
def peer():
    argument = torch.arange(3.0, device=DEVICE)
    process = Peer(argument)
    yield process
    assert process.end() == 0


@pytest.fixture
def allocated(request):
    """What tensors hold when a test begins; the same when it ends."""
    gc.collect()  # of tests before: freed later, it would be missing at the end
    torch.openreg.ipc_collect()
    before = torch.accelerator.memory_allocated()
    yield before
    if "peer" in request.fixturenames:  # it may still have what it has just sent
        request.getfixturevalue("peer").call(peer_module.forget)
    torch.openreg.ipc_collect()
    if torch.accelerator.memory_allocated() != before:
        gc.collect()
        torch.openreg.ipc_collect()
    assert torch.accelerator.memory_allocated() == before


def fresh(value):
    """A tensor of 4 MiB where none has been before that was shared."""
    with torch.openreg.use_mem_pool(torch.openreg.MemPool()):
        return torch.full((MIB,), value, device=DEVICE)


def open_files(peer):
    return peer_module.open_files(), peer.call(peer_module.open_files), set(Path("/dev/shm").iterdir())


def all_are(tensor, value):
    return bool((tensor == value).all())


@contextlib.contextmanager
def small_files():
    """The system refuses memory that can be shared."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


# --- What arrives ---


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("kind", [*KINDS, JAGGED])
def test_what_is_sent_arrives_and_comes_back(peer, allocated, kind):
    value = make(kind)
    returned = peer.call(peer_module.echo, value)
    if kind == "list":
        (_, value), (_, returned) = value, returned
    assert type(returned) is type(value)
    assert returned.device == value.device and returned.dtype == value.dtype and returned.layout == value.layout
    assert returned.requires_grad == value.requires_grad
    if kind == "jagged":
        value, returned = value.values(), returned.values()
    assert returned.shape == value.shape
    assert returned.cpu().to_dense().tolist() == value.cpu().to_dense().tolist()
    if value.layout == torch.strided and value.numel() > 0:
        assert memory_of(returned) == memory_of(value) and returned.stride() == value.stride()


def test_an_argument_of_a_process_shares_memory(peer):
    assert peer.call(peer_module.elements, "0") == [0, 1, 2]
    x = peer.call(peer_module.get, "0")
    x.add_(1)
    torch.accelerator.synchronize()
    assert peer.call(peer_module.elements, "0") == [1, 2, 3]
    x.sub_(1)
    torch.accelerator.synchronize()


def test_what_one_side_writes_the_other_reads(peer, allocated):
    x = torch.zeros(1000, device=DEVICE)
    peer.call(peer_module.keep, "x", x[10:20])
    x[12:14] = 5
    torch.accelerator.synchronize()
    assert peer.call(peer_module.elements, "x") == [0, 0, 5, 5, 0, 0, 0, 0, 0, 0]
    peer.call(peer_module.fill, "x", 7)
    assert x[9:21].tolist() == [0] + 10 * [7] + [0]
    peer.call(peer_module.forget, "x")


def test_a_storage_that_is_sent_twice_arrives_as_one(peer, allocated):
    x = torch.zeros(8, device=DEVICE)
    peer.call(peer_module.keep, "x", x)
    peer.call(peer_module.keep, "view", x[2:])
    peer.call(peer_module.keep, "storage", x.untyped_storage())
    assert peer.call(peer_module.same_storage, "x", "view")
    peer.call(peer_module.keep, "other", torch.zeros(8, device=DEVICE))
    assert not peer.call(peer_module.same_storage, "x", "other")
    peer.call(peer_module.forget, "x", "view", "storage", "other")


def test_a_tensor_that_comes_back_is_the_storage_that_was_sent(peer, allocated):
    x = torch.zeros(8, device=DEVICE)
    returned = peer.call(peer_module.echo, x[1:])
    assert returned.untyped_storage()._cdata == x.untyped_storage()._cdata
    assert returned.storage_offset() == 1


def test_a_tensor_that_comes_back_after_it_was_deleted_has_its_memory(peer, allocated):
    x = torch.full((8,), 3.0, device=DEVICE)
    address = memory_of(x)
    peer.call(peer_module.keep, "x", x)
    del x
    returned = peer.call(peer_module.get, "x")
    assert memory_of(returned) == address and returned.tolist() == 8 * [3]
    peer.call(peer_module.forget, "x")
    torch.openreg.ipc_collect()
    assert returned.tolist() == 8 * [3] and torch.accelerator.memory_allocated() > allocated


def test_parameters_of_a_module_are_shared(peer, allocated):
    model = torch.nn.Linear(2, 1, device=DEVICE).share_memory()
    peer.call(peer_module.keep, "weight", model.state_dict()["weight"])
    peer.call(peer_module.fill, "weight", 3)
    assert model.weight.tolist() == [[3, 3]]
    peer.call(peer_module.forget, "weight")


def test_what_was_queued_before_the_send_is_done_when_it_arrives(peer, allocated):
    x = torch.zeros(1000, device=DEVICE)
    side = torch.Stream()
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        torch.openreg._sleep(50_000_000)
        x.fill_(4)
    peer.call(peer_module.keep, "x", x)
    assert peer.call(peer_module.elements, "x") == 1000 * [4]
    peer.call(peer_module.forget, "x")


def test_work_continues_while_another_thread_sends(allocated):
    with torch.openreg.use_mem_pool(torch.openreg.MemPool()):
        tensors = [torch.zeros(1000 + i, device=DEVICE) for i in range(20)]
        tensors += [torch.zeros(MIB, device=DEVICE) for _ in range(8)]
    messages = []
    sender = threading.Thread(target=lambda: messages.extend(map(ForkingPickler.dumps, tensors)))
    sender.start()
    count = 0
    while sender.is_alive():
        for x in tensors:
            x.add_(1)
        count += 1
    sender.join()
    torch.accelerator.synchronize()
    assert [memory_of(pickle.loads(message)) for message in messages] == [memory_of(x) for x in tensors]
    assert all(all_are(x, count) for x in tensors)


def test_queues_and_pipes(allocated):
    x = torch.arange(4.0, device=DEVICE)
    queue, (receiver, sender) = multiprocessing.Queue(), multiprocessing.Pipe(duplex=False)
    queue.put(x)
    assert memory_of(queue.get(timeout=60)) == memory_of(x)
    sender.send(x)
    assert memory_of(receiver.recv()) == memory_of(x)
    queue.close()
    queue.join_thread()


def test_tensors_of_the_cpu_travel_as_before():
    queue = multiprocessing.SimpleQueue()
    queue.put(torch.ones(2))
    received = queue.get()
    assert received.is_shared() and received.tolist() == [1, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_pickle_and_save_write_the_elements(kind):
    value = make(kind)
    pickle.loads(pickle.dumps(value))
    torch.save(value, io.BytesIO())


def test_memory_of_the_device_is_shared():
    x = torch.ones(2, device=DEVICE)
    model = torch.nn.Linear(2, 2, device=DEVICE)
    assert x.is_shared() and x.untyped_storage().is_shared()
    assert x.share_memory_() is x and model.share_memory() is model
    assert not torch.ones(2).is_shared() and torch.ones(2).share_memory_().is_shared()


# --- Who keeps memory ---


def test_memory_stays_until_the_last_process_releases_it(peer, allocated):
    x = torch.full((MIB,), 2.0, device=DEVICE)
    peer.call(peer_module.keep, "x", x)
    address = memory_of(x)
    del x
    torch.openreg.ipc_collect()
    assert torch.accelerator.memory_allocated() == allocated + 4 * MIB
    others = [torch.zeros(MIB, device=DEVICE) for _ in range(3)]
    assert address not in map(memory_of, others)
    assert peer.call(peer_module.all_are, "x", 2)
    peer.call(peer_module.forget, "x")
    torch.openreg.ipc_collect()
    assert torch.accelerator.memory_allocated() == allocated + 12 * MIB
    del others


def test_a_message_under_way_keeps_memory(allocated):
    message = ForkingPickler.dumps(torch.full((8,), 6.0, device=DEVICE))
    torch.openreg.ipc_collect()
    assert torch.accelerator.memory_allocated() > allocated
    assert pickle.loads(message).tolist() == 8 * [6]


def test_memory_that_others_have_released_is_freed_when_it_is_needed(peer, allocated):
    torch.accelerator.empty_cache()  # what earlier tests have left would serve too
    x = torch.zeros(16 * MIB, device=DEVICE)
    peer.call(peer_module.keep, "x", x)
    del x
    peer.call(peer_module.forget, "x")
    assert torch.accelerator.memory_allocated() == allocated + 64 * MIB
    reserved = torch.accelerator.memory_reserved()
    y = torch.zeros(16 * MIB, device=DEVICE)
    assert torch.accelerator.memory_reserved() == reserved
    assert torch.accelerator.memory_allocated() == allocated + 64 * MIB
    del y


def test_sending_frees_memory_that_others_have_released(peer, allocated):
    y = torch.zeros(4, device=DEVICE)
    x = torch.zeros(MIB, device=DEVICE)
    peer.call(peer_module.keep, "x", x)
    del x
    peer.call(peer_module.forget, "x")
    assert torch.accelerator.memory_allocated() > allocated + 4 * MIB
    peer.call(peer_module.echo, y)
    assert torch.accelerator.memory_allocated() < allocated + 4 * MIB


def test_work_on_a_received_tensor_that_was_deleted_still_has_its_memory(peer, allocated):
    x = torch.full((MIB,), 2.0, device=DEVICE)
    peer.call(peer_module.keep, "x", x)
    del x
    peer.call(peer_module.add_late, "x")
    torch.openreg.ipc_collect()
    torch.zeros(MIB, device=DEVICE)
    torch.accelerator.synchronize()
    assert peer.call(peer_module.all_are, "sum", 3)
    peer.call(peer_module.forget, "sum")


def test_received_memory_is_not_of_the_receivers_statistics_and_limit(peer, allocated):
    before = peer.call(peer_module.figures)
    x = torch.zeros(16 * MIB, device=DEVICE)
    peer.call(peer_module.keep, "x", x)
    assert peer.call(peer_module.figures) == before
    peer.call(peer_module.forget, "x")


def test_a_received_tensor_cannot_be_resized(peer, allocated):
    x = torch.zeros(8, device=DEVICE)
    peer.call(peer_module.keep, "x", x)
    with pytest.raises(RuntimeError, match="resize storage that is not resizable"):
        peer.call(peer_module.resize, "x", 100)
    peer.call(peer_module.forget, "x")


def test_a_tensor_that_its_sender_resizes_is_two_from_then_on(peer, allocated):
    x = torch.full((8,), 1.0, device=DEVICE)
    peer.call(peer_module.keep, "x", x)
    x.resize_(MIB).fill_(2)
    assert peer.call(peer_module.elements, "x") == 8 * [1]
    returned = peer.call(peer_module.get, "x")
    assert returned.tolist() == 8 * [1] and memory_of(returned) != memory_of(x)
    peer.call(peer_module.forget, "x")


def test_shared_memory_goes_back_to_the_system_and_grows_as_any(peer, allocated):
    torch.accelerator.empty_cache()
    pool = torch.openreg.MemPool()
    with torch.openreg.use_mem_pool(pool):
        x = torch.full((MIB,), 1.0, device=DEVICE)
        peer.call(peer_module.echo, x)
        y = torch.full((4 * MIB,), 2.0, device=DEVICE)
    assert memory_of(y) == memory_of(x) + 4 * MIB
    peer.call(peer_module.keep, "y", y)
    assert peer.call(peer_module.all_are, "y", 2) and all_are(x, 1)
    peer.call(peer_module.forget, "y")
    reserved = torch.accelerator.memory_reserved()
    free, _ = torch.openreg.mem_get_info()
    del x, y, pool
    torch.openreg.ipc_collect()
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved() == reserved - 20 * MIB
    assert torch.openreg.mem_get_info()[0] == free + 20 * MIB


def test_a_thousand_sends_leave_nothing(peer, allocated):
    x = torch.zeros(8, device=DEVICE)
    peer.call(peer_module.echo, x)
    before = open_files(peer)
    for i in range(1000):
        assert peer.call(peer_module.echo, torch.full((8,), float(i), device=DEVICE)).sum().item() == 8 * i
    assert open_files(peer) == before
    assert peer.call(peer_module.figures)[0] == 0


def test_a_killed_process_leaves_what_it_sent_and_releases_what_it_received(allocated):
    x = torch.full((MIB,), 1.0, device=DEVICE)
    peer = Peer(x)
    del x
    peer.call(peer_module.make, "y", 5.0, MIB)
    y = peer.call(peer_module.get, "y")
    early, late = peer.call(peer_module.message, "y"), peer.call(peer_module.message, "y")
    torch.openreg.ipc_collect()
    assert torch.accelerator.memory_allocated() == allocated + 4 * MIB
    peer.kill()
    torch.openreg.ipc_collect()
    assert torch.accelerator.memory_allocated() == allocated
    assert all_are(y, 5) and (y + 1)[0].item() == 6
    assert memory_of(pickle.loads(early)) == memory_of(y)
    del y
    torch.openreg.ipc_collect()
    message = r"openreg: cannot open device memory of process \d+: [^;]*; the sender of a tensor must not exit"
    with pytest.raises(RuntimeError, match=message):
        pickle.loads(late)


# --- What is refused ---


def test_a_message_is_read_once(allocated):
    x = torch.zeros(8, device=DEVICE)
    message = ForkingPickler.dumps(x)
    pickle.loads(message)
    with pytest.raises(RuntimeError, match="openreg: a message with a tensor was read a second time"):
        pickle.loads(message)


def test_memory_that_is_not_the_allocators_is_refused():
    x = torch.from_dlpack(torch.zeros(8, device=DEVICE))
    with pytest.raises(RuntimeError, match=r"not allocated by the device's allocator .*send tensor\.clone\(\)"):
        ForkingPickler.dumps(x)


def test_a_result_that_requires_a_gradient_is_refused_as_on_every_device():
    with pytest.raises(RuntimeError, match="non-leaf tensor"):
        ForkingPickler.dumps(torch.zeros(8, device=DEVICE, requires_grad=True) + 1)


@pytest.mark.no_executor("the device's memory is in the file from the beginning")
def test_memory_that_the_system_refuses_is_an_error_of_the_sender(allocated):
    x = fresh(1)
    receiver, sender = multiprocessing.Pipe(duplex=False)
    message = "openreg: cannot share device memory with other processes: File too large"
    with small_files(), pytest.raises(RuntimeError, match=message):
        sender.send(x)
    assert not receiver.poll() and x.sum().item() == MIB
    sender.send(x)
    assert memory_of(receiver.recv()) == memory_of(x)


@pytest.mark.no_executor("the device's memory is in the file from the beginning")
def test_an_error_in_a_queue_is_raised_in_the_receiver_which_would_wait_forever(allocated):
    queue = multiprocessing.Queue()
    x = fresh(1)
    with small_files():
        queue.put(x)
        with pytest.raises(RuntimeError, match="openreg: cannot share device memory"):
            queue.get(timeout=60)
    queue.put(torch.ones(1))
    assert queue.get(timeout=60).tolist() == [1]
    queue.close()
    queue.join_thread()


def test_a_forked_child_is_advised_to_spawn():
    x = torch.ones(1, device=DEVICE)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            ForkingPickler.dumps(x)
        except RuntimeError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as error:
        assert "you must use the 'spawn' start method" in error.read()
    os.waitpid(child, 0)


# --- With more processes ---


@pytest.mark.full
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_tensor_travels_on_and_outlives_its_maker(allocated, method):
    first, second = Peer(method=method), Peer(method=method)
    first.call(peer_module.make, "x", 3.0, MIB)
    second.call(peer_module.keep, "x", first.call(peer_module.get, "x"))
    second.call(peer_module.fill, "x", 4)
    assert first.call(peer_module.elements, "x")[:2] == [4, 4]
    first.kill()
    x = second.call(peer_module.get, "x")
    second.call(peer_module.fill, "x", 5)
    assert x[:2].tolist() == [5, 5]
    assert second.end() == 0
    assert x[-2:].tolist() == [5, 5]


PROGRAM = """
import torch, torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i): return torch.full((3,), float(i), device="openreg"), i

def square(x): return x * x

def fill(rank, x, barrier): x[rank] = rank + 1; torch.openreg.synchronize(); barrier.wait()

def give(queue, barrier): queue.put(torch.full((1 << 20,), 3.0, device="openreg")); barrier.wait()

if __name__ == "__main__":
    mp.set_start_method(METHOD)
"""


@pytest.fixture
def run_program(run_python, tmp_path):
    def run(body, method="spawn", **variables):
        program = tmp_path / "program.py"
        indented = "".join(f"    {line}\n" for line in body.strip().splitlines())
        program.write_text(PROGRAM.replace("METHOD", repr(method)) + indented)
        return run_python(
            f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')", timeout=240, **variables
        )

    return run


@pytest.mark.full
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_pools_executors_and_mp_spawn(run_program, method):
    result = run_program(
        """
from concurrent.futures import ProcessPoolExecutor
xs = [torch.full((2,), float(i), device="openreg") for i in range(8)]
with mp.Pool(2) as pool: print([y.sum().item() for y in pool.map(square, xs)])
with ProcessPoolExecutor(1, mp.get_context()) as executor: print([y.sum().item() for y in executor.map(square, xs)])
x = torch.zeros(2, device="openreg")
mp.start_processes(fill, (x, mp.get_context().Barrier(2)), 2, start_method=mp.get_start_method())
print(x.tolist())
""",
        method,
    )
    squares = str([2.0 * i * i for i in range(8)])
    assert result.stdout.splitlines() == [squares, squares, "[1.0, 2.0]"]


@pytest.mark.full
@pytest.mark.parametrize("debug", ["0", "1"])
def test_workers_of_a_data_loader_give_tensors_of_the_device(run_program, debug):
    result = run_program(
        """
loader = DataLoader(Numbers(), batch_size=8, num_workers=2)
for epoch in range(2):
    batches = list(loader)
    assert all(x.device.type == "openreg" for x, _ in batches)
    print(sum(x.sum().item() for x, _ in batches), torch.cat([i for _, i in batches]).tolist() == list(range(64)))
""",
        TORCH_OPENREG_DEBUG_MEMORY=debug,
    )
    assert result.stdout.splitlines() == 2 * [f"{3.0 * sum(range(64))} True"]
    assert "not freed" not in result.stderr


@pytest.mark.full
def test_memory_that_another_process_uses_is_no_leak(run_program):
    result = run_program(
        """
queue, barrier = mp.SimpleQueue(), mp.Barrier(2)
process = mp.Process(target=give, args=(queue, barrier))
process.start()
x = queue.get()
barrier.wait()
process.join()
print(process.exitcode, x.sum().item())
""",
        TORCH_OPENREG_DEBUG_MEMORY="1",
    )
    assert result.stdout == f"0 {3.0 * MIB}\n" and result.stderr == ""


@pytest.mark.full
def test_no_descriptors_left_is_a_clear_error(run_python):
    result = run_python(
        "import resource, torch\n"
        "from multiprocessing.reduction import ForkingPickler\n"
        "x = torch.ones(4, device='openreg')\n"
        "torch.openreg.synchronize()\n"
        "before = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))\n"
        "try: ForkingPickler.dumps(x)\n"
        "except RuntimeError as error: print(error)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, before)\n"
        "ForkingPickler.dumps(x)\n"
        "print(x.tolist())\n"
    )
    refused, elements = result.stdout.splitlines()
    assert refused.startswith("openreg: cannot open a file to share device memory with other processes")
    assert "Too many open files" in refused and elements == "[1.0, 1.0, 1.0, 1.0]"


@pytest.mark.full
def test_a_sender_with_more_devices_is_a_clear_error(run_program):
    result = run_program(
        """
import os, sys
if torch.openreg.device_count() == 2:
    os.environ["TORCH_OPENREG_DEVICES"] = "1"
    process = mp.Process(target=square, args=(torch.ones(1, device="openreg:1"),))
    process.start()
    process.join()
    print(process.exitcode)
""",
        TORCH_OPENREG_DEVICES="2",
    )
    assert result.stdout == "1\n"
    assert "a tensor of openreg:1 was received, but this process has devices 0 to 0 only" in result.stderr
