"""The in-place variants in PyTorch's database of operators answer as on the CPU: results and errors.

Every fourth entry, by a hash of its name, runs each time; all of them with ``-m ""``.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
import torch
from as_cpu import answer, sentence
from devices import DEVICE
from slices import one_in
from torch.testing import assert_close

pytestmark = pytest.mark.any_device

pytest.importorskip("expecttest", reason="torch's own test utilities need expecttest")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

RANDOM = re.compile("bernoulli|cauchy|dropout|exponential|geometric|log_normal|normal|random|rrelu|uniform")
ENTRIES = {
    f"{op.name}.{op.variant_test_name}".rstrip(".") + f"-{dtype}".replace("torch.", ""): (op, dtype)
    for op in op_db
    for dtype in (torch.float32, torch.complex64, torch.int64)
    if op.inplace_variant and dtype in op.dtypes and not RANDOM.search(op.name)
}
VIEWS = {
    "as it is": lambda x: x,
    "transposed": lambda x: x.mT if x.dim() > 1 else x,
    "number": lambda x: x.reshape(-1)[:1].reshape(()),
}


def samples(op: Any, dtype: torch.dtype) -> list[Any]:
    taken = op.sample_inputs("cpu", dtype, requires_grad=False)
    return [sample for _, sample in zip(range(6), taken, strict=False) if isinstance(sample.input, torch.Tensor)]


def compare(got: Any, expected: Any) -> None:
    if isinstance(expected, Exception):
        assert isinstance(got, Exception), f"no error; the CPU raises {expected!r}"
        if not isinstance(got, torch.AcceleratorError):  # what only the elements show is an error of the stream
            assert (type(got), sentence(got)) == (type(expected), sentence(expected))
        return
    if isinstance(got, Exception):
        raise got
    assert (got.dtype, got.shape, got.stride()) == (expected.dtype, expected.shape, expected.stride())
    assert_close(got.cpu().resolve_conj(), expected.resolve_conj(), equal_nan=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("op", "dtype"), [one_in(4, name, *entry) for name, entry in ENTRIES.items()])
def test_inplace_variants_equal_the_cpu(op: Any, dtype: torch.dtype) -> None:
    for sample in samples(op, dtype):
        for view in VIEWS.values():

            def call(x: torch.Tensor, arguments: Any, keywords: Any, view: Any = view) -> Any:
                return op.inplace_variant(view(x), *arguments, **keywords)

            arguments = (sample.input, sample.args, sample.kwargs)
            compare(answer(call, arguments, DEVICE), answer(call, arguments, "cpu"))
