"""Data loaders: workers, pinned batches and asynchronous copies, as training programs use them.

`DataLoader` forks its workers on Linux, and pins batches in a thread of the parent through the hooks' pinned memory
allocator.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from backend_conformance import Device, Level, check


class Squares(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": torch.full((500,), float(index)), "y": torch.tensor(index * index)}


class Batch:
    """A batch with a method of its own for pinning."""

    def __init__(self, samples: list[dict[str, torch.Tensor]]) -> None:
        self.y = torch.stack([each["y"] for each in samples])

    def pin_memory(self) -> Batch:
        self.y = self.y.pin_memory()
        return self


def loader(**options: Any) -> DataLoader[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are fewer cores than workers
        return DataLoader(Squares(), batch_size=4, **options)


def compare(device: Device, batches: list[Any]) -> None:
    x = torch.cat([each["x"].to(device.this) for each in batches])
    y = torch.cat([each["y"].to(device.this) for each in batches])
    device.cpu_equal(x[:, 3], torch.arange(24.0))
    device.cpu_equal(y, torch.arange(24) ** 2)


@check(level=Level.TRAINS, hook="_is_in_bad_fork; the runtime after a fork", timeout=120.0)
def workers_run_after_the_first_use(device: Device) -> None:
    """A loader with forked workers works in a program that has used the device.

    The workers never use the device, but they inherit its tensors and its handlers of `fork`.
    """
    kept = torch.ones(1000, device=device.this) + 1
    compare(device, list(loader(num_workers=2)))
    device.cpu_equal(kept[:2], torch.full((2,), 2.0))


@check(level=Level.TRAINS, hook="getPinnedMemoryAllocator, isPinnedPtr", needs=("pinned_memory",), timeout=120.0)
def batches_are_pinned(device: Device) -> None:
    """`pin_memory=True` pins all tensors of a batch, with workers and without, and calls a batch's own method.

    A thread of the parent pins what the workers send.
    """
    for workers in (0, 2):
        batches = list(loader(num_workers=workers, pin_memory=True))
        assert all(each["x"].is_pinned() and each["y"].is_pinned() for each in batches), (
            f"{workers} workers: not pinned"
        )
        compare(device, batches)
    own = list(loader(num_workers=1, pin_memory=True, collate_fn=Batch))
    assert all(each.y.is_pinned() for each in own), "the batch's own method was not called"


@check(level=Level.ASYNCHRONOUS, hook="_copy_from with non_blocking", needs=("pinned_memory",), timeout=120.0)
def batches_are_copied_beside_computation(device: Device) -> None:
    """Pinned batches that are copied with `non_blocking` and freed at once arrive unchanged.

    This is the loop of most training programs: the next batch overwrites pinned memory that was freed.
    """
    weight = torch.full((500, 500), 1 / 500, device=device.this)
    totals = []
    for batch in loader(num_workers=1, pin_memory=True):
        x = batch["x"].to(device.this, non_blocking=True)
        del batch
        for _ in range(10):
            x = x @ weight
        totals.append(x.sum(1))
    expected = 500 * torch.arange(24.0)
    device.cpu_equal(torch.cat(totals), expected, rtol=1e-2, atol=1.0)


@check(level=Level.TRAINS, hook="kernels of the device")
def batches_are_collated_on_the_device(device: Device) -> None:
    """A data set on the device is collated, shuffled and split there.

    Small data sets are kept on the device as a whole.
    """
    x = torch.arange(20.0, device=device.this).view(10, 2)
    data = torch.utils.data.TensorDataset(x, x.sum(1))
    first, second = torch.utils.data.random_split(data, [6, 4], generator=torch.Generator().manual_seed(1))
    seen = []
    for part in (first, second):
        for values, sums in DataLoader(part, batch_size=3, shuffle=True):
            assert values.device == device.this
            device.cpu_equal(values.sum(1), sums.cpu())
            seen += sums.tolist()
    assert sorted(seen) == sorted(x.sum(1).tolist())


@check(level=Level.COMPLETE, hook="the runtime in spawned processes", needs=("pinned_memory",), timeout=120.0)
def spawned_workers_load_batches(device: Device) -> None:
    """Workers that are spawned load the backend by autoload, and send batches that are pinned in the parent.

    Programs choose "spawn" to use the device in the workers.
    """
    torch.ones(3, device=device.this)
    compare(device, list(loader(num_workers=1, multiprocessing_context="spawn", pin_memory=True)))
