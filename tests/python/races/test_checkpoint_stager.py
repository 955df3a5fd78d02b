"""PyTorch's stager of asynchronous checkpoints copies on a stream that never waits for the current one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from documents import DOCUMENTS, page_of
from reports import marked, parse
from torch.distributed.checkpoint.staging import BlockingAsyncStager, DefaultStager, StagingOptions

DEVICE = "openreg"


@pytest.fixture(autouse=True)
def group() -> Iterator[None]:
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def train_and_save(folder: Path, stager: DefaultStager, wait: bool) -> None:
    w = torch.zeros(64, device=DEVICE)  # block
    torch.openreg.synchronize()
    w.add_(1)  # first
    if wait:
        torch.accelerator.current_stream().synchronize()
    saved = dcp.async_save({"w": w}, checkpoint_id=folder, async_stager=stager)
    getattr(saved, "upload_completion", saved).result()


def test_the_detector_names_the_copy_that_does_not_wait(tmp_path):
    stager = DefaultStager()
    with pytest.raises(torch.openreg.UnsynchronizedAccessError) as caught:
        train_and_save(tmp_path, stager, wait=False)
    stager.close()
    report = parse(str(caught.value))
    assert (report.first.op, report.first.file) == ("aten::add_.Tensor", __file__)
    assert report.first.line == marked(train_and_save, "first")
    assert report.allocated == marked(train_and_save, "block")
    assert (report.second.op, report.second.verb) == ("aten::copy_", "reads")
    assert Path(report.second.file).parts[-3:] == ("distributed", "checkpoint", "_state_dict_stager.py")


@pytest.mark.parametrize(
    "stager",
    [
        lambda: DefaultStager(StagingOptions(use_non_blocking_copy=False)),
        lambda: DefaultStager(StagingOptions(False, False, False, False)),
        BlockingAsyncStager,
    ],
)
def test_without_its_own_stream_it_is_silent(stager, tmp_path):
    train_and_save(tmp_path, stager(), wait=False)


def test_it_is_silent_if_the_host_has_waited_for_the_step(tmp_path):
    stager = DefaultStager()
    train_and_save(tmp_path, stager, wait=True)
    loaded = {"w": torch.empty(64)}
    dcp.load(loaded, checkpoint_id=tmp_path)
    assert loaded["w"].tolist() == [1.0] * 64
    stager.close()


def test_the_change_that_the_report_proposes_makes_the_order(tmp_path, monkeypatch):
    """docs/upstream/README.md"""

    class Ordered(DefaultStager):
        def stage(self, state_dict, **kwargs):
            self._staging_stream.wait_stream(torch.accelerator.current_stream())
            return super().stage(state_dict, **kwargs)

    stager = Ordered()
    train_and_save(tmp_path, stager, wait=False)
    stager.close()


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("ordered", [False, True])
def test_the_program_of_the_report(ordered, run_python, tmp_path):
    """docs/upstream/README.md: the weights are old; with a wait, they are new.

    The device sleeps instead of computing.
    """
    (program,) = page_of(DOCUMENTS / "upstream/README.md").programs
    code = program.code.replace("x = x @ x", "torch.openreg._sleep(20_000_000)").replace("4000, 4000", "4")
    if ordered:
        code = code.replace("stager = ", "torch.accelerator.current_stream().synchronize()\nstager = ")
    assert run_python(code).stdout == f"tensor([{int(ordered)}.])\n"
