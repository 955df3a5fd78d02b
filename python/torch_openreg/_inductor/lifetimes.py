"""How long the inputs of a program live, for Inductor's planner of memory."""

from __future__ import annotations

import functools
from typing import Any

from torch._inductor import comms, memory


def end_inputs_with_the_operations_they_order() -> None:
    """Gives an end to inputs that no kernel reads.

    If a tensor goes from one stream to another in a training step, the backward pass takes tensors that only name what
    an event has to follow. The planner asserts that each input is read: "expected end_step_snode to be set".
    """
    original = memory.get_freeable_input_buf

    @functools.wraps(original)
    def get_freeable_input_buf(*args: Any, **kwargs: Any) -> Any:
        buffers = original(*args, **kwargs)
        for buffer in buffers.values():
            planned = buffer.mpi_buffer
            planned.succ_nodes = planned.succ_nodes or planned.succ_nodes_for_ordering
        return buffers

    for module in (memory, comms):  # comms has imported it
        module.get_freeable_input_buf = get_freeable_input_buf  # type: ignore[attr-defined]
