"""Shared memory that is pinned, as checkpoints that another process writes are staged."""

from __future__ import annotations

import gc
import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from torch.distributed._state_dict_utils import _copy_state_dict, _create_cpu_state_dict
from torch.distributed.checkpoint._state_dict_stager import StateDictStager

STATE = {"weight": lambda: torch.arange(100_000.0, device="openreg").view(-1, 10), "step": lambda: torch.tensor(3.0)}


def state():
    return {name: make() for name, make in STATE.items()}


def locked():
    stats = torch.openreg.host_memory_stats()
    return stats["locked_bytes.current"] if stats else 0


def pinned(tensor):
    return tensor.is_pinned(), tensor.is_shared()


@pytest.mark.parametrize("share_memory", [False, True])
@pytest.mark.parametrize("pin_memory", [False, True])
def test_a_state_is_staged_in_memory_that_is_shared_and_pinned(pin_memory, share_memory):
    before = locked()
    staged = _create_cpu_state_dict(state(), pin_memory=pin_memory, share_memory=share_memory)
    assert pinned(staged["weight"]) == (pin_memory, share_memory)
    _copy_state_dict(state(), staged, non_blocking=True)
    torch.openreg.synchronize()
    assert torch.equal(staged["weight"], state()["weight"].cpu())
    assert staged["weight"][5:].is_pinned() == pin_memory
    del staged
    gc.collect()
    if share_memory:
        assert locked() == before  # unregistered when it is freed


@pytest.mark.filterwarnings("error")
def test_the_stager_pins_shared_memory_and_keeps_it():
    stager = StateDictStager(pin_memory=True, share_memory=True)
    values = state()
    staged = stager.stage(values, non_blocking=True)
    torch.openreg.synchronize()
    assert pinned(staged["weight"]) == (True, True)
    assert torch.equal(staged["weight"], values["weight"].cpu())
    values["weight"].add_(1)
    again = stager.stage(values, non_blocking=True)
    torch.openreg.synchronize()
    assert again["weight"].data_ptr() == staged["weight"].data_ptr()
    assert torch.equal(again["weight"], values["weight"].cpu())
    received = pickle.loads(ForkingPickler.dumps(again["weight"]))  # as the process that writes it gets it
    assert torch.equal(received, again["weight"]) and received.is_shared()


@pytest.mark.needs_engines("a query would run the work that it asks about")
def test_a_copy_to_registered_memory_does_not_wait():
    staged = _create_cpu_state_dict(state(), pin_memory=True, share_memory=True)["weight"]
    values = state()["weight"]
    torch.openreg.synchronize()
    torch.openreg._sleep(200_000_000)
    staged.copy_(values, non_blocking=True)
    assert not torch.openreg.current_stream().query()
    del staged  # unregistered: waits for the copy, which would write to memory that is gone
    assert torch.openreg.current_stream().query()


def test_a_process_ends_with_registered_memory(run_python):
    result = run_python(
        "import torch\n"
        "from torch.distributed._state_dict_utils import _create_cpu_state_dict\n"
        "x = torch.ones(1000, 10, device='openreg')\n"
        "state = _create_cpu_state_dict({'x': x}, pin_memory=True, share_memory=True)\n"
        "state['x'].copy_(x, non_blocking=True)\n"
        "print(state['x'].is_pinned())\n"
    )
    assert result.stdout.strip() == "True" and not result.stderr and result.returncode == 0
