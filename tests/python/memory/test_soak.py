"""Random work with device memory for a while, against a model of what must be true: memory_soak.py, memory_model.py."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

SECONDS = [4, pytest.param(300, marks=[pytest.mark.full, pytest.mark.timeout(900)])]


@pytest.fixture
def soak(run_python):
    """Runs in a process with devices of 64 MiB, where memory runs out often; what fails, prints its seed."""

    def run(seconds: float, threads: int) -> None:
        seed = random.SystemRandom().randrange(1 << 20)
        result = run_python(
            f"print('seed', {seed}, flush=True)\n"
            "from memory_soak import soak\n"
            f"steps, out_of_memory = soak({seconds}, {seed}, {threads})\n"
            "assert steps > 20, steps\n"
            "assert out_of_memory > 0 or steps < 2000, out_of_memory\n",
            path=[Path(__file__).parent],
            timeout=seconds + 120,
            TORCH_OPENREG_MEMORY="64MiB",
            TORCH_OPENREG_DEVICES="2",
        )
        assert result.stdout.startswith("seed")

    return run


@pytest.mark.parametrize("seconds", SECONDS)
def test_after_each_step_blocks_contents_and_statistics_are_as_they_must_be(soak, seconds):
    soak(seconds, threads=1)


@pytest.mark.parametrize("seconds", SECONDS)
def test_threads_share_memory_without_overlaps_or_losses(soak, seconds):
    soak(seconds, threads=4)
