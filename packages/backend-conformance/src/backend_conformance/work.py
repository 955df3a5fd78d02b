"""Work that takes a device longer than the host needs to submit it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from .device import Device

_SECONDS = (0.15, 0.4, 1.0)  # of work, in successive attempts
_SECONDS_LEFT = 0.01  # of work that has to be unfinished, for what the check does next
_FEWEST_PRODUCTS, _MOST_PRODUCTS = 16, 20_000  # in one attempt
_LARGEST_SIZE = 4096

_sizes: dict[torch.device, tuple[int, float]] = {}  # of a matrix, and the seconds that its product takes
_synchronous: set[torch.device] = set()  # devices that never were behind the host: one short attempt is enough


def submit(device: Device, stream: torch.Stream | None) -> bool:
    """See Device.enough_work."""
    import torch

    target = torch.accelerator.current_stream() if stream is None else stream
    with target:
        size, seconds = _calibrated(target.device)
        attempts = list(_SECONDS[:1] if target.device in _synchronous else _SECONDS)
        while attempts:
            begin = time.perf_counter()
            product = factor = torch.full((size, size), 1.0 / size, device=target.device)
            count = min(_MOST_PRODUCTS, max(_FEWEST_PRODUCTS, int(attempts[0] / seconds)))
            for _ in range(count):
                product = factor @ product
            spent = time.perf_counter() - begin
            if not target.query():
                time.sleep(_SECONDS_LEFT)
                if not target.query():
                    _synchronous.discard(target.device)
                    return True
            if spent < attempts[0] / 4 and size < _LARGEST_SIZE:
                # A product takes less time than was measured: the device was busy with other programs then.
                size, seconds = 2 * size, 8 * spent / count
                _sizes[target.device] = size, seconds
            else:
                del attempts[0]
    _synchronous.add(target.device)
    return False


def _calibrated(where: torch.device) -> tuple[int, float]:
    if where not in _sizes:
        size = 256
        while (seconds := _seconds_of_a_product(where, size)) < 5e-4 and size < _LARGEST_SIZE:
            size *= 2
        _sizes[where] = size, seconds
    return _sizes[where]


def _seconds_of_a_product(where: torch.device, size: int) -> float:
    import torch

    factor = torch.full((size, size), 1.0 / size, device=where)
    seconds = []
    for _ in range(6):  # the first may load or compile something; the shortest is not disturbed by other programs
        begin = time.perf_counter()
        (factor @ factor)[0, 0].item()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)
