"""The capacity of a device: how it is set, what happens when it is reached."""

from __future__ import annotations

import inspect
import os
import pathlib
import re

import pytest
import torch

MIB = 1 << 20


def print_capacity():
    free, total = torch.openreg.mem_get_info(1)
    assert total == torch.openreg.get_device_properties(1).total_memory
    assert (free, total) == torch.accelerator.get_memory_info(1)
    print(total)


@pytest.mark.parametrize(
    ("setting", "capacity"),
    [("1GiB", 1024 * MIB), ("131072KiB", 128 * MIB), (str(32 * MIB), 32 * MIB)],
)
def test_the_capacity_is_a_setting(run_alone, setting, capacity):
    assert int(run_alone(print_capacity, TORCH_OPENREG_MEMORY=setting)) == capacity


def test_the_capacity_may_be_a_part_of_the_default(run_alone):
    default, half = (int(run_alone(print_capacity, TORCH_OPENREG_MEMORY=setting)) for setting in (None, "50%"))
    assert abs(half - default / 2) <= 2 * MIB


@pytest.mark.parametrize("setting", ["8 apples", "101%", "1MiB"])
def test_a_malformed_capacity_is_an_error_at_the_first_use(first_use_errors, setting):
    errors = first_use_errors(TORCH_OPENREG_MEMORY=setting)
    assert len(errors) == 2
    for error in errors:
        assert "TORCH_OPENREG_MEMORY" in error and f"got {setting}" in error.replace('"', "")


def out_of_memory_tells():
    def message(size):
        try:
            torch.empty(size, dtype=torch.uint8, device="openreg")
        except torch.OutOfMemoryError as e:
            return str(e)
        raise AssertionError("it fitted")

    x = torch.empty(20 * MIB, dtype=torch.uint8, device="openreg")
    print(message(56 * MIB))
    torch.openreg.set_per_process_memory_fraction(0.5)
    print(message(40 * MIB))
    assert x.numel() == 20 * MIB
    assert torch.openreg.OutOfMemoryError is torch.OutOfMemoryError


def test_out_of_memory_reports_the_request_the_state_and_remedies(run_alone):
    plain, with_fraction = run_alone(out_of_memory_tells, TORCH_OPENREG_MEMORY="64MiB").splitlines()
    assert plain == (
        "openreg:0 is out of memory. Tried to allocate 56.00 MiB; the device has 64.00 MiB: 20.00 MiB are in "
        "use by tensors, 0 bytes are cached in blocks that do not fit, 44.00 MiB are free. Free tensors, use smaller "
        "batches, or raise TORCH_OPENREG_MEMORY; see torch.openreg.memory_summary()"
    )
    assert "64.00 MiB, of which this process may use 32.00 MiB: 20.00 MiB are in use" in with_fraction
    assert "raise TORCH_OPENREG_MEMORY or the fraction set by set_per_process_memory_fraction" in with_fraction


def training_halves_its_batch():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 1)).to("openreg")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batch, tried, losses = 1 << 15, [], []
    while len(losses) < 5:
        tried.append(batch)
        try:
            optimizer.zero_grad()
            x = torch.ones(batch, 64, device="openreg")
            loss = (model(x) - 1).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        except torch.OutOfMemoryError:
            batch //= 2
            x = loss = None
    assert tried[0] > tried[-1] >= 64, tried
    assert sorted(losses, reverse=True) == losses and losses[-1] < losses[0], losses
    assert torch.openreg.memory_stats()["num_ooms"] == len(set(tried)) - 1


def test_training_continues_after_a_loop_that_halves_its_batch(run_alone):
    run_alone(training_halves_its_batch, TORCH_OPENREG_MEMORY="64MiB")


