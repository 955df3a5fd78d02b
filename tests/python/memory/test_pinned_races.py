"""Hosts that use pinned memory before they have waited for an asynchronous copy, with the race detector."""

from __future__ import annotations

import os
import signal
import threading

import pytest
import torch
from race_modes import race_detection
from slices import one_in

from torch_openreg import _C

pytestmark = pytest.mark.skipif(
    not hasattr(torch.openreg, "set_race_detection_mode"), reason="this build has no race detector"
)

N = 1000
EARLY_READ = r"the host read pinned memory before it waited for the copy that writes it \(byte \d+ of the block at 0x"
EARLY_WRITE = "the host wrote to pinned memory before it waited for the copy that reads it"


@pytest.fixture(autouse=True)
def _detects_races():
    with race_detection("error"):
        yield


def fails(message=EARLY_READ):
    return pytest.raises(torch.openreg.UnsynchronizedAccessError, match=message)


def on_device(n=N):
    return torch.arange(float(n), device="openreg")


def pinned(n=N):
    return torch.arange(float(n)).pin_memory()


READS = {
    "sum": lambda host: host.sum(),
    "tolist": lambda host: host.tolist(),
    "item": lambda host: host[-1].item(),
    "print": lambda host: repr(host),
    "numpy": lambda host: host.numpy().sum(),
    "buffer": lambda host: bytes(host.numpy().data),
    "copy": lambda host: host.clone(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_result_that_is_read_before_the_wait_is_an_error(read):
    host = on_device().to("cpu", non_blocking=True)
    with fails():
        read(host)
    torch.openreg.synchronize()
    assert host.tolist() == list(range(N))


def test_the_error_says_which_copy_and_what_to_do():
    host = on_device().to("cpu", non_blocking=True)
    with fails() as caught:
        host.sum()
    message = str(caught.value)
    assert "aten::copy_" in message and "openreg:0" in message
    assert "torch.openreg.synchronize(), event.synchronize() or stream.synchronize()" in message


def test_the_error_describes_the_copys_access_and_the_memory(run_forked):
    code = """
import torch
x = torch.ones(1000, device="openreg")
host = torch.empty(1000, pin_memory=True)
host.copy_(x, non_blocking=True)
host.sum()
"""
    result = run_forked(code, check=False, TORCH_OPENREG_DETECT_RACES="1")
    assert (
        "; aten::copy_ writes `self` (1000 elements, float32) on stream 0 of openreg:0, launched by <string>:5 in "
        "<module>; a block of 4.00 KiB of pinned memory, allocated by <string>:4 in <module>)"
    ) in result.stderr
    assert "stream.synchronize() first. The access was at <string>:6 in <module>, or just before it" in result.stderr


def test_a_warning_is_pythons_and_the_program_goes_on():
    torch.openreg.set_race_detection_mode("warn")
    _C.take_race_reports()
    host = on_device().to("cpu", non_blocking=True)
    with pytest.warns(UserWarning, match=EARLY_READ):
        total = host.sum()
    assert total.dtype == torch.float32
    (report,) = _C.take_race_reports()
    assert "the host read pinned memory" in report


def test_it_is_found_even_if_the_copy_has_long_completed():
    host = on_device().to("cpu", non_blocking=True)
    other = torch.openreg.Stream()  # whose wait says nothing about the copy
    other.synchronize()
    with fails():
        host.sum()


def test_a_large_result_that_several_threads_read_is_an_error():
    host = torch.ones(1 << 22, device="openreg").to("cpu", non_blocking=True)
    with fails():
        host.sum()
    torch.openreg.synchronize()
    assert host.sum() == 1 << 22


WAITS = {
    "device": torch.openreg.synchronize,
    "stream": lambda: torch.openreg.current_stream().synchronize(),
    "item": lambda: torch.ones(1, device="openreg").item(),
    "event": lambda: record().synchronize(),
    "query": lambda: poll(record()),
}


def record():
    event = torch.openreg.Event()
    event.record()
    return event


def poll(event):
    while not event.query():
        pass


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_after_a_wait_the_result_may_be_read(wait):
    host = on_device().to("cpu", non_blocking=True)
    wait()
    assert host.tolist() == list(range(N))
    host.zero_()


def test_a_source_may_be_read_but_not_refilled():
    host = pinned()
    device = host.to("openreg", non_blocking=True)
    assert host.sum() == N * (N - 1) / 2
    with fails(EARLY_WRITE):
        host.zero_()
    torch.openreg.synchronize()
    host.zero_()
    del device


def test_other_elements_of_the_same_buffer_may_be_used():
    buffer = torch.zeros(64).pin_memory()
    buffer[10:20].copy_(on_device(10), non_blocking=True)
    buffer[:10] = 3
    assert buffer[:10].tolist() == [3] * 10
    buffer[20:] += 1
    torch.openreg.synchronize()
    assert buffer.tolist() == [3] * 10 + list(range(10)) + [1] * 44


def test_parts_of_a_buffer_that_are_pages_are_guarded():
    buffer = torch.zeros(3, 1024).pin_memory()  # rows of 4 KiB
    buffer[1].copy_(on_device(1024), non_blocking=True)
    buffer[0] = 3
    assert buffer[2].sum() == 0
    with fails():
        buffer[1, 15].item()


def test_a_buffer_that_is_filled_by_several_copies_is_guarded():
    losses = torch.zeros(8).pin_memory()
    for i in range(8):
        losses[i].copy_(torch.full((), float(i), device="openreg"), non_blocking=True)
    with fails():
        losses.tolist()


def test_a_chunk_is_written_to_a_file_while_the_next_one_is_copied(tmp_path):
    staging = torch.zeros(4, N).pin_memory()  # rows of 4000 bytes: they share pages
    path = tmp_path / "chunks"
    with path.open("wb", buffering=0) as file:
        for i in range(5):
            if i < 4:
                staging[i].copy_(on_device() + i, non_blocking=True)
            if i > 0:
                assert file.write(memoryview(staging[i - 1].numpy()).cast("B")) == 4 * N
            record().synchronize()
    expected = torch.arange(float(N)) + torch.arange(4.0).unsqueeze(1)
    assert torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float32).tolist() == expected.flatten().tolist()


def test_losses_in_one_buffer_are_read_when_each_has_been_waited_for():
    losses = torch.zeros(8).pin_memory()
    events = []
    for i in range(8):
        losses[i].copy_(torch.full((), float(i), device="openreg"), non_blocking=True)
        events.append(record())
    for i in range(8):
        events[i].synchronize()
        assert losses[i].item() == i


def test_a_buffer_that_is_freed_and_allocated_again_may_be_filled():
    for i in range(20):
        host = torch.full((N,), float(i)).pin_memory()
        device = host.to("openreg", non_blocking=True)
        del host
    torch.openreg.synchronize()
    assert device[0].item() == 19


def test_a_buffer_from_before_works_and_is_not_guarded():
    torch.openreg.set_race_detection_mode("default")
    host = torch.empty(N).pin_memory()
    torch.openreg.set_race_detection_mode("error")
    host.copy_(on_device(), non_blocking=True)
    host.sum()
    torch.openreg.synchronize()
    assert host.tolist() == list(range(N))


def test_a_loader_that_pins_its_batches_has_no_error():
    data = torch.utils.data.TensorDataset(torch.arange(64.0).view(32, 2))
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=1, pin_memory=True)
    total = torch.zeros((), device="openreg")
    for (batch,) in loader:
        assert batch.is_pinned()
        total += batch.to("openreg", non_blocking=True).sum()
    assert total.item() == 63 * 32


