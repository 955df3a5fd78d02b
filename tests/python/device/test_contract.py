"""The device's contract: the conformance kit's checks of values, states and errors, in this process.

The kit itself (`python -m backend_conformance --device openreg`, which `scripts/test --full` runs) has each group in a
process of its own, and also the checks left out here: those that keep the device busy, because they take seconds each,
those that start processes, and the groups below. Tests in the other files are about what the kit does not require.
"""

from __future__ import annotations

import inspect
import re

import pytest
from devices import DEVICE

from backend_conformance import Device, groups, registry
from backend_conformance.verdicts import NotApplicable

pytestmark = pytest.mark.any_device

LEFT_OUT = {"compile", "dataloader", "distributed", "export", "operator_database", "processes"}
if DEVICE == "cuda":
    LEFT_OUT.add("dlpack")  # an importing library would use a GPU: openreg-cuda refuses
# What such checks use.
SLOW = re.compile(r"Trials|late_writes|overwrite_source|enough_work|_ahead|device\.(run|output)\(|subprocess")


def checks() -> list[pytest.param]:
    found = [
        groups.load(groups.CHECKS_FOLDER, each) for each in groups.names(groups.CHECKS_FOLDER) if each not in LEFT_OUT
    ]
    return [
        pytest.param(check, identifier.partition("[")[2][:-1], id=identifier)
        for group in found
        for check in group
        if not check.alone and not SLOW.search(inspect.getsource(check.function))
        for identifier in check.ids()
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("check", "case"), checks())
def test_check(check: registry.Check, case: str) -> None:
    arguments = (case,) if check.cases else ()
    try:
        check.function(Device(DEVICE), *arguments)
    except NotApplicable as reason:
        pytest.skip(str(reason))
