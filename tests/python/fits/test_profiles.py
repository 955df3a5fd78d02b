"""The table of GPUs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from torch_openreg.fits.nccl import Communicator, estimate
from torch_openreg.fits.profiles import ASSUMED_CONTEXT, DEFAULT, MIB, PROFILES, parse, with_memory
from torch_openreg.fits.report import Curve, DeviceReport, Ended, Moment, OutOfMemory, Report
from torch_openreg.fits.verdict import judge, sentence

GIB = 1 << 30
PAGE = Path(__file__).parents[3] / "docs/fits.md"


@pytest.mark.parametrize("name", with_memory())
def test_each_profile_has_the_source_of_its_memory(name):
    profile = PROFILES[name]
    assert re.search(r"\w+/[\w.-]+(#\d+| \S+\.\w+)", profile.source)
    assert 0 < profile.usable < profile.total * MIB


def test_an_unknown_context_is_taken_for_the_largest_known():
    known = [profile.context for profile in PROFILES.values() if profile.context is not None]
    assert max(known) == ASSUMED_CONTEXT
    h100 = PROFILES["h100"]
    assert h100.usable == (h100.total - ASSUMED_CONTEXT) * MIB


def test_the_default_has_no_memory_of_its_own():
    assert DEFAULT not in with_memory()


def test_the_page_lists_the_profiles():
    rows = re.findall(r"^\| `([\w-]+)` \| ([\d.]+) \| (\d+|unknown) \| (\S.*) \|$", PAGE.read_text(), re.MULTILINE)
    expected = [
        (name, f"{PROFILES[name].total / 1024:.2f}", str(PROFILES[name].context or "unknown"), PROFILES[name].source)
        for name in with_memory()
    ]
    assert rows == expected


def test_a_profile_may_have_a_number_of_devices():
    assert parse("H100:8", with_memory(), "h100:8") == ("h100", 8)
    assert parse("a100-40", with_memory(), "h100:8") == ("a100-40", None)
    for text in ("h1000", "h100:", "h100:0", "h100:17", "h100:x", ""):
        with pytest.raises(ValueError, match="expected one of t4, "):
            parse(text, with_memory(), "h100:8")


def measured(allocated: int, reserved: int, failure: OutOfMemory | None = None) -> Report:
    at = Moment(1, "forward", "layers.17.mlp", "")
    device = DeviceReport(
        0,
        80 * GIB,
        allocated,
        reserved,
        at,
        allocated,
        {},
        {},
        {},
        Curve({}, [], []),
        1,
        0,
        [failure] if failure else [],
    )
    return Report([], Ended.OUT_OF_MEMORY if failure else Ended.STEPS, 1, 1.0, 0, 0, [device])


def test_a_verdict_follows_from_the_peaks():
    run = [measured(int(52.3 * GIB), int(53.5 * GIB))]
    verdicts = [judge(name, run, 140 * GIB) for name in ("a100-40", "h100", "h200")]
    assert [verdict.fits for verdict in verdicts] == [False, True, True]
    assert sentence(verdicts) == (
        "fits on h100, h200; not on a100-40: peak 52.30 of 38.90 GiB in `layers.17.mlp`, forward of step 1"
    )


def test_between_what_is_held_and_what_is_reserved_a_run_decides():
    assert judge("a100-40", [measured(30 * GIB, 45 * GIB)], 140 * GIB).fits is None


def test_memory_that_ran_out_decides_for_gpus_that_have_no_more():
    failure = OutOfMemory(2 * GIB, 38 * GIB, 38 * GIB, Moment(2, "backward", "head", "train.py:3 in f"))
    run = [measured(38 * GIB, 38 * GIB, failure)]
    verdict = judge("a100-40", run, PROFILES["a100-40"].usable)
    assert str(verdict) == (
        "does not fit on a100-40: peak 40.00 of 38.90 GiB in `head`, backward of step 2 (train.py:3 in f)"
    )
    assert judge("h100", run, PROFILES["a100-40"].usable).fits is None


def test_the_rank_that_needs_most_decides():
    run = [measured(10 * GIB, 11 * GIB), measured(70 * GIB, 71 * GIB), measured(20 * GIB, 21 * GIB)]
    assert judge("a100-40", run, 140 * GIB).needed == 70 * GIB


def test_memory_beside_the_allocator_decides_too():
    run = [measured(77 * GIB, 78 * GIB)]
    assert judge("h100", run, 140 * GIB).fits
    run[0].devices[0].communicators.append(Communicator(8, True, 0))
    verdict = judge("h100", run, 140 * GIB)
    assert (verdict.fits, verdict.nccl) == (None, (688 + 288) * MIB)
    assert verdict.usable == PROFILES["h100"].usable - verdict.nccl
    # A run with less memory decides. It may fail before NCCL is used.
    failure = OutOfMemory(GIB, 77 * GIB, 77 * GIB, Moment(1, "forward", "", ""))
    assert judge("h100", [measured(77 * GIB, 77 * GIB, failure)], verdict.usable, verdict.nccl).fits is False


def test_nccl_takes_more_for_more_ranks_peers_and_links():
    def mib(profile, *communicator):
        return estimate(profile, [Communicator(*communicator)]) / MIB

    assert (mib("a100", 2, True, 0), mib("a100", 4, True, 0)) == (544, 688)
    assert (mib("h100", 2, True, 0), mib("h100", 4, True, 0)) == (544, 976)
    assert mib("a100", 2, False, 1) == 480
    assert mib("a100", 1024, False, 1023) == 7 * 480  # those of a machine
    assert mib("l4", 8, True, 7) == 48