def test_a_forked_child_writes_to_its_own_copy():
    host = pinned()
    host.to("openreg", non_blocking=True)
    child = os.fork()
    if child == 0:
        host.zero_()
        os._exit(0 if host.sum() == 0 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert host.sum() == N * (N - 1) / 2


def test_a_system_call_that_would_read_too_early_fails(tmp_path):
    host = on_device().to("cpu", non_blocking=True)
    with (tmp_path / "result").open("wb", buffering=0) as file:
        with pytest.raises(OSError, match="Bad address"):
            file.write(memoryview(host.numpy()).cast("B"))
        torch.openreg.synchronize()
        assert file.write(memoryview(host.numpy()).cast("B")) == 4 * N


PROGRAM = """
import threading, torch
def read():
    host = torch.ones(9, device="openreg").to("cpu", non_blocking=True)
    host.sum()
thread = threading.Thread(target=read)
thread.start()
thread.join()
"""


def test_in_another_thread_a_line_explains_the_end_of_the_process(run_forked):
    result = run_forked(PROGRAM, check=False, TORCH_OPENREG_DETECT_RACES="1")
    assert result.returncode == -signal.SIGSEGV
    assert result.stderr.startswith("openreg: the host read pinned memory before it waited")


def test_the_error_reaches_the_main_thread_while_others_run():
    stop = threading.Event()
    threads = [threading.Thread(target=lambda: [None for _ in iter(stop.is_set, True)]) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            host = on_device().to("cpu", non_blocking=True)
            with fails():
                host.sum()
    finally:
        stop.set()
        for thread in threads:
            thread.join()


SIGNALS = """
import ctypes, faulthandler, os, signal, torch
def copy():
    return torch.ones(9, device="openreg").to("cpu", non_blocking=True)
"""


@pytest.mark.parametrize("enable", ["before", "after", "after and again"])
def test_a_fault_elsewhere_is_explained_by_faulthandler_once(run_forked, enable):
    lines = ["copy()", "faulthandler.enable()"]
    if enable == "before":
        lines.reverse()
    elif enable == "after and again":
        lines += ["copy()", "faulthandler.disable()", "faulthandler.enable()"]
    lines += ["copy()", "ctypes.string_at(1)"]
    result = run_forked(SIGNALS + "\n".join(lines), check=False, TORCH_OPENREG_DETECT_RACES="1")
    assert result.returncode == -signal.SIGSEGV
    assert result.stderr.count("Fatal Python error: Segmentation fault") == 1, result.stderr


def test_an_early_read_of_another_thread_is_explained_by_faulthandler_too(run_forked):
    program = PROGRAM.replace("def read", "import faulthandler\nfaulthandler.enable()\ndef read")
    result = run_forked(program, check=False, TORCH_OPENREG_DETECT_RACES="1")
    assert result.returncode == -signal.SIGSEGV
    assert result.stderr.startswith("openreg: the host read pinned memory before it waited")
    assert result.stderr.count("Fatal Python error: Segmentation fault") == 1


OTHER_BYTES = """
ring = torch.zeros(2, 64).pin_memory()
torch.openreg._sleep(50_000_000)
ring[0].copy_(torch.ones(64, device="openreg"), non_blocking=True)
{then}
ring[1].fill_(3)
assert os.preadv(os.open("/dev/zero", os.O_RDONLY), [ring[1, :8].numpy()], 0) == 32
torch.openreg.synchronize()
assert ring.sum() == 64 + 3 * 56
"""
LATER = {
    "faulthandler": "faulthandler.enable()",
    "a handler in Python": "signal.signal(signal.SIGSEGV, lambda *_: os._exit(1))",
    "the default": "signal.signal(signal.SIGSEGV, signal.SIG_DFL)",
    "ignored": "signal.signal(signal.SIGSEGV, signal.SIG_IGN)",
    "blocked": "signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())",
}


@pytest.mark.parametrize("then", [one_in(2, *each) for each in LATER.items()])
def test_what_a_program_does_with_the_signal_later_matters_only_to_races(run_forked, then):
    run_forked(SIGNALS + OTHER_BYTES.format(then=then), TORCH_OPENREG_DETECT_RACES="1")


def test_a_signal_that_was_sent_reaches_the_programs_own_handler(run_forked):
    program = """
copy()
signal.signal(signal.SIGSEGV, lambda *_: print("theirs"))
copy()
os.kill(os.getpid(), signal.SIGSEGV)
signal.signal(signal.SIGSEGV, signal.SIG_DFL)
copy()
os.kill(os.getpid(), signal.SIGSEGV)
"""
    result = run_forked(SIGNALS + program, check=False, TORCH_OPENREG_DETECT_RACES="1", PYTHONUNBUFFERED="1")
    assert result.stdout == "theirs\n"
    assert result.returncode == -signal.SIGSEGV


def test_of_thousands_of_copies_without_a_wait_the_newest_are_guarded():
    buffer = torch.zeros(4000, 4).pin_memory()
    row = torch.ones(4, device="openreg")
    for each in buffer:
        each.copy_(row, non_blocking=True)
    assert buffer[0].tolist() in ([0] * 4, [1] * 4)  # forgotten
    with fails():
        buffer[-1].sum()
    torch.openreg.synchronize()
    assert buffer.sum() == 16000


@pytest.mark.no_executor("an executor cannot be started with this limit")
def test_with_a_limit_of_files_pinned_memory_is_not_guarded_and_a_line_says_so(run_forked):
    program = """
import resource, signal, torch
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
for i in range(2):
    host = torch.ones(9).pin_memory()
    host.to("openreg", non_blocking=True)
    host.zero_()
"""
    result = run_forked(program, TORCH_OPENREG_DETECT_RACES="1")
    assert result.stderr.count("\n") == 1
    assert ": File too large; raise `ulimit -f`" in result.stderr
