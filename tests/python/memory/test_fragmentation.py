"""Memory that the device reserves beyond what a program has allocated."""

from __future__ import annotations

from pathlib import Path


def test_a_training_loop_with_varying_batches_reserves_little_more_than_it_allocates(run_python):
    """A recorded loop, replayed: at most 1.15 times as much at the peak."""
    run_python(
        """
        import torch
        from allocation_trace import events

        live, blocks, used, peak = {}, 0, 0, 0
        for block, size in events():
            if size:
                live[block] = torch.empty(size, dtype=torch.uint8, device="openreg")
                used, blocks = used + size, blocks + 1
                peak = max(peak, used)
            else:
                used -= live.pop(block).nbytes
        assert blocks > 10_000 and not live
        assert torch.openreg.max_memory_allocated() == peak, (torch.openreg.max_memory_allocated(), peak)
        reserved = torch.openreg.max_memory_reserved()
        assert reserved <= 1.15 * peak, f"{reserved / peak:.3f}"
        """.replace("\n        ", "\n"),
        path=[Path(__file__).parent],
        TORCH_OPENREG_MEMORY="2GiB",
    )
