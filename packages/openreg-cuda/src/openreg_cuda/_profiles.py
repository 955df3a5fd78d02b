"""The GPUs whose properties programs may request. Facts from NVIDIA's data sheets and CUDA's table of capabilities.

They change what ``torch.cuda`` returns, and the amount of memory; the speed is that of the machine.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """A model of GPU.

    Attributes:
        name: as torch.cuda.get_device_name returns it.
        capability: the compute capability.
        memory: GiB; None is what the machine has.
        multiprocessors: number of streaming multiprocessors.
        l2: MiB of cache.
        shared: KiB of shared memory of a multiprocessor, and the most that a block can opt in to.
        threads: that a multiprocessor can hold.
    """

    name: str
    capability: tuple[int, int]
    memory: int | None
    multiprocessors: int
    l2: int
    shared: tuple[int, int]
    threads: int = 2048


DEFAULT = "default"
PROFILES = {
    # Older than what Triton, fp8 and flash kernels accept, so that libraries leave these alone.
    DEFAULT: Profile("openreg (CUDA emulated on the CPU)", (6, 0), None, 56, 4, (64, 48)),
    "v100": Profile("Tesla V100-SXM2-32GB", (7, 0), 32, 80, 6, (96, 96)),
    "t4": Profile("Tesla T4", (7, 5), 16, 40, 4, (64, 64), 1024),
    "a100": Profile("NVIDIA A100-SXM4-80GB", (8, 0), 80, 108, 40, (164, 163)),
    "l4": Profile("NVIDIA L4", (8, 9), 24, 58, 48, (100, 99), 1536),
    "rtx4090": Profile("NVIDIA GeForce RTX 4090", (8, 9), 24, 128, 72, (100, 99), 1536),
    "h100": Profile("NVIDIA H100 80GB HBM3", (9, 0), 80, 132, 50, (228, 227)),
    "h200": Profile("NVIDIA H200", (9, 0), 141, 132, 50, (228, 227)),
    "b200": Profile("NVIDIA B200", (10, 0), 180, 148, 126, (228, 227)),
    "rtx5090": Profile("NVIDIA GeForce RTX 5090", (12, 0), 32, 170, 96, (100, 99), 1536),
}
