"""The search for the largest value that fits."""

from __future__ import annotations

import pytest
from fits_runs import TRAIN, fits

from torch_openreg.fits.report import Moment
from torch_openreg.fits.run import FitsError
from torch_openreg.fits.search import Range, parse, search, table
from torch_openreg.fits.verdict import Verdict

GIB = 1 << 30


def run(low: int, high: int, needs, limit: int = 100):
    def attempt(value: int) -> Verdict:
        at = Moment(1, "forward", "", "")
        return Verdict("h100", needs(value) <= limit, limit * GIB, needs(value) * GIB, at, False)

    return search(Range("batch", low, high), attempt)


@pytest.mark.parametrize("best", [1, 2, 17, 99, 127])
def test_the_largest_value_that_fits_is_found(best):
    found = run(1, 128, lambda value: value, limit=best)
    assert found.best == best
    assert len(found.tries) <= 2 + 7
    assert len({one.value for one in found.tries}) == len(found.tries)


def test_the_ends_are_tried_first():
    assert (run(1, 128, lambda value: value, limit=200).best, run(1, 128, lambda value: 200 + value).best) == (
        128,
        None,
    )
    assert [one.value for one in run(1, 128, lambda value: value, limit=200).tries] == [1, 128]
    assert [one.value for one in run(1, 128, lambda value: 200 + value).tries] == [1]


def test_a_program_that_does_not_depend_on_the_value_is_an_error():
    with pytest.raises(FitsError, match=r"no more memory with batch=8 than with batch=1 .*: write \{batch\} where"):
        run(1, 8, lambda value: 5)


def test_runs_are_printed_by_value():
    lines = table(run(1, 4, lambda value: 40 * value))
    assert lines == [
        "       batch         needs  fits",
        "           1     40.00 GiB  yes",
        "           2     80.00 GiB  yes",
        "           3  > 100.00 GiB  no",
        "           4  > 100.00 GiB  no",
    ]


@pytest.mark.parametrize("text", ["batch", "batch=1", "batch=0..4", "batch=4..4", "1x=1..4", "batch=1..b"])
def test_a_malformed_search_is_an_error(text):
    with pytest.raises(FitsError, match="--search is malformed"):
        parse(text)


PROGRAM = """
import os, sys, torch
blocks = [torch.empty(2 << 30, dtype=torch.uint8, device="openreg") for _ in range({})]
"""


@pytest.mark.no_executor("nothing computes")
@pytest.mark.parametrize(
    ("count", "arguments", "values"),
    [('int(os.environ["blocks"])', (), "7..8"), ("int(sys.argv[1][2:])", ("--{blocks}",), "1..9")],
)
def test_a_program_gets_the_value_as_an_argument_and_as_a_variable(tmp_path, count, arguments, values):
    # A T4 has 14.17 GiB for PyTorch: seven blocks.
    result = fits(
        tmp_path, PROGRAM.format(count), "--profile", "t4", "--search", f"blocks={values}", arguments=arguments
    )
    assert result.status == 0, result.errors
    assert result.output.endswith("the largest blocks that fits on t4: 7\n")
    assert result.json["search"]["best"] == 7
    assert result.json["verdicts"][0]["needed"] == 14 << 30


@pytest.mark.no_executor("nothing computes")
@pytest.mark.full
def test_a_range_that_does_not_fit_at_all_ends_with_status_1(tmp_path):
    result = fits(tmp_path, PROGRAM.format('int(os.environ["blocks"])'), "--profile", "t4", "--search", "blocks=8..9")
    assert result.status == 1
    assert result.output.endswith("blocks=8 does not fit on t4\n")


@pytest.mark.no_executor("nothing computes")
def test_a_search_whose_value_nobody_reads_is_an_error(tmp_path):
    result = fits(tmp_path, TRAIN, "--profile", "t4", "--steps", "1", "--search", "absent=1..4")
    assert result.status == 2
    assert "write {absent} where its arguments have the value" in result.errors
