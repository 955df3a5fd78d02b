"""A message keeps its tensors' memory until it is received: one that is not sent gives it back."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import pickle
import random
import resource
import signal
import subprocess
import sys
import threading
from multiprocessing import (
    connection,
    forkserver,
    popen_forkserver,
    popen_spawn_posix,
    reduction,
    resource_tracker,
)
from multiprocessing.reduction import ForkingPickler

import peer as peer_module
import pytest
import torch
from devices import DEVICE
from peer import Peer
from torch import multiprocessing
from torch.multiprocessing.queue import ConnectionWrapper

MIB = 1 << 20


class Unpicklable:
    def __init__(self, error=TypeError):
        self.error = error

    def __reduce__(self):
        raise self.error("this cannot be pickled")


class Within:
    """A pickle within a pickle."""

    def __init__(self, value):
        self.value = value

    def __reduce__(self):
        return pickle.loads, (bytes(ForkingPickler.dumps(self.value)),)


class FullDisk(io.RawIOBase):
    def writable(self):
        return True

    def write(self, _):
        raise OSError("no space left")


@pytest.fixture(autouse=True)
def nothing_is_kept():
    gc.collect()
    torch.openreg.ipc_collect()
    before = torch.accelerator.memory_allocated()
    yield
    gc.collect()
    torch.openreg.ipc_collect()
    assert torch.accelerator.memory_allocated() == before


@pytest.fixture(scope="module")
def peer():
    process = Peer()
    yield process
    assert process.end() == 0


def tensors():
    return [torch.ones(MIB, device=DEVICE), torch.ones(3, device=f"{DEVICE}:1").t()]


def pickle_it(value):
    ForkingPickler.dumps(value)


def pickle_to_a_file(value):
    reduction.dump(value, io.BytesIO())


def send_it(value):
    reader, writer = multiprocessing.Pipe(duplex=False)
    with reader, writer:
        writer.send(value)


def put_into_a_simple_queue(value):
    multiprocessing.get_context("spawn").SimpleQueue().put(value)


def start_a_process(value):
    multiprocessing.get_context("spawn").Process(target=print, args=(value,)).start()


@pytest.mark.parametrize("error", [TypeError, KeyboardInterrupt])
@pytest.mark.parametrize(
    "make",
    [
        lambda x, bad: (*x, bad),
        pytest.param(lambda x, bad: [*x, [x[0][:5], bad], x], marks=pytest.mark.full),
        lambda x, bad: (Within(x), Within((x, bad))),
    ],
)
@pytest.mark.parametrize(
    "send", [pickle_it, pickle_to_a_file, send_it, put_into_a_simple_queue, start_a_process], ids=lambda f: f.__name__
)
def test_a_message_of_which_a_part_cannot_be_pickled(send, make, error):
    with pytest.raises(error, match="cannot be pickled"):
        send(make(tensors(), Unpicklable(error)))


def test_a_queue_whose_thread_cannot_pickle_a_message(capfd):
    queue = multiprocessing.get_context("spawn").Queue()
    kept = torch.full((3,), 7.0, device=DEVICE)
    for _ in range(3):
        queue.put((kept, *tensors(), Unpicklable()))
    queue.put(kept)
    assert queue.get(timeout=60).tolist() == [7, 7, 7]  # later messages arrive, with the same memory
    queue.close()
    queue.join_thread()
    assert capfd.readouterr().err.count("cannot be pickled") >= 3


def test_a_queue_that_is_closed_before_its_thread_has_pickled():
    queue = multiprocessing.get_context("spawn").Queue()
    queue.cancel_join_thread()
    queue._start_thread = lambda: None
    queue._notempty = threading.Condition()
    queue.put(tensors())
    queue.close()


@pytest.mark.parametrize("wrap", [lambda writer: writer, ConnectionWrapper])
def test_a_pipe_without_a_reader(wrap):
    reader, writer = multiprocessing.Pipe(duplex=False)
    with writer:
        reader.close()
        for _ in range(3):
            with pytest.raises(BrokenPipeError):
                wrap(writer).send(tensors())


@pytest.mark.parametrize("wrap", [lambda writer: writer, ConnectionWrapper])
def test_a_pipe_that_is_closed(wrap):
    reader, writer = multiprocessing.Pipe(duplex=False)
    with reader:
        writer.close()
        with pytest.raises(OSError, match="closed"):
            wrap(writer).send(tensors())


@pytest.mark.parametrize("duplex", [False, True])
def test_a_pipe_whose_reader_goes_in_the_middle_of_a_message(duplex):
    reader, writer = multiprocessing.Pipe(duplex=duplex)

    def read_a_part():
        os.read(reader.fileno(), 1000)
        reader.close()

    thread = threading.Thread(target=read_a_part)
    thread.start()
    with writer, pytest.raises(OSError):  # broken, or reset
        writer.send((*tensors(), bytes(4 * MIB)))
    thread.join()


@pytest.mark.parametrize("module", [popen_spawn_posix, popen_forkserver])
def test_a_process_that_cannot_be_started(module):
    process = multiprocessing.get_context(module.Popen.method).Process(target=print, args=(tensors(),))
    resource_tracker.ensure_running()
    forkserver.ensure_running()
    pickle.loads(ForkingPickler.dumps(tensors()))  # opens the files of the devices
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            process.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_file_that_cannot_be_written():
    with pytest.raises(OSError, match="no space left"):
        reduction.dump((*tensors(), bytes(MIB)), FullDisk())


@pytest.mark.parametrize("error", [TimeoutError, KeyboardInterrupt])
def test_a_write_that_a_signal_interrupts_when_it_is_complete(monkeypatch, error):
    """The receiver has the message, so it keeps its memory."""

    def interrupt(*_):
        raise error

    def write_and_interrupt(descriptor, data):
        assert os.write(descriptor, data) == len(data)
        signal.raise_signal(signal.SIGUSR1)

    monkeypatch.setattr(connection.Connection._send, "__defaults__", (write_and_interrupt,))
    before = signal.signal(signal.SIGUSR1, interrupt)
    reader, writer = multiprocessing.Pipe(duplex=False)
    try:
        with writer, pytest.raises(error):
            writer.send(torch.full((2,), 5.0, device=DEVICE))
    finally:
        signal.signal(signal.SIGUSR1, before)
    with reader:
        assert reader.recv().tolist() == [5, 5]


def test_a_message_whose_receiver_is_killed_is_there_for_the_next():
    queue = multiprocessing.get_context("spawn").SimpleQueue()
    receiver = Peer(queue)
    receiver.call(peer_module.keep, "it runs", 1)
    x = torch.full((MIB,), 3.0, device=DEVICE)
    queue.put(x)
    del x
    receiver.kill()
    torch.openreg.ipc_collect()
    torch.full((MIB,), 4.0, device=DEVICE)  # not in the same memory
    assert bool((queue.get() == 3).all())


def test_a_pickle_is_kept_for_whoever_has_a_copy():
    pickled = bytes(ForkingPickler.dumps(torch.full((MIB,), 3.0, device=DEVICE)))
    torch.openreg.ipc_collect()
    torch.full((MIB,), 4.0, device=DEVICE)
    assert bool((pickle.loads(pickled) == 3).all())


NEVER_READ = """
import gc, os, signal
import torch
import torch.multiprocessing as mp

