"""Network namespaces behind a switch that delays, loses and cuts: machines, as far as sockets can tell."""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
INTERFACE = "net0"
SWITCH = "10.231.0.254"  # a packet to it cuts all links


def address(i: int) -> str:
    return f"10.231.0.{i + 1}"


def enter(namespace: str) -> None:
    """For this thread, and threads that it starts."""
    with Path("/run/netns", namespace).open() as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


class Network:
    """`size` namespaces, as a context. A packet arrives `delay` seconds after it was sent, or is lost by a chance of
    `loss`; what one namespace gets arrives at `rate` bytes in a second.

    The switch is a thread of this process: few kernels of virtual machines have netem.
    """

    def __init__(self, size: int, delay: float = 0.0, loss: float = 0.0, rate: float = float("inf")) -> None:
        self.namespaces = [f"openreg-{os.getpid()}-{i}" for i in range(size)]
        self._delay, self._loss, self._rate = delay, loss, rate
        self._ends: list[int] = []
        self._stop = threading.Event()
        self._switch = threading.Thread(target=self._forward, daemon=True)

    def __enter__(self) -> Network:
        """Raises OSError or subprocess.CalledProcessError where namespaces are not to be had."""
        remove_those_of_processes_that_are_gone()
        try:
            for i, namespace in enumerate(self.namespaces):
                self._add(i, namespace)
        except BaseException:
            self._remove()
            raise
        self._switch.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._switch.join()
        self._remove()

    def _add(self, i: int, namespace: str) -> None:
        ip("netns", "add", namespace)
        end = os.open("/dev/net/tun", os.O_RDWR)
        self._ends.append(end)
        name = f"openreg{os.getpid() % 10**6}{i}"
        fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
        ip("link", "set", "dev", name, "netns", namespace)
        ip("-n", namespace, "link", "set", "dev", name, "name", INTERFACE)
        ip("-n", namespace, "address", "add", f"{address(i)}/24", "dev", INTERFACE)
        for interface in ("lo", INTERFACE):
            ip("-n", namespace, "link", "set", "dev", interface, "up")

    def _remove(self) -> None:
        for end in self._ends:
            os.close(end)
        for namespace in self.namespaces:
            if Path("/run/netns", namespace).exists():
                ip("netns", "delete", namespace)

    def _forward(self) -> None:
        chance, count, cut = random.Random(0), itertools.count(), False
        free = [0.0] * len(self._ends)  # when each has got what was sent to it before
        queue: list[tuple[float, int, int, bytes]] = []
        while not self._stop.is_set():
            wait = min(queue[0][0] - time.monotonic(), 0.1) if queue else 0.1
            for end in select.select(self._ends, [], [], max(wait, 0.0))[0]:
                packet = os.read(end, 65536)
                to = packet[19] - 1  # of IPv4, the destination's last byte
                cut = cut or packet[16:20] == bytes(map(int, SWITCH.split(".")))
                if packet[0] >> 4 == 4 and to < len(self._ends) and not cut and chance.random() >= self._loss:
                    free[to] = max(time.monotonic(), free[to]) + len(packet) / self._rate
                    heapq.heappush(queue, (free[to] + self._delay, next(count), self._ends[to], packet))
            while queue and queue[0][0] <= time.monotonic():
                _, _, end, packet = heapq.heappop(queue)
                os.write(end, packet)


def remove_those_of_processes_that_are_gone() -> None:
    for path in Path("/run/netns").glob("openreg-*"):
        if not Path("/proc", path.name.split("-")[1]).exists():
            ip("netns", "delete", path.name)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
