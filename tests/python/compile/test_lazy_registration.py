"""Dynamo learns of the device when it is imported, and not before: importing it takes a second."""

from __future__ import annotations

import torch


def test_importing_torch_does_not_import_dynamo(run_python):
    run_python(
        "import sys, torch\n"
        "torch.ones(3, device='openreg').sum().item()\n"
        "assert 'torch._dynamo' not in sys.modules\n"
        "assert 'torch_openreg._pytorch.compile.dynamo_interface' not in sys.modules\n"
        "from torch._dynamo.device_interface import get_interface_for_device\n"
        "assert get_interface_for_device('openreg') is get_interface_for_device('openreg:1')\n"
        "finders = [type(finder).__module__ for finder in sys.meta_path]\n"
        "assert finders.count('torch_openreg._pytorch.post_import') == 1\n"
    )


def test_dynamo_that_is_imported_first_learns_of_the_device_too(run_python):
    run_python(
        "import torch, torch._dynamo\n"
        "import torch_openreg\n"
        "x = torch.ones(2, device='openreg')\n"
        "assert torch.compile(lambda x: x.sin(), backend='eager', fullgraph=True)(x).equal(x.sin())\n"
        "from torch._dynamo.device_interface import get_interface_for_device\n"
        "assert get_interface_for_device('openreg').device_count() == 2\n",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )


def test_the_interface_answers_as_the_module():
    from torch._dynamo.device_interface import get_interface_for_device

    interface = get_interface_for_device(torch.device("openreg", 1))
    x = torch.ones(1000, device="openreg")
    stream = torch.Stream("openreg:1")
    interface._set_stream_by_id(stream.stream_id, stream.device_index, stream.device_type)
    assert interface.current_device() == interface.Worker.current_device() == 1
    assert interface.current_stream() == stream
    assert interface.get_raw_stream(1) == stream.native_handle != interface.get_raw_stream(0)
    assert interface.exchange_device(0) == 1 and interface.current_device() == 0
    interface.maybe_exchange_device(1)
    assert interface.current_device() == 1
    interface.set_device(0)
    assert interface.current_device() == 0
    assert interface.get_device_properties(1).total_memory == torch.openreg.get_device_properties(1).total_memory
    assert interface.is_dtype_supported(torch.bfloat16) and not interface.is_triton_capable()
    assert interface.is_available() and interface.device_count() == 2
    assert interface.memory_allocated(0) >= x.nbytes
    interface.synchronize()
    assert interface.get_compute_capability() == get_interface_for_device("cpu").get_compute_capability()
