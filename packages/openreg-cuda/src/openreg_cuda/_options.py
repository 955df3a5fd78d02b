"""What ``OPENREG_CUDA`` requests: ``1``, the name of a profile, or the name and a number of devices, ``a100:2``."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass

from .device.fits.profiles import DEFAULT, MOST_DEVICES, PROFILES, Gpu, Profile

VARIABLE = "OPENREG_CUDA"
NAMES = [name for name, profile in PROFILES.items() if profile.gpu is not None]
"""The profiles that the device can have."""


@dataclass(frozen=True)
class Options:
    profile: Profile
    devices: int | None  # None: as many as TORCH_OPENREG_DEVICES says

    @property
    def gpu(self) -> Gpu:
        assert self.profile.gpu is not None
        return self.profile.gpu


def parse(text: str) -> Options:
    """Raises ValueError if `text` is malformed."""
    name, colon, count = text.partition(":")
    key = DEFAULT if name == "1" else name.lower()
    if key not in NAMES or (colon and not (count.isdecimal() and 1 <= int(count) <= MOST_DEVICES)):
        raise ValueError(
            f"openreg: {VARIABLE} is malformed (got {text!r}, expected 1, or one of {', '.join(NAMES)}, optionally "
            f"with a number of devices from 1 to {MOST_DEVICES}, as in a100:2)"
        )
    return Options(PROFILES[key], int(count) if colon else None)


@functools.cache
def current() -> Options:
    """The options of this process."""
    return parse(os.environ.get(VARIABLE, "1") or "1")


def all_devices() -> int | None:
    """How many devices the environment requests, including hidden ones; None if it sets no number."""
    if current().devices is not None or "CUDA_VISIBLE_DEVICES" not in os.environ:
        return current().devices
    text = os.environ.get("TORCH_OPENREG_DEVICES", "2")
    return int(text) if text.isdecimal() else None  # the device reports it


def set_for_children(count: int) -> None:
    """Makes child processes request this many devices, some of which may be hidden."""
    name = os.environ.get(VARIABLE, "1").partition(":")[0] or "1"
    os.environ[VARIABLE] = f"{name}:{count}"


def device_count() -> int | None:
    """How many of these devices are visible; None if the environment sets no number.

    ``CUDA_VISIBLE_DEVICES`` lists the visible ones: as in CUDA, the list ends at the first entry that is no
    device, and an index that occurs twice hides all.
    """
    count = all_devices()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or count is None:
        return count
    seen: list[int] = []
    for entry in visible.split(","):
        entry = entry.strip()
        if not entry.isdecimal() or int(entry) >= count:
            break
        if int(entry) in seen:
            return 0
        seen.append(int(entry))
    return len(seen)
