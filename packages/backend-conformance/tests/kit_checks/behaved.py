"""Checks that end in each of the orderly ways.

None of them needs a backend.
"""

from __future__ import annotations

import torch

from backend_conformance import Device, Level, check, missing, not_applicable, vacuous, wrong


@check(level=Level.BOOTS, hook="nothing")
def passes(device: Device) -> None:
    """Passes.

    A second paragraph.
    """
    assert torch.ones(2).sum() == 2


@check(level=Level.TRAINS, hook="values")
def says_wrong(device: Device) -> None:
    """States that a result is wrong."""
    wrong("five instead of four")


@check(level=Level.TRAINS, hook="values")
def asserts(device: Device) -> None:
    """Fails in an assertion without a message."""
    value = 5
    assert value == 4


@check(level=Level.TRAINS, hook="values")
def compares(device: Device) -> None:
    """Fails in torch's comparison."""
    torch.testing.assert_close(torch.ones(2), torch.zeros(2))


@check(level=Level.TRAINS, hook="a kernel")
def lacks_a_kernel(device: Device) -> None:
    """Runs an operator that has no kernel for a device."""
    torch.ones(2, device="meta").nonzero().item()


@check(level=Level.TRAINS, hook="a name of the module")
def says_missing(device: Device) -> None:
    """States that something is missing."""
    missing("torch.nothing.at_all")


@check(level=Level.ASYNCHRONOUS, hook="streams", needs=("streams",))
def says_vacuous(device: Device) -> None:
    """Sees nothing."""
    vacuous("the host never ran ahead")


@check(level=Level.COMPLETE, hook="devices", needs=("several_devices",))
def says_not_applicable(device: Device) -> None:
    """Cannot be asked."""
    not_applicable("there is only one device")


@check(level=Level.COMPLETE, hook="an error")
def raises(device: Device) -> None:
    """Raises something unexpected, after some output."""
    print("before the error")
    raise KeyError("unexpected")


@check(level=Level.COMPLETE, hook="cases", cases=("one", "two"))
def family(device: Device, case: str) -> None:
    """Passes for one of its cases."""
    assert case == "one", f"case {case}"
