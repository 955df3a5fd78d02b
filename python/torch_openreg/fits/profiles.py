"""GPUs: the memory that PyTorch reports, and what `openreg-cuda` tells programs about them. Needs no torch.

A profile changes figures, not the speed. Capabilities, multiprocessors, caches and shared memory are from NVIDIA's data
sheets and CUDA's table of capabilities. Amounts of memory are from outputs of PyTorch that users have published, since
the size on the box says little: of an H100's 80 GiB PyTorch gets 79.1.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class Gpu:
    """What ``torch.cuda.get_device_properties`` reports beside the memory.

    Attributes:
        name: as torch.cuda.get_device_name returns it.
        capability: the compute capability.
        multiprocessors: number of streaming multiprocessors.
        l2: MiB of cache.
        shared: KiB of shared memory of a multiprocessor, and the most that a block can opt in to.
        threads: that a multiprocessor can hold.
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    l2: int
    shared: tuple[int, int]
    threads: int = 2048


@dataclass(frozen=True)
class Profile:
    """A model of GPU.

    Attributes:
        total: MiB that ``total_memory`` has; None: what the machine has.
        context: MiB that a process takes beside PyTorch's memory (the CUDA context with its kernels); None: unknown.
        source: where both were read, an issue or a file on GitHub; `context` is what a message about lack of memory
            says is in use, less what PyTorch has reserved.
        gpu: None if openreg-cuda cannot take its place.
    """

    total: int | None
    context: int | None = None
    source: str = ""
    gpu: Gpu | None = None

    @property
    def context_bytes(self) -> int:
        """Bytes of the context, or those that are assumed."""
        return (ASSUMED_CONTEXT if self.context is None else self.context) * MIB

    @property
    def usable(self) -> int:
        """Bytes that PyTorch's allocator can reserve at most, if NCCL is not used."""
        assert self.total is not None
        return self.total * MIB - self.context_bytes


ASSUMED_CONTEXT = 595  # MiB where it is unknown: the largest that is known
DEFAULT = "default"
PROFILES = {
    # Older than what Triton, fp8 and flash kernels accept, so that libraries leave these alone.
    DEFAULT: Profile(None, gpu=Gpu("openreg (CUDA emulated on the CPU)", (6, 0), 56, 4, (64, 48))),
    "v100-16": Profile(16160, None, "pytorch/pytorch#78884", Gpu("Tesla V100-SXM2-16GB", (7, 0), 80, 6, (96, 96))),
    "v100": Profile(
        32501, None, "liucongg/ChatGLM-Finetuning#73", Gpu("Tesla V100-SXM2-32GB", (7, 0), 80, 6, (96, 96))
    ),
    "t4": Profile(15104, None, "hpcaitech/Open-Sora#697", Gpu("Tesla T4", (7, 5), 40, 4, (64, 64), 1024)),
    "a100-40": Profile(
        40339,
        501,
        "bottlerocket-os/bottlerocket#3873, TianheWu/CoSeR#10",
        Gpu("NVIDIA A100-SXM4-40GB", (8, 0), 108, 40, (164, 163)),
    ),
    "a100": Profile(81039, 503, "lianqi1008/Control-GIC#6", Gpu("NVIDIA A100-SXM4-80GB", (8, 0), 108, 40, (164, 163))),
    "rtx3090": Profile(
        24258, None, "ucwxb/GraphAvatar#4", Gpu("NVIDIA GeForce RTX 3090", (8, 6), 82, 6, (100, 99), 1536)
    ),
    "l4": Profile(22558, 235, "ArcInstitute/evo2#190", Gpu("NVIDIA L4", (8, 9), 58, 48, (100, 99), 1536)),
    "l40s": Profile(45486, 419, "stepfun-ai/Step-Video-T2V#8", Gpu("NVIDIA L40S", (8, 9), 142, 96, (100, 99), 1536)),
    "rtx4090": Profile(
        24207, 504, "3DTopia/Phidias-Diffusion#8", Gpu("NVIDIA GeForce RTX 4090", (8, 9), 128, 72, (100, 99), 1536)
    ),
    "h100": Profile(81008, None, "vllm-project/vllm#27508", Gpu("NVIDIA H100 80GB HBM3", (9, 0), 132, 50, (228, 227))),
    "h200": Profile(
        143156,
        None,
        "ai-bot-pro/achatbot deploy/modal/src/llm/vllm/vlm/skywork_r1v.py",
        Gpu("NVIDIA H200", (9, 0), 132, 60, (228, 227)),
    ),
    "b200": Profile(
        182642,
        None,
        "ai-bot-pro/achatbot deploy/modal/src/llm/vllm/vlm/skywork_r1v.py",
        Gpu("NVIDIA B200", (10, 0), 148, 126, (228, 227)),
    ),
    "rtx5090": Profile(
        32117,
        595,
        "aikitoria/open-gpu-kernel-modules#1, Wan-Video/Wan2.1#465",
        Gpu("NVIDIA GeForce RTX 5090", (12, 0), 170, 96, (100, 99), 1536),
    ),
    "mi300x": Profile(196592, None, "ROCm/legacy-rocm-build#4203"),
}

MOST_DEVICES = 16


def with_memory() -> list[str]:
    """The profiles whose memory is known, from the smallest to the largest."""
    return sorted((name for name, profile in PROFILES.items() if profile.total), key=lambda name: PROFILES[name].usable)


def parse(text: str, names: list[str], example: str) -> tuple[str, int | None]:
    """A profile and, optionally, a number of devices: ``"h100:8"``.

    Args:
        text: what the user wrote.
        names: the profiles that are allowed.
        example: of `text`, for the error.

    Raises:
        ValueError: `text` is malformed. The message says what was expected.
    """
    name, colon, count = text.partition(":")
    name = name.lower()
    if name not in names or (colon and not (count.isdecimal() and 1 <= int(count) <= MOST_DEVICES)):
        raise ValueError(
            f"got {text!r}, expected one of {', '.join(names)}, optionally with a number of devices from 1 to "
            f"{MOST_DEVICES}, as in {example}"
        )
    return name, int(count) if colon else None