def cached_memory_makes_room():
    def empty(size):
        return torch.empty(size, dtype=torch.uint8, device="openreg")

    stats = torch.openreg.memory_stats
    small = [empty(MIB) for _ in range(20)]
    del small
    large = empty(50 * MIB)  # of what is small, at least 6 MiB have to go
    assert stats()["num_alloc_retries"] == 1
    del large
    with torch.openreg.Stream():
        other = empty(30 * MIB)
    del other
    assert empty(40 * MIB).numel() == 40 * MIB  # of another stream
    assert stats()["num_alloc_retries"] == 3  # for the stream's 30 MiB, too
    held = [empty(8 * MIB) for _ in range(8)]
    del held[::2]  # 32 MiB are free, in pieces
    with torch.openreg.Stream():
        assert empty(30 * MIB).numel() == 30 * MIB
    assert stats()["num_ooms"] == 0


def test_cached_memory_of_other_sizes_and_streams_makes_room(run_alone):
    run_alone(cached_memory_makes_room, TORCH_OPENREG_MEMORY="64MiB")


def pending_frees_make_room():
    other = torch.openreg.Stream()
    with other:
        x = torch.rand(1000, 1000, device="openreg")
        for _ in range(40):
            y = x @ x
    block = torch.empty(50 * MIB, dtype=torch.uint8, device="openreg")
    block.record_stream(other)
    del block
    was_pending = torch.openreg.memory_stats()["active_bytes.large_pool.current"] >= 50 * MIB
    again = torch.empty(60 * MIB, dtype=torch.uint8, device="openreg")
    assert other.query()
    assert was_pending, "too fast a machine for this test"
    assert again.numel() == 60 * MIB and y.shape == x.shape


def test_frees_that_wait_for_another_stream_make_room_too(run_alone):
    run_alone(pending_frees_make_room, TORCH_OPENREG_MEMORY="84MiB")


def another_thread_makes_room():
    import threading

    failing = torch.openreg.Stream()
    with failing:
        index, table = torch.tensor([9], device="openreg"), torch.ones(3, 2, device="openreg")
        torch.nn.functional.embedding(index, table)
    del index, table
    with torch.openreg.Stream():
        cached = torch.empty(40 * MIB, dtype=torch.uint8, device="openreg")
    del cached
    sizes = []
    thread = threading.Thread(
        target=lambda: sizes.append(torch.empty(50 * MIB, dtype=torch.uint8, device="openreg").numel())
    )
    thread.start()
    thread.join()
    assert sizes == [50 * MIB] and torch.openreg.memory_stats()["num_alloc_retries"] == 1
    torch.openreg.empty_cache()
    try:
        failing.synchronize()
    except torch.AcceleratorError as error:
        print(error)


@pytest.mark.no_race_detection("the message names the launching line")
def test_an_allocation_that_waits_takes_no_stream_s_error(run_alone):
    assert "failed on openreg:0, stream 1: " in run_alone(another_thread_makes_room, TORCH_OPENREG_MEMORY="64MiB")


def a_fraction_limits():
    def fits(size, device=0):
        try:
            torch.empty(size, dtype=torch.uint8, device=f"openreg:{device}")
            return True
        except torch.OutOfMemoryError:
            return False

    get, put = torch.openreg.get_per_process_memory_fraction, torch.openreg.set_per_process_memory_fraction
    assert get() == get(1) == 1.0
    put(0.25)
    assert (get(), get(0), get("openreg:1")) == (0.25, 0.25, 1.0)
    assert fits(16 * MIB)
    assert fits(64 * MIB, device=1)
    assert fits(10 * MIB)  # out of the cache
    assert torch.openreg.memory_reserved() == 16 * MIB
    assert not fits(17 * MIB)
    assert torch.openreg.memory_reserved() == 0
    assert fits(16 * MIB)
    with torch.openreg.Stream():
        assert fits(16 * MIB)  # the cache counts, so it goes
    put(0.0, 1)
    torch.openreg.empty_cache()
    assert not fits(1, device=1)
    put(1.0, "openreg:1")
    put(1.0)
    assert fits(64 * MIB) and fits(64 * MIB, device=1)
    assert torch.openreg.mem_get_info()[1] == 64 * MIB


