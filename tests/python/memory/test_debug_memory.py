"""TORCH_OPENREG_DEBUG_MEMORY=1, as Python sees it. The C++ suite DebuggerTest has the rest. Each test has a process of
its own, since the setting is read once."""

from __future__ import annotations

import functools

import pytest
from slices import one_in


@pytest.fixture
def run_debugging(run_forked):
    return functools.partial(run_forked, TORCH_OPENREG_DEBUG_MEMORY="1")


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
        "    assert 'buffer overflow: memory past the end of a block was written: 400 bytes' in str(error), error\n"
        "    assert 'in victim' in str(error), error\n"
        "else:\n"
        "    raise AssertionError('not found')\n"
        "torch.accelerator.synchronize()\n"
    )


@pytest.mark.no_race_detection("the race is on purpose")
def test_memory_that_another_stream_still_uses_may_not_be_used_again_unless_it_is_recorded(run_debugging):
    run_debugging(
        "import torch\n"
        "other = torch.openreg.Stream()\n"
        "def use_elsewhere(recorded):\n"
        "    x = torch.ones(1024, 1024, device='openreg')\n"
        "    other.wait_stream(torch.openreg.current_stream())\n"
        "    with other:\n"
        "        for _ in range(2): y = x @ x\n"
        "    if recorded: x.record_stream(other)\n"
        "    return y\n"
        "y = use_elsewhere(recorded=True)\n"
        "z = torch.ones(1024, 1024, device='openreg')\n"
        "torch.accelerator.synchronize()\n"
        "assert (y == 1024).all()\n"
        "del z\n"
        "y = use_elsewhere(recorded=False)\n"
        "z = torch.empty(1024, 1024, device='openreg')\n"
        "for use in (z.zero_, z.sum, z.clone, lambda: z.copy_(torch.ones(1024, 1024))):\n"
        "    try:\n"
        "        use()\n"
        "    except RuntimeError as error:\n"
        "        text = f'freed while stream {other.stream_id} of openreg:0 still used it; call record_stream()'\n"
        "        assert text in str(error), error\n"
        "        assert 'in use_elsewhere' in str(error), error\n"
        "    else:\n"
        "        raise AssertionError('not found')\n"
        "torch.accelerator.synchronize()\n"
        "assert (y == 1024).all()\n"
    )


PLACES = ["before the free", "before the allocation", "before the use"]
ORDERS = {
    "wait_stream": "side.wait_stream(main)",
    "event": "side.wait_event(main.record_event())",
    "through a third stream": "third.wait_stream(main); side.wait_stream(third)",
    "synchronize": "main.synchronize()",
    "synchronize the device": "O.synchronize()",
    "query": "while not main.query(): pass",
    "item": "with O.stream(main): total.item()",
    "empty_cache": "O.empty_cache()",
}


@pytest.mark.parametrize("place", [one_in(3, *2 * (each,)) for each in PLACES])
def test_a_wait_before_the_memory_is_used_again_is_right_without_record_stream(run_debugging, place):
    """As FSDP2 does with the gradients of its reduce-scatter."""
    programs = ""
    for name, order in ORDERS.items():
        if name == "empty_cache" and place != "before the allocation":
            continue
        programs += (
            "O.synchronize(); O.empty_cache()\n"
            "for step in range(3):\n"
            "    with O.stream(side):\n"
            "        grad = torch.empty(1 << 20, device='openreg')\n"
            f"        if step and {place == 'before the use'}:\n"
            f"            {order}\n"
            "        grad.fill_(step)\n"
            "    main.wait_stream(side)\n"
            "    O._sleep(20_000_000)\n"
            "    total = grad.sum()\n"
            f"    if {place == 'before the free'}:\n"
            f"        {order}\n"
            "    del grad\n"
            f"    if {place == 'before the allocation'}:\n"
            f"        {order}\n"
            f"assert total.item() == 2 << 20, {name!r}\n"
        )
    result = run_debugging(
        "import torch\nO = torch.openreg\nmain, side, third = O.current_stream(), O.Stream(), O.Stream()\n" + programs
    )
    assert result.stderr == ""


