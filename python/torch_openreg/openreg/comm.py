"""Copies between devices, with the names of ``torch.cuda.comm``: those of ``torch.nn.parallel.comm``."""

from __future__ import annotations

from torch.nn.parallel.comm import broadcast, broadcast_coalesced, gather, reduce_add, reduce_add_coalesced, scatter

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]
