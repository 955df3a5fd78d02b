"""PyTorch's database of operators, compiled by Inductor: results and gradients are those of eager mode.

A slice of it, by a hash of the operators' names, is run each time; all of it with ``-m ""``.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from slices import UNINITIALISED, passes_where_the_cpu_does
from test_operators import equals_eager, operators

pytestmark = [pytest.mark.any_device, pytest.mark.filterwarnings("ignore")]


def compiled_equals_eager(op: Any, device: str) -> bool:
    # Inductor draws random numbers of its own otherwise.
    with torch._inductor.config.patch(fallback_random=True):
        return equals_eager(op, device, atol=1e-4)


@pytest.mark.parametrize("op", [op for op in operators(120) if op.id not in UNINITIALISED])
def test_a_compiled_operator_and_its_gradient_are_those_of_eager_mode(op):
    passes_where_the_cpu_does(compiled_equals_eager, op, "has no sample with elements")
