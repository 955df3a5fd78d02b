"""What NCCL's buffers take of a GPU, beside PyTorch's allocator: estimates from measurements of others. Needs no torch.

NCCL chooses the number of channels by the machine's topology, which is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .profiles import MIB, PROFILES

# MiB.
_OF_TWO = 544  # NVIDIA/nccl#964: the communicators of two of four A100 with NVLink, each
_OF_MORE = 688  # the same: of three and four
_MULTICAST = 288  # vllm-project/vllm#9699: in addition from Hopper on, for three ranks and more (NVLS)
_OF_PEER = 480  # NVIDIA/nccl#1685: an all_to_all of 8 H100 adds 3.28 GB, for 7 peers
_MOST_PEERS = 7  # Peers on other machines share one buffer (NVIDIA/nccl#1450), and most machines have 8 GPUs.
# Two channels with buffers of 10 and 2 MiB (NVIDIA/nccl#1685) for each of two neighbours.
_WITHOUT_NVLINK = 48
_ON_PCI = ("t4", "l4", "l40s", "rtx3090", "rtx4090", "rtx5090")


@dataclass
class Communicator:
    """What a group of two or more ranks had NCCL connect on a device.

    Attributes:
        ranks: of the group.
        collectives: whether it has had a collective.
        peers: with how many other ranks this one has exchanged messages: sends, receives, all_to_all.
    """

    ranks: int
    collectives: bool
    peers: int


def estimate(profile: str, communicators: Iterable[Communicator]) -> int:
    """Bytes that NCCL takes on a GPU."""
    gpu = PROFILES[profile].gpu
    multicast = _MULTICAST if gpu is not None and gpu.capability >= (9, 0) else 0
    total = 0
    for each in communicators:
        if profile in _ON_PCI:
            total += _WITHOUT_NVLINK
            continue
        if each.collectives:
            total += _OF_TWO if each.ranks == 2 else _OF_MORE + multicast
        total += _OF_PEER * min(each.peers, _MOST_PEERS)
    return total * MIB