def test_a_fraction_limits_what_is_reserved_on_one_device(run_alone):
    run_alone(a_fraction_limits, TORCH_OPENREG_MEMORY="64MiB")


def test_what_is_cached_is_not_free_until_the_cache_is_emptied():
    torch.openreg.empty_cache()
    free = torch.openreg.mem_get_info()[0]
    x = torch.empty(64 * MIB, dtype=torch.uint8, device="openreg")
    del x
    assert torch.openreg.mem_get_info()[0] <= free - 60 * MIB
    torch.openreg.empty_cache()
    assert torch.openreg.mem_get_info()[0] == torch.accelerator.get_memory_info()[0] >= free


def threads_share_a_small_device():
    """Each has 12 MiB in use at the most, and caches more on streams of its own."""
    import threading

    failures = []

    def work():
        streams = [torch.Stream("openreg") for _ in range(3)]
        for i in range(60):
            try:
                with streams[i % 3]:
                    x = torch.ones((1 + i % 4) * MIB, dtype=torch.uint8, device="openreg")
                    y = torch.cat([x, x])
                    del x, y
            except torch.OutOfMemoryError as e:
                failures.append(str(e))

    threads = [threading.Thread(target=work) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(len(failures), *failures[:1])


def test_threads_do_not_run_out_of_memory_that_others_only_cache(run_alone):
    assert run_alone(threads_share_a_small_device, TORCH_OPENREG_MEMORY="160MiB").split() == ["0"]


def a_hook_makes_room():
    kept, asked = [torch.empty(40 * MIB, dtype=torch.uint8, device="openreg")], []

    def drop(device, size):
        asked.append((device, size))
        if not kept:
            return False
        kept.clear()
        return True

    with torch.openreg.memory.register_out_of_memory_hook(drop):
        x = torch.ones(40 * MIB, dtype=torch.uint8, device="openreg")
        assert x.sum().item() == 40 * MIB
        assert asked == [(0, 40 * MIB)]
        try:
            torch.empty(40 * MIB, dtype=torch.uint8, device="openreg")
        except torch.OutOfMemoryError as e:
            assert "is out of memory" in str(e)
        else:
            raise AssertionError("it fitted")
        assert len(asked) == 2
    try:
        torch.empty(40 * MIB, dtype=torch.uint8, device="openreg")
    except torch.OutOfMemoryError:
        assert len(asked) == 2
    else:
        raise AssertionError("it fitted")


def test_a_hook_can_make_room_before_out_of_memory_is_raised(run_alone):
    run_alone(a_hook_makes_room, TORCH_OPENREG_MEMORY="64MiB")


def hooks_are_asked_from_the_newest():
    asked = []

    def hook(name, answer):
        def ask(device, size):
            asked.append(name)
            return answer() if callable(answer) else answer

        return torch.openreg.memory.register_out_of_memory_hook(ask)

    def too_much(device="openreg:1"):
        try:
            return torch.empty(80 * MIB, dtype=torch.uint8, device=device)
        except torch.OutOfMemoryError:
            return "out of memory"

    oldest = hook("oldest", None)
    # Out of memory within a hook is an error there: no hook is asked.
    newer = hook("newer", lambda: too_much() != "out of memory")
    assert too_much() == "out of memory" and asked == ["newer", "oldest"]
    newer.remove()
    asked.clear()
    assert too_much() == "out of memory" and asked == ["oldest"]

    def fail():
        raise KeyError("of the hook")

    failing = hook("failing", fail)
    try:
        too_much()
    except KeyError as e:
        assert e.args == ("of the hook",)
    else:
        raise AssertionError("the hook's error was lost")
    failing.remove()
    # On autograd's thread too.
    asked.clear()

    class TooMuch(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad if too_much() == "out of memory" else None

    x = torch.ones(3, device="openreg:1", requires_grad=True)
    TooMuch.apply(x).sum().backward()
    assert asked == ["oldest"] and x.grad.tolist() == [1, 1, 1]
    oldest.remove()
    assert too_much() == "out of memory" and asked == ["oldest"]


def test_hooks_are_asked_from_the_newest_to_the_oldest(run_alone):
    run_alone(hooks_are_asked_from_the_newest, TORCH_OPENREG_MEMORY="64MiB")


def what_exceeds_the_device_gives_the_cache_back():
    kept = torch.empty(8 * MIB, dtype=torch.uint8, device="openreg")
    cached = torch.empty(30 * MIB, dtype=torch.uint8, device="openreg")
    del cached
    for failures in (1, 2):
        try:
            torch.empty(65 * MIB, dtype=torch.uint8, device="openreg")
            raise AssertionError("it fits")
        except torch.OutOfMemoryError:
            pass
        stats = torch.openreg.memory_stats()
        assert stats["num_alloc_retries"] == stats["num_ooms"] == failures
        assert stats["reserved_bytes.all.current"] == kept.numel()


def test_a_request_beyond_the_device_gives_the_cache_back_as_on_cuda(run_alone):
    run_alone(what_exceeds_the_device_gives_the_cache_back, TORCH_OPENREG_MEMORY="64MiB")


def results_of_any_size_are_out_of_memory():
    """Of operators whose results are as large as a number says: the host does not need the memory, either."""
    import resource

    n, one = 1 << 30, torch.ones(1, device="openreg")
    torch.ones(1 << 10, device="openreg").flip(0)
    calls = {
        "arange": lambda: torch.arange(n, device="openreg"),
        "range": lambda: torch.range(0, n, device="openreg"),
        "eye": lambda: torch.eye(1 << 15, device="openreg"),
        "hann_window": lambda: torch.hann_window(n, device="openreg"),
        "bartlett_window": lambda: torch.bartlett_window(n, device="openreg"),
        "tril_indices": lambda: torch.tril_indices(1 << 15, 1 << 15, device="openreg"),
        "bincount": lambda: torch.bincount(torch.zeros(1, dtype=torch.int64, device="openreg"), minlength=n),
        "histc": lambda: torch.histc(one, n),
        "pad": lambda: torch.nn.functional.pad(one, (0, n)),
        "flip": lambda: one.expand(n).flip(0),
        "roll": lambda: one.expand(n).roll(1),
        "complex": lambda: torch.complex(one.expand(n), one.expand(n)),
        "cumsum": lambda: one.expand(n).cumsum(0),
        "logcumsumexp": lambda: one.expand(n).logcumsumexp(0),
        "median": lambda: one.expand(n).median(),
        "sort": lambda: one.expand(n).sort(),
        "repeat_interleave": lambda: one.repeat_interleave(n),
        "one_hot": lambda: torch.nn.functional.one_hot(torch.zeros(1, dtype=torch.int64, device="openreg"), n),
    }
    wrong = {}
    for name, call in calls.items():
        failures = torch.openreg.memory_stats()["num_ooms"]
        highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            call()
            torch.accelerator.synchronize()
            wrong[name] = "no error"
        except torch.OutOfMemoryError:
            if torch.openreg.memory_stats()["num_ooms"] != failures + 1:
                wrong[name] = "not counted"
            elif resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > highest + 100 * 1024:
                wrong[name] = "took memory of the host"
        except Exception as error:
            wrong[name] = f"{type(error).__name__}: {error}"
    assert wrong == {}


def test_results_of_any_size_are_out_of_the_devices_memory(run_alone):
    run_alone(results_of_any_size_are_out_of_memory, TORCH_OPENREG_MEMORY="64MiB")


def machine_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def more_than_the_machine_has():
    """Requests only: none of this memory is touched."""

    def message(size):
        try:
            torch.empty(size, dtype=torch.uint8, device="openreg:1")
        except torch.OutOfMemoryError as e:
            return str(e)
        raise AssertionError("it fitted")

    capacity = torch.openreg.mem_get_info()[1]
    print(message(capacity // 2))
    print(message(capacity + 2 * MIB))
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    pieces = []
    try:
        while True:
            pieces.append(torch.empty(64 * MIB, dtype=torch.uint8, device=f"openreg:{len(pieces) % 2}"))
            assert len(pieces) * 64 * MIB < available, "more was promised than there is"
    except torch.OutOfMemoryError as e:
        print(str(e))
    try:
        torch.empty(machine_bytes() // 4, dtype=torch.uint8, pin_memory=True)
    except torch.OutOfMemoryError as e:
        print(str(e))
    last = pieces[-1].device
    del pieces[-2:]
    pieces.append(torch.empty(32 * MIB, dtype=torch.uint8, device=last))  # what was freed can be had again
    assert pieces[-1].fill_(3)[-1].item() == 3


def gibibytes_of(line: str) -> float:
    """How much is free, according to an error."""
    number, unit = re.search(r"([\d.]+) (\w+) are free\.", line).groups()
    return float(number) * {"GiB": 1, "MiB": 2**-10, "KiB": 2**-20, "bytes": 2**-30}[unit]


def test_what_the_machine_cannot_hold_is_an_error_at_the_allocation(run_forked):
    machine = machine_bytes() / 2**30
    source = inspect.getsource(machine_bytes) + inspect.getsource(more_than_the_machine_has)
    result = run_forked(
        f"import os, pathlib, torch\nMIB = 1 << 20\n{source}\nmore_than_the_machine_has()\n",
        TORCH_OPENREG_MEMORY=f"{int(4 * machine) + 1}GiB",
    )
    half, beyond, pieces, pinned = result.stdout.splitlines()
    for line in (half, beyond, pieces):
        assert line.startswith("openreg:1 is out of memory. Tried" if line != pieces else "openreg:"), line
        assert "The limit is the memory of the machine or of the process's control group, not the device's size" in line
        assert "raise" not in line and "TORCH_OPENREG_MEMORY" not in line
        assert 0 <= gibibytes_of(line) < machine
    assert pinned.startswith("openreg: out of host memory for a pinned tensor (got a request for ")
    assert ", which the machine or the process's control group has left)" in pinned
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("openreg: TORCH_OPENREG_MEMORY is ") and "torch.OutOfMemoryError" in result.stderr


def test_a_capacity_that_the_machine_has_is_set_without_a_line(run_forked):
    code = "import torch; torch.ones(1, device='openreg')"
    assert run_forked(code, TORCH_OPENREG_MEMORY="1GiB").stderr == ""
    assert run_forked(code, TORCH_OPENREG_MEMORY=None).stderr == ""


@pytest.mark.no_executor("the memory of devices is in files, which `ulimit -d` does not count")
def test_memory_that_the_system_refuses_is_not_said_to_be_free(run_forked):
    result = run_forked(
        "import resource, threading, time, torch\n"
        "from pathlib import Path\n"
        "torch.ones(1, device='openreg').item()\n"
        "before = resource.getrlimit(resource.RLIMIT_DATA)\n"
        "def fail(gigabytes):\n"
        "    try: torch.empty(gigabytes << 30, dtype=torch.uint8, device='openreg')\n"
        "    except torch.OutOfMemoryError as e: return str(e)\n"
        # What the libraries allocate for memory and for an error is there afterwards: threads without it would abort.
        "assert fail(1) is None\n"
        "torch.openreg.empty_cache()\n"
        "fail(3)\n"
        # So would threads of the device that have not begun yet.
        "others = [each for each in Path('/proc/self/task').iterdir() if each.name != str(threading.get_native_id())]\n"
        "while not all('(sleeping)' in (each / 'status').read_text() for each in others): time.sleep(0.01)\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (1, before[1]))\n"
        "text = fail(1)\n"
        "resource.setrlimit(resource.RLIMIT_DATA, before)\n"
        "print(text)\n",
        TORCH_OPENREG_MEMORY="2GiB",
    )
    assert "A limit of the operating system is reached (`ulimit -d`, " in result.stdout
    assert "raise TORCH_OPENREG_MEMORY" not in result.stdout
