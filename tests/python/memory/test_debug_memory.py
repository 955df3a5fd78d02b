"""TORCH_OPENREG_DEBUG_MEMORY=1, as Python sees it. The C++ suite DebuggerTest has the rest. Each test has a process of
its own, since the setting is read once."""

from __future__ import annotations

import functools

import pytest


@pytest.fixture
def run_debugging(run_python):
    return functools.partial(run_python, TORCH_OPENREG_DEBUG_MEMORY="1")


def test_uninitialised_memory_is_nan(run_debugging):
    run_debugging(
        "import torch\n"
        "for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn):\n"
        "    x = torch.empty(1000, dtype=dtype, device='openreg')\n"
        "    assert x.cpu().float().isnan().all(), dtype\n"
        "assert (torch.empty(10, dtype=torch.int32, device='openreg') == -1).all()\n"
    )


def test_memory_that_is_freed_while_an_exception_is_on_its_way_does_not_lose_it(run_debugging):
    # A recomputation of checkpoint ends by an exception once it has all that the backward pass needs.
    run_debugging(
        "import torch\n"
        "from torch.utils.checkpoint import checkpoint\n"
        "net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)).to('openreg')\n"
        "for _ in range(20):\n"
        "    x = torch.ones(2, 4, device='openreg', requires_grad=True)\n"
        "    checkpoint(net, x, use_reentrant=False).sum().backward()\n"
        "assert x.grad.isfinite().all()\n"
    )


def test_an_operator_that_writes_beyond_a_tensor_is_found(run_debugging):
    run_debugging(
        "import torch\n"
        "def victim():\n"
        "    return torch.ones(100, device='openreg')\n"
        "x = victim()\n"
        "torch.accelerator.synchronize()\n"
        # A storage that claims more memory than it has.
        "address = x.data_ptr()\n"
        "lie = torch._C._construct_storage_from_data_pointer(address, x.device, 404)\n"
        "view = torch.empty(0, device='openreg').set_(lie, 100, (1,))\n"
        "view.fill_(3)\n"
        "try:\n"
        "    torch.accelerator.synchronize()\n"
        "except RuntimeError as error:\n"
        "    assert 'written behind the end of a block: 400 bytes' in str(error), error\n"
        "    assert 'in victim' in str(error), error\n"
        "else:\n"
        "    raise AssertionError('not found')\n"
        "torch.accelerator.synchronize()\n"
    )


@pytest.mark.needs_engines("the check runs while the other stream still computes")
def test_a_tensor_freed_while_another_stream_uses_it_is_found_where_it_is_not_recorded(run_debugging):
    run_debugging(
        "import torch\n"
        "other = torch.openreg.Stream()\n"
        "def use_elsewhere(recorded):\n"
        "    x = torch.ones(1024, 1024, device='openreg')\n"
        "    other.wait_stream(torch.openreg.current_stream())\n"
        "    with other:\n"
        "        for _ in range(50): y = x @ x\n"
        "    if recorded: x.record_stream(other)\n"
        "    return y\n"
        "y = use_elsewhere(recorded=True)\n"
        "torch.accelerator.synchronize()\n"
        "assert (y == 1024).all()\n"
        "y = use_elsewhere(recorded=False)\n"
        "try:\n"
        "    torch.accelerator.synchronize()\n"
        "except torch.AcceleratorError as error:\n"
        "    assert f'freed while stream {other.stream_id} still used it; call record_stream()' in str(error), error\n"
        "    assert 'in use_elsewhere' in str(error), error\n"
        "else:\n"
        "    raise AssertionError('not found')\n"
    )


def test_a_copy_of_a_storage_that_has_been_freed_is_found(run_debugging):
    run_debugging(
        "import torch\n"
        "storage = torch.ones(100, device='openreg').untyped_storage()\n"
        "behind = torch.ones(100, device='openreg')\n"  # so that the copy lies elsewhere
        "torch.openreg.caching_allocator_delete(storage.data_ptr())\n"
        "try:\n"
        "    storage.resize_(800)\n"
        "except RuntimeError as error:\n"
        "    assert 'copy_bytes was called with memory that has been freed: 400 bytes' in str(error), error\n"
        "else:\n"
        "    raise AssertionError('not found')\n"
    )


def test_memory_that_lazy_clones_share_is_ordered_as_ever(run_debugging):
    result = run_debugging(
        "import torch\n"
        "other = torch.openreg.Stream()\n"
        "x = torch.ones(1 << 20, device='openreg')\n"
        "clone = torch._lazy_clone(x)\n"
        "other.wait_stream(torch.openreg.current_stream())\n"
        "with other:\n"
        "    busy = torch.ones(1000, 1000, device='openreg')\n"
        "    for _ in range(20): busy = busy @ busy / 1000\n"
        "    clone.add_(1)\n"  # gets memory of its own, behind the products
        "x.mul_(100)\n"  # the last owner waits for that copy
        "torch.accelerator.synchronize()\n"
        "assert (clone == 2).all() and (x == 100).all()\n"
    )
    assert result.stderr == ""


