"""Every operator of PyTorch's database (op_db) races once for each of its tensors, and the reports name the accesses.

For each operator and its in-place variant, with the first sample in float32 or else another dtype that it supports:

- Each of its tensors in turn, or the parts of a sparse one, is written on the current stream; then the operator runs
  on another one, without an order. The report has to name the operator, the argument, how it is accessed, and both
  streams.
- With ``wait_stream`` in between there is no report.
- Each of its results is read on the current stream, while the other stream has written it. The report has to name the
  operator, the result or the argument that it has written, and both streams.

Which operators are called, with which memory, is seen by a ``TorchDispatchMode``. The report names either that operator
or, if PyTorch implements it by others (``mean`` by ``mean.dim``, ``clone`` by ``copy_``), one of those; then the
argument and the verb have to agree with that operator's schema. There is no report if only the shape of the tensor is
used, if the result has no elements, or if the host has waited for it; `uses_elements` and the statistics of launches
tell. Exceptions are listed below.

In the default suite, one operator in eighteen, by a hash of its name; with the mark `full`, all of them.
"""

from __future__ import annotations

import zlib
from collections import Counter

import pytest
import torch
from operator_calls import (
    Call,
    Operation,
    Operations,
    address_of,
    base_name,
    bytes_of,
    first_call,
    full_name,
    may_call_others,
    parts_of,
    variants,
)
from reports import Access, parse
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

pytestmark = pytest.mark.filterwarnings("ignore")

# Entries without a call on this device, and why.
NO_CALL = {
    "torch.ops.aten._flash_attention_forward": "no dtype on the CPU",
    "torch.ops.aten._efficient_attention_forward": "no dtype on the CPU",
    "nn.functional.batch_norm.without_cudnn": "no dtype on the CPU",
    "float_power, in place": "refuses float32",
    **{
        f"jiterator_{name}": "for CUDA only"
        for name in ("unary", "binary", "4inputs_with_extra_args", "binary_return_by_ref", "2inputs_2outputs")
    },
}
# Written, although the schema does not say so: the running statistics, during training.
WRITTEN = {"aten::native_batch_norm": {"running_mean", "running_var"}}
# What these make has no values.
EMPTY = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}

CHOSEN = [op for op in op_db if zlib.crc32(full_name(op).encode()) % 18 == 0]


