"""The figures that ``torch.cuda`` reads through NVML, read from the system's own files if they exist."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import torch

from .arguments import DeviceLike, device_index

__all__ = ["clock_rate", "device_memory_used", "memory_usage", "power_draw", "temperature", "utilization"]

_SYS, _PROC = Path("/sys"), Path("/proc")


def _read(paths: Iterable[Path], what: str) -> dict[Path, int]:
    values = {}
    for path in paths:
        try:
            values[path] = int(path.read_text())
        except (OSError, ValueError):
            continue  # the sensor is off, or readable by root only
    if not values:
        raise RuntimeError(f"openreg: this machine does not report {what}")
    return values


def utilization(device: DeviceLike = None) -> int:
    """The percentage of the machine's processor time that was busy during the call, 0 to 100. The call takes 0.1 s.

    All devices compute on the same processor, and other programs count too.
    """
    device_index(device)

    def times() -> tuple[int, int]:
        user, nice, system, idle, iowait, *others = map(int, (_PROC / "stat").read_text().split("\n")[0].split()[1:9])
        return user + nice + system + sum(others), idle + iowait

    busy, idle = times()
    time.sleep(0.1)
    busy, idle = (after - before for after, before in zip(times(), (busy, idle), strict=True))
    return round(100 * busy / max(1, busy + idle))


def memory_usage(device: DeviceLike = None) -> int:
    """Not supported: the machine does not report its memory utilization (the share of time that memory is accessed).

    Raises:
        RuntimeError: always. `device_memory_used` returns the bytes in use.
    """
    device_index(device)
    raise RuntimeError("openreg: this machine does not report its memory utilization")


def device_memory_used(device: DeviceLike = None) -> int:
    """Memory of `device` (default: the current one) that is not free, in bytes. Cached memory counts as used."""
    free, total = torch.accelerator.get_memory_info(device_index(device))
    return total - free


def temperature(device: DeviceLike = None) -> int:
    """The highest temperature reported by the machine's sensors, in degrees Celsius.

    Raises:
        RuntimeError: there are no sensors, as in most virtual machines.
    """
    device_index(device)
    zones = sorted((_SYS / "class/thermal").glob("thermal_zone*/temp"))
    return round(max(_read(zones, "its temperature").values()) / 1000)


def power_draw(device: DeviceLike = None) -> int:
    """The power that the machine's processors draw, in milliwatts: the mean over 0.1 s.

    Raises:
        RuntimeError: the machine does not measure energy, or only root may read it.
    """
    device_index(device)
    counters = sorted((_SYS / "class/powercap").glob("intel-rapl:?/energy_uj"))
    before, begin = _read(counters, "its power draw"), time.monotonic()
    time.sleep(0.1)
    after, seconds = _read(before, "its power draw"), time.monotonic() - begin
    # A counter begins at 0 again after its maximum.
    wrapped = [path.with_name("max_energy_range_uj") for path in after if after[path] < before[path]]
    used = sum(after[path] - before[path] for path in after)
    if wrapped:
        used += sum(_read(wrapped, "its power draw").values())
    return round(used / seconds / 1000)


def clock_rate(device: DeviceLike = None) -> int:
    """The current clock rate of the machine's fastest core, in MHz.

    Raises:
        RuntimeError: the machine does not report it.
    """
    device_index(device)
    lines = (_PROC / "cpuinfo").read_text().splitlines()
    clocks = [float(line.split(":")[1]) for line in lines if line.startswith("cpu MHz")]
    if clocks:
        return round(max(clocks))
    files = sorted((_SYS / "devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))
    return round(max(_read(files, "its clock rate").values()) / 1000)