def test_the_history_finds_the_block_of_a_tensor(run_debugging):
    result = run_debugging(
        "import torch\n"
        "memory = torch.openreg.memory\n"
        "memory._record_memory_history()\n"
        "x = torch.ones(1000, device='openreg')\n"
        "memory._annotate_tensor(x[3:], 'of x')\n"
        "entries = {e['action']: e for e in memory._snapshot()['device_traces'][0]}\n"
        "assert entries['annotate']['user_metadata'] == 'of x'\n"
        "assert entries['annotate']['addr'] == entries['alloc']['addr']\n"
        "assert memory._allocation_traceback(x.data_ptr()) == entries['alloc']['frames'] != []\n"
    )
    assert result.stderr == ""


def test_leaked_memory_is_listed_at_exit(run_debugging):
    result = run_debugging(
        "import torch\n"
        "def forget_it():\n"
        "    torch.openreg.caching_allocator_alloc(12345)\n"
        "model = torch.nn.Linear(10, 10, device='openreg')\n"
        "loss = model(torch.ones(3, 10, device='openreg')).sum()\n"
        "loss.backward()\n"
        "forget_it()\n"
    )
    assert "1 block of device memory was not freed" in result.stderr
    assert "12345 bytes on openreg:0" in result.stderr
    assert "in forget_it" in result.stderr


def test_what_goes_after_the_device_was_shut_down_is_no_leak(run_debugging):
    """A handler that was registered before torch runs after the device's own. What only a graph holds, Python does not
    know of."""
    result = run_debugging(
        "import atexit\n"
        "def late():\n"
        "    global y\n"
        "    del y\n"
        "    torch.openreg.caching_allocator_delete(address)\n"
        "atexit.register(late)\n"
        "import torch\n"
        "address = torch.openreg.caching_allocator_alloc(512)\n"
        "x = torch.ones(1000, device='openreg', requires_grad=True)\n"
        "y = x.exp().sin().sum()\n"
    )
    assert result.stderr == ""


def test_views_that_may_not_be_asked_for_their_gradient_are_no_leak(run_debugging):
    result = run_debugging(
        "import torch\n"
        "y = torch.ones(4, device='openreg', requires_grad=True) * 2\n"
        "first, second = y.split(2)\n"
        "y.mul_(3)\n"
    )
    assert result.stderr == ""


def test_tensors_without_memory_are_no_leak(run_debugging):
    """Fake tensors, and the wrappers that torch.func passes to a function."""
    result = run_debugging(
        "import torch\n"
        "from torch._subclasses import FakeTensorMode\n"
        "x, kept = torch.ones(4, 3, device='openreg'), []\n"
        "def keep(y):\n"
        "    kept.append(y)\n"
        "    return y.sum()\n"
        "for transform in (torch.func.vmap, torch.func.grad, torch.func.functionalize):\n"
        "    transform(keep)(x)\n"
        "fake = FakeTensorMode().from_tensor(x)\n"
    )
    assert result.stderr == ""


def test_a_program_without_errors_runs_as_ever(run_debugging):
    result = run_debugging(
        "import torch\n"
        "torch.manual_seed(0)\n"
        "def train(device):\n"
        "    torch.manual_seed(0)\n"
        "    model = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 3)).to(device)\n"
        "    optimizer = torch.optim.AdamW(model.parameters())\n"
        "    data = torch.linspace(0, 1, 160).view(8, 20).to(device)\n"
        "    for _ in range(20):\n"
        "        loss = model(data).square().mean()\n"
        "        optimizer.zero_grad(); loss.backward(); optimizer.step()\n"
        "    return loss.cpu()\n"
        "torch.testing.assert_close(train('openreg'), train('cpu'))\n"
        "torch.openreg.empty_cache()\n"
        "torch.accelerator.synchronize()\n"
    )
    assert result.stderr == ""


def test_without_the_setting_nothing_is_looked_for(run_python):
    result = run_python(
        "import torch\n"
        "torch.openreg.caching_allocator_alloc(12345)\n"
        "x = torch.zeros(1000, device='openreg')\n"
        "torch.accelerator.synchronize()\n"
        "from torch_openreg import _C\n"
        "assert not _C.debugs_memory()\n",
        TORCH_OPENREG_DEBUG_MEMORY=None,
    )
    assert result.stderr == ""


def test_the_setting_is_0_or_1(run_python):
    result = run_python("import torch\ntorch.ones(1, device='openreg')", TORCH_OPENREG_DEBUG_MEMORY="yes", check=False)
    assert 'TORCH_OPENREG_DEBUG_MEMORY is malformed (got "yes", expected 0 or 1)' in result.stderr