def die(): os.kill(os.getpid(), signal.SIGKILL)

class Dies:
    def __reduce__(self): return die, ()

def one_mebibyte(): return torch.ones(1 << 18, device="openreg")

def kept():
    gc.collect()
    torch.openreg.ipc_collect()
    return torch.openreg.memory_allocated() >> 20

if __name__ == "__main__":
    context = mp.get_context("spawn")
    process = context.Process(target=print, args=(Dies(), one_mebibyte()))
    process.start()
    process.join()
    print(process.exitcode, kept())
    queue = context.SimpleQueue()
    queue.put(one_mebibyte())
    print(kept(), queue.get().sum().item(), kept())
    queue.put(one_mebibyte())
    del queue
    print(kept(), flush=True)
    die()
"""


@pytest.mark.full
def test_what_is_never_read_is_kept_until_the_sender_ends(tmp_path):
    """As on CUDA: the first of the two messages is an argument of a process that ends before it reads it."""
    (tmp_path / "program.py").write_text(NEVER_READ)
    result = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert result.stdout.splitlines() == ["-9 1", "2 262144.0 1", "2"], result.stderr
    assert result.returncode == -signal.SIGKILL


def test_the_failure_of_another_write_takes_nothing_back():
    message = ForkingPickler.dumps([torch.full((2,), 5.0, device=DEVICE)])
    reader, writer = multiprocessing.Pipe(duplex=False)
    with writer:
        reader.close()
        with pytest.raises(BrokenPipeError):
            writer.send_bytes(b"something else")
    (received,) = pickle.loads(message)
    assert received.tolist() == [5, 5]


def test_received_memory_that_could_not_be_passed_on(peer):
    x = torch.full((MIB,), 3.0, device=DEVICE)
    peer.call(peer_module.keep, "x", x)
    assert peer.call(peer_module.fail_to_send, "x", 3) == "cannot be pickled"
    peer.call(peer_module.forget, "x")
    del x  # its memory is free now


def send_at_random(seed, peers):
    """Messages that are sent, and others that fail, by a thread of its own."""
    chance = random.Random(seed)
    for _ in range(40):
        value = torch.full((chance.choice([1, 1000, MIB]),), float(seed), device=DEVICE)
        way = chance.randrange(5)
        if way == 0:
            with contextlib.suppress(TypeError):
                ForkingPickler.dumps((value, value[:1], Unpicklable()))
        elif way == 1:
            reader, writer = multiprocessing.Pipe(duplex=False)
            reader.close()
            with writer, contextlib.suppress(BrokenPipeError):
                writer.send((value, 3))
        elif way == 2:
            (received,) = pickle.loads(ForkingPickler.dumps((value,)))
            assert received[0].item() == seed
        else:
            reader, writer = peers
            writer.send([value, seed])
            got, of = reader.recv()
            assert got[-1].item() == of == seed


@pytest.mark.parametrize("rounds", [1, pytest.param(50, marks=pytest.mark.full)])
def test_threads_that_send_and_fail_at_random(rounds):
    for round_ in range(rounds):
        pipes = [multiprocessing.Pipe(duplex=False) for _ in range(4)]
        errors = []

        def run(seed, pipe, errors=errors):
            try:
                send_at_random(seed, pipe)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(4 * round_ + i, pipe)) for i, pipe in enumerate(pipes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for pipe in pipes:
            for end in pipe:
                end.close()
        assert not errors
