"""``torch.openreg``: the names that torch and its users look up, and what they answer."""

from __future__ import annotations

import uuid

import pytest
import torch
from devices import DEVICE


def test_all_names_that_it_exports_exist_and_are_documented():
    for name in torch.openreg.__all__:
        assert getattr(torch.openreg, name).__doc__, name


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'torch_openreg\.openreg' has no attribute 'nonsense'"):
        _ = torch.openreg.nonsense


def test_initialization_is_visible():
    torch.openreg.init()
    torch.openreg.init()
    assert torch.openreg.is_initialized() and torch.openreg._initialized
    assert not torch.openreg._is_in_bad_fork()


@pytest.mark.parametrize("given", [None, -1, DEVICE])
def test_device_context_without_an_index_changes_nothing(given):
    torch.accelerator.set_device_index(1)
    with torch.openreg.device(given):
        assert torch.accelerator.current_device_index() == 1


def test_properties_name_and_capability():
    properties = torch.openreg.get_device_properties(1)
    assert properties.name == torch.openreg.get_device_name(f"{DEVICE}:1") == DEVICE
    assert properties.total_memory == torch.openreg.mem_get_info(1)[1]
    assert properties.multi_processor_count > 0
    assert "total_memory=" in repr(properties)
    other = torch.openreg.get_device_properties(0)
    assert properties != other and properties == torch.openreg.get_device_properties(1)
    assert hash(properties) == hash(torch.openreg.get_device_properties(1))
    assert uuid.UUID(bytes=bytes(properties.uuid.bytes)) == uuid.UUID(str(properties.uuid)) != other.uuid
    assert f"uuid={properties.uuid}" in repr(properties) and str(properties.uuid) != str(other.uuid)
    major, minor = torch.openreg.get_device_capability(1)
    assert (properties.major, properties.minor) == (major, minor) == (9, 0)
    assert properties.max_threads_per_multi_processor % properties.warp_size == 0
    assert properties.is_integrated and not properties.is_multi_gpu_board
    assert torch.openreg.get_arch_list() == [] and torch.openreg.get_gencode_flags() == ""
    assert torch.openreg.is_tf32_supported() is False


def test_sleeping_takes_as_many_cycles_as_the_clock_rate_says():
    begin, end = (torch.Event(enable_timing=True) for _ in range(2))
    begin.record()
    torch.openreg._sleep(20_000_000)
    end.record()
    end.synchronize()
    kilohertz = torch.openreg.get_device_properties().clock_rate
    assert begin.elapsed_time(end) >= 20_000_000 / kilohertz


@pytest.mark.parametrize("exchange", ["_exchange_device", "_maybe_exchange_device"])
def test_exchanging_the_device_returns_the_one_before(exchange):
    exchange = getattr(torch.openreg, exchange)
    assert exchange(1) == 0
    assert torch.accelerator.current_device_index() == 1
    assert exchange(-1) == -1
    assert torch.accelerator.current_device_index() == 1
    assert exchange(0) == 1
    with pytest.raises(RuntimeError, match=DEVICE):
        exchange(2)


def test_lazy_calls_wait_for_the_first_use(run_forked):
    run_forked(
        "import torch\n"
        "done = []\n"
        "torch.openreg._lazy_call(lambda: done.append(1))\n"
        "torch.openreg._lazy_call(lambda: torch.openreg._lazy_call(lambda: done.append(2)))\n"
        "assert done == [] and not torch.openreg.is_initialized()\n"
        "torch.openreg.init()\n"
        "assert done == [1, 2], done\n"
        "torch.openreg._lazy_call(lambda: done.append(3))\n"
        "assert done == [1, 2, 3]\n"
    )


@pytest.mark.parametrize("first_use", ["torch.ones(2, device='openreg')", "torch.openreg.synchronize(0)"])
def test_lazy_calls_are_made_whatever_the_first_use_is(run_forked, first_use):
    run_forked(
        "import torch\n"
        "done = []\n"
        "torch.openreg._lazy_call(lambda: done.append(1))\n"
        f"{first_use}\n"
        "assert done == [1], done\n"
    )


