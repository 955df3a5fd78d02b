"""Random programs on streams, threads and devices, compared with the CPU bit by bit: `tests/fuzz/fuzz.py`."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_device

FUZZ = Path(__file__).resolve().parents[2] / "fuzz" / "fuzz.py"


def fuzz(*options: str, timeout: float) -> None:
    run = subprocess.run([sys.executable, FUZZ, *options], capture_output=True, text=True, timeout=timeout)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("threads", [pytest.param("1", marks=pytest.mark.full), "3"])
def test_random_programs_equal_the_cpu(threads):
    fuzz("--programs", "120", "--threads", threads, timeout=250)


def test_random_programs_in_graphs_equal_the_cpu():
    fuzz("--graphs", "--programs", "60", timeout=250)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_many_random_programs_in_graphs_equal_the_cpu():
    fuzz("--graphs", "--seconds", "120", "--seed", "1000000", timeout=800)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("threads", ["1", "3", "8"])
def test_many_random_programs_equal_the_cpu(threads):
    fuzz("--seconds", "120", "--seed", "1000000", "--threads", threads, timeout=800)