def test_memory_of_pools_and_of_several_devices_is_ordered_alike(run_debugging):
    result = run_debugging(
        "import torch\n"
        "O = torch.openreg\n"
        "pool, far = O.MemPool(), O.current_stream(1)\n"
        "def step(order):\n"
        "    with O.use_mem_pool(pool):\n"
        "        x = torch.full((1000,), 3.0, device='openreg')\n"
        "    y = torch.empty(1000, device='openreg:1')\n"
        "    far.wait_stream(O.current_stream())\n"
        "    with O.stream(far):\n"
        "        O._sleep(20_000_000)\n"
        "        y.copy_(x, non_blocking=True)\n"
        "    if order: O.current_stream(0).wait_stream(far)\n"
        "    return y\n"
        "for _ in range(3): y = step(True)\n"
        "assert y.eq(3).all()\n",
        TORCH_OPENREG_DEVICES="2",
    )
    assert result.stderr == ""


@pytest.mark.no_race_detection("the race is on purpose")
def test_replays_of_a_graph_use_memory_too(run_debugging):
    run_debugging(
        "import torch\n"
        "O = torch.openreg\n"
        "main, side, graph = O.current_stream(), O.Stream(), O.CUDAGraph()\n"
        "x = torch.ones(1000, device='openreg')\n"
        "with O.graph(graph): y = x * 2\n"
        "side.wait_stream(main)\n"
        "with O.stream(side): graph.replay()\n"
        "del x\n"
        "x = torch.empty(1000, device='openreg')\n"
        "try:\n"
        "    x.zero_()\n"
        "except RuntimeError as error:\n"
        "    assert f'freed while stream {side.stream_id} of openreg:0 still used it' in str(error), error\n"
        "else:\n"
        "    raise AssertionError('not found')\n"
        "main.wait_stream(side)\n"
        "x.zero_()\n"
        "assert y.eq(2).all()\n"
    )


def test_fully_shard_is_silent_although_it_records_no_streams(run_debugging):
    result = run_debugging(
        "import torch, torch.distributed as dist\n"
        "from torch.distributed.fsdp import fully_shard\n"
        "dist.init_process_group(world_size=1, rank=0, store=dist.HashStore())\n"
        "torch.manual_seed(0)\n"
        "model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(4)]).to('openreg')\n"
        "for layer in model: fully_shard(layer)\n"
        "fully_shard(model)\n"
        "optimizer = torch.optim.Adam(model.parameters(), lr=0.1)\n"
        "for i in range(4):\n"
        "    loss = model(torch.full((2, 8), float(i), device='openreg')).square().sum()\n"
        "    loss.backward()\n"
        "    torch.openreg._sleep(20_000_000)\n"  # the device is behind, as a large model's would be
        "    optimizer.step(); optimizer.zero_grad()\n"
        "assert loss.isfinite()\n"
        "dist.destroy_process_group()\n"
    )
    assert result.stderr == ""


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


def test_what_goes_after_the_device_was_shut_down_is_no_leak(run_python):
    """A handler that was registered before torch runs after the device's own. What only a graph holds, Python does not
    know of."""
    result = run_python(
        "import atexit\n"
        "def late():\n"
        "    global y\n"
        "    del y\n"
        "    torch.openreg.caching_allocator_delete(address)\n"
        "atexit.register(late)\n"
        "import torch\n"
        "address = torch.openreg.caching_allocator_alloc(512)\n"
        "x = torch.ones(1000, device='openreg', requires_grad=True)\n"
        "y = x.exp().sin().sum()\n",
        TORCH_OPENREG_DEBUG_MEMORY="1",
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


def test_without_the_setting_nothing_is_looked_for(run_forked):
    result = run_forked(
        "import torch\n"
        "torch.openreg.caching_allocator_alloc(12345)\n"
        "x = torch.zeros(1000, device='openreg')\n"
        "torch.accelerator.synchronize()\n"
        "from torch_openreg import _C\n"
        "assert not _C.debugs_memory()\n",
        TORCH_OPENREG_DEBUG_MEMORY=None,
    )
    assert result.stderr == ""


def test_the_setting_is_0_or_1(run_forked):
    result = run_forked("import torch\ntorch.ones(1, device='openreg')", TORCH_OPENREG_DEBUG_MEMORY="yes", check=False)
    assert 'TORCH_OPENREG_DEBUG_MEMORY is malformed (got "yes", expected 0 or 1)' in result.stderr
