"""What the machine reports about itself, from files that may be missing on some machines."""

from __future__ import annotations

import threading

import pytest
import torch
from devices import DEVICE
from torch.openreg import machine


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Puts a file below the directories that are read, which are empty otherwise."""
    monkeypatch.setattr(machine, "_SYS", tmp_path / "sys")
    monkeypatch.setattr(machine, "_PROC", tmp_path / "proc")

    def put(path: str, text: str) -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    return put


def test_utilization_is_a_percentage():
    stop = threading.Event()
    busy = threading.Thread(target=lambda: [None for _ in iter(stop.is_set, True)])
    busy.start()
    try:
        assert 0 < torch.openreg.utilization() <= 100
    finally:
        stop.set()
        busy.join()


def test_memory_in_use_is_counted():
    before = torch.openreg.device_memory_used(1)
    kept = torch.empty(64 << 20, dtype=torch.uint8, device=f"{DEVICE}:1")
    assert torch.openreg.device_memory_used(f"{DEVICE}:1") >= max(before, kept.nbytes)


def test_temperature_is_the_hottest_sensor(files):
    files("sys/class/thermal/thermal_zone0/temp", "41499\n")
    files("sys/class/thermal/thermal_zone1/temp", "52800\n")
    files("sys/class/thermal/thermal_zone2/temp", "off\n")
    assert torch.openreg.temperature() == 53


@pytest.fixture
def counters(files, monkeypatch):
    """Sets the energy counters, in uJ: as they are now, and as they are after the wait, which takes half a second."""

    def set_counters(now: list[int], then: list[int]) -> None:
        def write(values: list[int]) -> None:
            for index, value in enumerate(values):
                files(f"sys/class/powercap/intel-rapl:{index}/energy_uj", f"{value}\n")

        def later(seconds: float) -> None:
            write(then)
            clock[0] += 0.5

        clock = [100.0]
        monkeypatch.setattr(machine.time, "monotonic", lambda: clock[0])
        monkeypatch.setattr(machine.time, "sleep", later)
        write(now)

    return set_counters


def test_power_is_energy_by_time(files, counters):
    counters([1_000_000, 0], then=[3_000_000, 1_000_000])
    files("sys/class/powercap/intel-rapl:0:0/energy_uj", "77\n")  # a part of the first
    assert torch.openreg.power_draw() == 6000


def test_power_after_the_counter_began_again_at_0(files, counters):
    counters([262_142_000_000], then=[500_000])
    files("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "262143000000\n")
    assert torch.openreg.power_draw() == 3000


def test_clock_rate_is_that_of_the_fastest_core(files):
    files("proc/cpuinfo", "processor : 0\ncpu MHz\t\t: 2100.400\n\nprocessor : 1\ncpu MHz\t\t: 2900.600\n")
    assert torch.openreg.clock_rate() == 2901
    files("proc/cpuinfo", "processor : 0\n")
    files("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "1800000\n")
    assert torch.openreg.clock_rate() == 1800


@pytest.mark.parametrize("name", ["temperature", "power_draw", "clock_rate"])
def test_a_machine_without_the_information_is_an_error(files, name):
    files("proc/cpuinfo", "")
    with pytest.raises(RuntimeError, match="openreg: this machine does not report its"):
        getattr(torch.openreg, name)()


def test_memory_usage_is_refused():
    with pytest.raises(RuntimeError, match="does not report its memory utilization"):
        torch.openreg.memory_usage()