def test_another_thread_waits_for_the_lazy_calls(run_forked):
    run_forked(
        "import threading, torch\n"
        "done, began, may_end = [], threading.Event(), threading.Event()\n"
        "def call():\n"
        "    began.set()\n"
        "    assert may_end.wait(60)\n"
        "    done.append(1)\n"
        "torch.openreg._lazy_call(call)\n"
        "first = threading.Thread(target=torch.openreg.init)\n"
        "first.start()\n"
        "assert began.wait(60)\n"
        "seen = []\n"
        "second = threading.Thread(target=lambda: (torch.openreg.init(), seen.extend(done)))\n"
        "second.start()\n"
        "second.join(0.2)\n"
        "assert second.is_alive()\n"
        "may_end.set()\n"
        "second.join()\n"
        "assert seen == [1], seen\n"
    )


def test_waiting_for_nothing_is_no_first_use(run_forked):
    """PyTorch's profiler synchronizes also where a program does not use the device."""
    run_forked("import torch\ntorch.openreg.synchronize()\nassert not torch.openreg.is_initialized()\n")


def test_launch_stats_count_launches():
    before = torch.openreg.launch_stats()
    x = torch.ones(3, device=DEVICE) + 1
    assert x.tolist() == [2, 2, 2]
    after = torch.openreg.launch_stats()
    assert set(after) == {
        "typed",
        "boxed",
        "compiled",
        "synchronous",
        "cpu_fallbacks",
        "copies",
        "host_waits",
        "plan_hits",
        "plans_made",
        "probes",
        "probe_ns",
        "probe_bytes",
    }
    assert after["typed"] > before["typed"]


def test_autocast_dtypes():
    assert torch.openreg.get_amp_supported_dtype() == [torch.float16, torch.bfloat16]
    assert torch.openreg.is_bf16_supported()


def test_renaming_again_is_refused():
    torch.utils.rename_privateuse1_backend(DEVICE)
    with pytest.raises(RuntimeError, match="has already been set"):
        torch.utils.rename_privateuse1_backend("dev")


def test_registering_a_module_again_is_refused():
    with pytest.raises(RuntimeError, match="Expected one of cpu"):
        torch._register_device_module("dev", torch.openreg)
    with pytest.raises(RuntimeError, match="The runtime module of"):
        torch._register_device_module(DEVICE, torch.openreg)


def test_generated_methods_exist_once():
    with pytest.raises(RuntimeError, match="The custom device module of"):
        torch.utils.generate_methods_for_privateuse1_backend()
    for owner in (torch.Tensor, torch.TypedStorage, torch.UntypedStorage, torch.nn.utils.rnn.PackedSequence):
        assert hasattr(owner, DEVICE) and hasattr(owner, "is_openreg")
    assert hasattr(torch.nn.Module, DEVICE)


def test_custom_module_functions_are_found():
    from torch.utils.backend_registration import _get_custom_mod_func

    assert _get_custom_mod_func("device_count")() == 2
    with pytest.raises(RuntimeError, match=r"Try to call torch\.openreg"):
        _get_custom_mod_func("nonsense")


def test_profiler_activity_bears_the_name():
    assert torch.profiler.ProfilerActivity.OPENREG == torch.profiler.ProfilerActivity.PrivateUse1
    assert "OPENREG" in repr(torch.profiler.ProfilerActivity.PrivateUse1).upper()


def test_a_class_that_overrides_functions_of_tensors_is_asked_for_its_dlpack_device():
    class Elsewhere(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            if function is torch.Tensor.__dlpack_device__:
                return (12, 7)
            return super().__torch_function__(function, types, args, kwargs or {})

    assert torch.ones(2, device=DEVICE).as_subclass(Elsewhere).__dlpack_device__() == (12, 7)
