"""Random programs with pinned memory, with the race detector: those that are right never notice it, whatever they read
and write beside a pending copy: by operators, NumPy, memoryviews, other threads and system calls, and with other
handlers of SIGSEGV. An access that comes too early is found in each page that a copy has whole.

A program has some 60 steps on up to three buffers of 1 byte to 4 pages. Every run of the tests has 60 programs; the
mark `full` has 4,000, which take some minutes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
from pinned_programs import Program
from race_modes import race_detection

SLICE = [range(60), pytest.param(range(1000, 5000), marks=pytest.mark.full)]


@pytest.fixture(autouse=True)
def _detects_races() -> Iterator[None]:
    with race_detection("error"):
        yield
        torch.openreg.synchronize()


@pytest.mark.parametrize("seeds", SLICE, ids=["slice", "all"])
def test_programs_without_a_race_never_notice_the_guard(seeds):
    for seed in seeds:
        program = Program(random.Random(seed), [])
        try:
            for _ in range(60):
                program.step()
            program.finish()
        except BaseException:
            print(f"seed {seed}")
            raise


@pytest.mark.parametrize("seeds", SLICE, ids=["slice", "all"])
def test_accesses_that_come_too_early_are_found(seeds):
    found = {True: 0, False: 0}
    for seed in seeds:
        rng = random.Random(seed)
        program = Program(rng, [])
        for _ in range(rng.randrange(20)):
            program.step()
        races = list(program.races())
        if races:
            buffer, byte, written = rng.choice(races)
            reads = written and rng.random() < 0.5
            with pytest.raises(torch.openreg.UnsynchronizedAccessError, match="pinned memory before it waited"):
                print(f"seed {seed}", buffer.tensor[byte].item() if reads else buffer.tensor[byte].fill_(1))
            found[reads] += 1
        torch.openreg.synchronize()
    assert min(found.values()) >= len(seeds) // 20


HANDLERS = """
import faulthandler, os, random, signal, sys
import torch
sys.path.insert(0, {folder!r})
from pinned_programs import Program

hooks = [
    faulthandler.enable,
    faulthandler.disable,
    lambda: signal.signal(signal.SIGSEGV, signal.SIG_DFL),
    lambda: signal.signal(signal.SIGSEGV, signal.SIG_IGN),
    lambda: signal.signal(signal.SIGSEGV, lambda *_: os._exit(3)),
    lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGSEGV}}),
    lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, {{signal.SIGSEGV}}),
]
for seed in range({seeds}):
    program = Program(random.Random(seed), hooks)
    for _ in range(60):
        program.step()
    program.finish()
"""


@pytest.mark.parametrize("seeds", [30, pytest.param(1000, marks=pytest.mark.full)])
def test_programs_that_change_their_handlers_never_notice_it_either(run_python, request, seeds):
    code = HANDLERS.format(folder=str(request.path.parent), seeds=seeds)
    result = run_python(code, timeout=600, TORCH_OPENREG_DETECT_RACES="1")
    assert result.stderr == ""