class Sweep:
    """The checks of operators, and how often each was made."""

    def __init__(self) -> None:
        self.current = torch.openreg.current_stream()
        self.side = torch.openreg.Stream()
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def operator(self, op: OpInfo) -> None:
        for name, function in variants(op).items():
            if name in NO_CALL:
                self.counts["no call"] += 1
                continue
            call = first_call(op, function)
            assert call is not None, name
            inputs = len(call.inputs())
            for i in range(inputs):
                self.check(f"{name}, tensor {i}", self.input_is_written, first_call(op, function), i)
            results = self.check(f"{name}, in order", self.in_order, call)
            for i in range(results or 0):
                self.check(f"{name}, result {i}", self.result_is_read, first_call(op, function), i)

    def check(self, what, check, *args):
        """Neither memory nor an order is left for the next check."""
        torch.openreg.synchronize()
        try:
            return check(*args)
        except (AssertionError, RuntimeError) as error:
            self.wrong.append(f"{what}: {type(error).__name__}: {error}")
            return None
        finally:
            torch.openreg.synchronize()

    def input_is_written(self, call: Call, number: int) -> None:
        part = call.inputs()[number]
        address = address_of(part)
        whole = bytes_of(part)
        same = whole.clone()
        torch.openreg.synchronize()
        whole.copy_(same)
        operations, message = self.run(call)
        if message is None:
            users = [each.op for each in operations if each.uses_elements and each.arguments_at(address)]
            assert not users or not parts_of(self.result), f"no report, although it is used by {users}"
            self.counts["only the shape is used"] += 1
            return
        report = parse(message)
        self.is_by_the_test(report.first, "aten::copy_", "wrote", "self")
        last = operations[-1]
        writes = last.written | WRITTEN.get(last.op, set())
        names = last.arguments_at(address)
        accesses = {(name, "writes" if name in writes else "reads") for name in names}
        self.is_one_of(report.second, {last.base: accesses}, [last])
        if report.second.stream is None:
            assert "Before the host uses the memory, call synchronize() of stream 0" in report.suggested_fix, message
        else:
            self.is_by_the_side(report.second)
            assert (
                f"Let stream {self.side.stream_id} of openreg:0 wait for stream 0 of openreg:0" in report.suggested_fix
            )
        self.counts["arguments"] += 1

    def in_order(self, call: Call) -> int:
        for part in call.inputs():
            whole = bytes_of(part)
            whole.copy_(whole.clone())
        self.side.wait_stream(self.current)
        _, message = self.run(call)
        assert message is None, message
        self.counts["in order"] += 1
        return len(parts_of(self.result))

    def result_is_read(self, call: Call, number: int) -> None:
        given = {address_of(part) for part in call.inputs()}
        waits = torch.openreg.launch_stats()["host_waits"]
        operations, message = self.run(call)
        assert message is None, message
        part = parts_of(self.result)[number]
        address = address_of(part)
        writers = [each for each in operations if each.uses_elements and each.written_at(address)]
        try:
            bytes_of(part).clone()
        except torch.openreg.UnsynchronizedAccessError as error:
            report = parse(str(error))
        else:
            waited = torch.openreg.launch_stats()["host_waits"] > waits
            unexplained = [each.op for each in writers if each.base.removeprefix("aten::") not in EMPTY]
            assert waited or not unexplained, f"no report, although it is written by {unexplained}"
            self.counts["results that are seen, or the arguments"] += 1
            return
        assert address not in given or writers
        self.is_by_the_test(report.second, "aten::copy_", "reads", "src")
        self.is_by_the_side(report.first)
        expected: dict[str, set[tuple[str, str]]] = {}
        for each in operations:
            expected.setdefault(each.base, set()).update((name, "wrote") for name in each.written_at(address))
        self.is_one_of(report.first, expected, operations)
        self.counts["results"] += 1

    def run(self, call: Call) -> tuple[list[Operation], str | None]:
        """On the side stream: the operators, and the report if there is one."""
        with torch.openreg.stream(self.side), Operations() as operations:
            try:
                self.result = call()
            except torch.openreg.UnsynchronizedAccessError as error:
                return operations.noted, str(error)
        return operations.noted, None

    def is_by_the_test(self, access: Access, op: str, verb: str, argument: str) -> None:
        assert (access.op, access.verb, access.argument, access.stream) == (op, verb, argument, (0, 0)), access
        assert access.file == __file__

    def is_by_the_side(self, access: Access) -> None:
        assert access.stream == (0, self.side.stream_id), access

    def is_one_of(self, access: Access, expected: dict[str, set[tuple[str, str]]], operations: list[Operation]) -> None:
        """One of the expected accesses of an operator, by its name; or one of an operator that this one calls."""
        seen = (access.argument, access.verb)
        if accesses := expected.get(base_name(access.op)):
            if access.verb == "wrote":  # the form that is given its outputs serves for the others
                accesses = accesses | {(name, "wrote") for name in ("out", *outputs_of(access.op))}
            assert seen in accesses, f"the report says {access}, expected one of {accesses}"
            self.counts["named as PyTorch calls it"] += 1
            return
        assert any(may_call_others(each.op) for each in operations), f"the report says {access}, expected {expected}"
        assert access.argument.split("[")[0] in names_of(access), f"{access} does not agree with the operator's schema"
        self.counts["named as a part of it"] += 1


def outputs_of(op: str) -> set[str]:
    """The arguments that are outputs, of an operator that is given them."""
    name, _, overload = op.partition(".")
    return {each.name for each in torch._C._get_schema(name, overload).arguments if each.is_out}


def names_of(access: Access) -> set[str]:
    """What a report may call the tensor, by the operator's schema."""
    name, _, overload = access.op.partition(".")
    schema = torch._C._get_schema(name, overload)
    writes = access.verb in ("writes", "wrote")
    names = {
        each.name
        for each in schema.arguments
        if "Tensor" in str(each.type) and (each.alias_info is not None and each.alias_info.is_write) == writes
    }
    return names | ({"out", "the result", *(f"result {i}" for i in range(1, len(schema.returns)))} if writes else set())


def test_reports_name_some_operators_and_their_tensors():
    sweep = Sweep()
    for op in CHOSEN:
        sweep.operator(op)
    assert not sweep.wrong, "\n".join(sweep.wrong)
    assert len(CHOSEN) >= 30 and sweep.counts["arguments"] >= 50 and sweep.counts["results"] >= 30, sweep.counts


@pytest.mark.full
def test_reports_name_all_operators_and_their_tensors():
    sweep = Sweep()
    for op in op_db:
        sweep.operator(op)
    assert not sweep.wrong, "\n".join(sweep.wrong)
    assert sweep.counts["no call"] == len(NO_CALL)
    assert sweep.counts["arguments"] >= 1100 and sweep.counts["results"] >= 750, sweep.counts
    assert sweep.counts["named as PyTorch calls it"] >= 1500, sweep.counts
