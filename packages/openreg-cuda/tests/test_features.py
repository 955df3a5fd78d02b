"""What programs for CUDA do, as they say it."""

from __future__ import annotations

import ctypes
import importlib
import io
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset


def test_the_device_is_there():
    assert torch.cuda.is_available() and torch.backends.cuda.is_built()
    assert torch.cuda.device_count() == 2
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    assert torch.tensor(1).cuda().is_cuda
    assert str(torch.ones(1, device="cuda").device) == "cuda:0"
    assert torch.version.cuda is not None
    assert "CUDA" in torch.__config__.show()


def test_properties_are_those_of_the_profile():
    properties = torch.cuda.get_device_properties(0)
    assert properties.name == torch.cuda.get_device_name() == torch.cuda.get_device_name("cuda:1")
    assert (properties.major, properties.minor) == torch.cuda.get_device_capability()
    assert properties.total_memory == torch.cuda.mem_get_info()[1]
    assert properties.warp_size == 32
    with pytest.raises(AssertionError):
        torch.cuda.get_device_properties(7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_mixed_precision_trains(dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 4)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    scaler = torch.cuda.amp.GradScaler(enabled=dtype == torch.float16)
    x, y = torch.randn(64, 16, device="cuda"), torch.randint(4, (64,), device="cuda")
    losses = []
    for _ in range(30):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=dtype):
            out = model(x)
            loss = F.cross_entropy(out, y)
        assert out.dtype == dtype and loss.dtype == torch.float32
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


def test_streams_and_events_order_work():
    side = torch.cuda.Stream()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    x = torch.ones(256, 256, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() == side and side.cuda_stream != 0
        begin.record()
        for _ in range(5):
            x = x @ x / 256
        end.record()
    torch.cuda.current_stream().wait_event(end)
    x.record_stream(torch.cuda.current_stream())
    assert x.sum().item() == 256 * 256
    assert begin.elapsed_time(end) > 0 and end.query()


def test_launches_do_not_wait():
    torch.cuda.synchronize()
    torch.cuda._sleep(200_000_000)
    assert not torch.cuda.current_stream().query()
    torch.cuda.synchronize()
    assert torch.cuda.current_stream().query()


def test_a_graph_is_replayed():
    x = torch.zeros(8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2 + 1
    x.fill_(3)
    graph.replay()
    assert y.tolist() == [7] * 8


def test_pinned_memory_is_copied_without_waiting():
    data = TensorDataset(torch.arange(64.0).view(32, 2), torch.arange(32))
    loader = DataLoader(data, batch_size=8, pin_memory=True, num_workers=1)
    total = torch.zeros((), device="cuda")
    for x, y in loader:
        assert x.is_pinned() and y.is_pinned()
        total += x.cuda(non_blocking=True).sum() + y.to("cuda", non_blocking=True).sum()
    assert total.item() == sum(range(64)) + sum(range(32))


def test_the_numbers_of_a_lack_of_memory_are_those_of_cuda():
    assert torch.cuda.OutOfMemoryError is torch.OutOfMemoryError
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(800_000_000 << 30, dtype=torch.uint8, device="cuda")
    assert "CUDA out of memory. Tried to allocate 800000000.00 GiB. GPU 0 has a total capacity of " in str(caught.value)
    assert re.search(r"capacity of [\d.]+ GiB of which [\d.]+ (GiB|MiB|KiB|bytes) is free", str(caught.value))


def test_a_lack_of_memory_is_observed():
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *numbers: seen.append(numbers))
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda:1")
    ((device, size, allocated, free),) = seen
    assert device == 1 and size == 1 << 50 and allocated == torch.cuda.memory_allocated(1) and free > 0


def test_streams_and_events_have_handles():
    default, side = torch.cuda.default_stream(), torch.cuda.Stream()
    assert default.cuda_stream == 0 and side.cuda_stream != 0
    assert side._as_parameter_.value == side.cuda_stream and default._as_parameter_.value is None
    assert torch.cuda.ExternalStream(side.cuda_stream) == side and torch.cuda.ExternalStream(0) == default
    assert torch._C._cuda_getCurrentRawStream(0) == torch.cuda.current_stream().cuda_stream
    assert repr(default) == "<torch.cuda.Stream device=cuda:0 cuda_stream=0x0>"
    event = torch.cuda.Event()
    assert event.cuda_event == 0
    event.record()
    assert event.cuda_event != 0 and event._as_parameter_.value == event.cuda_event


def test_the_runtime_creates_streams():
    handle = ctypes.c_size_t()
    assert torch.cuda.cudart().cudaStreamCreate(ctypes.addressof(handle)) == 0
    stream = torch.cuda.ExternalStream(handle.value)
    assert stream != torch.cuda.default_stream()
    with torch.cuda.stream(stream):
        x = torch.ones(2, device="cuda") * 2
    stream.synchronize()
    assert x.tolist() == [2, 2]
    assert torch.cuda.cudart().cudaStreamDestroy(handle.value) == 0
    assert torch.cuda.cudart().cudaStreamDestroy(handle.value) != 0


def test_memory_is_counted():
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    x = torch.empty(1 << 20, device="cuda")
    assert torch.cuda.memory_allocated() - before == 4 << 20
    del x
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() - before >= 4 << 20
    assert "allocated" in torch.cuda.memory_summary().lower()
    assert torch.cuda.memory_stats()["num_ooms"] >= 0


def test_checkpoints_move_between_devices(tmp_path):
    buffer = io.BytesIO()
    torch.save({"x": torch.arange(3, device="cuda:1")}, buffer)
    for where in ("cpu", "cuda:0"):
        buffer.seek(0)
        assert torch.load(buffer, map_location=where)["x"].device == torch.device(where)
    buffer.seek(0)
    assert torch.load(buffer)["x"].device == torch.device("cuda:1")


def test_random_numbers_are_reproducible():
    torch.cuda.manual_seed_all(3)
    state = torch.cuda.get_rng_state()
    x = torch.randn(5, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(x, torch.randn(5, device="cuda"))
    with torch.random.fork_rng(devices=[0]):
        torch.randn(5, device="cuda")
    generator = torch.Generator("cuda").manual_seed(3)
    assert torch.equal(x, torch.randn(5, device="cuda", generator=generator))


@pytest.mark.parametrize("backend", list(SDPBackend.__members__.values())[1:5])
def test_each_attention_computes_what_the_cpu_does(backend):
    q, k, v = (torch.randn(2, 4, 16, 8, requires_grad=True) for _ in range(3))
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    expected.sum().backward()
    on_cuda = [each.detach().cuda().requires_grad_() for each in (q, k, v)]
    with sdpa_kernel(backend):
        found = F.scaled_dot_product_attention(*on_cuda, is_causal=True)
    found.sum().backward()
    assert_close(found.cpu(), expected)
    for a, b in zip(on_cuda, (q, k, v), strict=True):
        assert_close(a.grad.cpu(), b.grad)


def test_ranges_and_the_runtime():
    with torch.cuda.nvtx.range("step"):
        torch.cuda.nvtx.mark("here")
    torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStart())
    assert torch.cuda.cudart().cudaMemGetInfo(0)[1] > 0


def test_a_profile_has_the_kernels():
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        torch.ones(64, 64, device="cuda") @ torch.ones(64, 64, device="cuda")
        torch.cuda.synchronize()
    assert any(event.device_time_total > 0 for event in profile.key_averages())
    assert "CUDA" in profile.key_averages().table()


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune"])
def test_compiled_modules_train(mode):
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 2)).cuda()
    x = torch.randn(4, 8, device="cuda")
    expected = model(x)
    compiled = torch.compile(model, mode=mode)
    for _ in range(3):
        model.zero_grad(set_to_none=True)
        found = compiled(x)
        found.sum().backward()
    assert_close(found, expected)


def test_arrays_of_other_libraries_are_not_handed_out():
    x = torch.ones(2, device="cuda")
    assert not hasattr(x, "__cuda_array_interface__")
    with pytest.raises(BufferError, match="emulated"):
        torch.from_dlpack(x)
    for give in (x.__dlpack__, lambda: torch.to_dlpack(x), lambda: torch.utils.dlpack.to_dlpack(x)):
        with pytest.raises(BufferError, match="emulated"):
            give()
    assert torch.from_dlpack(torch.ones(2)).tolist() == [1, 1]
    copy = x.__dlpack__(dl_device=(torch.utils.dlpack.DLDeviceType.kDLCPU, 0), max_version=(1, 0))
    assert torch.utils.dlpack.from_dlpack(copy).tolist() == [1, 1]  # of memory of its own


class DLPackExchange(ctypes.Structure):
    """DLPack's functions of C, without those that need no Python (include/dlpack.h)."""

    _from_object = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
    _set_error = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, _set_error)),
        ("managed_from_object", _from_object),
        ("to_object", ctypes.c_void_p),
        ("borrowed_from_object", _from_object),
        ("current_stream", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.c_void_p)),
    )


EXCHANGING = [
    kind for kind in (torch.Tensor, getattr(torch.utils.dlpack, "ReadOnlyTensorWrapper", None)) if kind is not None
]


@pytest.mark.parametrize("kind", EXCHANGING)
def test_addresses_are_not_handed_out_to_programs_in_c(kind):
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.POINTER(DLPackExchange)
    exchange = pointer(kind.__dlpack_c_exchange_api__, b"dlpack_exchange_api").contents
    found = (ctypes.c_int64 * 8)()  # a DLTensor: its first field is the address
    host, device = torch.arange(4.0).as_subclass(kind), torch.arange(4.0, device="cuda").as_subclass(kind)
    assert exchange.borrowed_from_object(host, found) == 0
    assert found[0] == torch.Tensor.data_ptr(host.as_subclass(torch.Tensor))
    for function in (exchange.managed_from_object, exchange.borrowed_from_object):
        with pytest.raises(BufferError, match="emulated"):
            function(device, (ctypes.c_int64 * 8)())
    cuda = int(torch.utils.dlpack.DLDeviceType.kDLCUDA)
    with pytest.raises(BufferError, match="emulated"):
        exchange.current_stream(cuda, 0, (ctypes.c_void_p * 1)())
    shape = (ctypes.c_int64 * 1)(4)
    prototype = (ctypes.c_int64 * 6)(0, cuda, 1 | (2 | 32 << 8 | 1 << 16) << 32, ctypes.addressof(shape), 0, 0)
    errors = []
    set_error = DLPackExchange._set_error(lambda _, *error: errors.append(error))
    assert exchange.allocate(prototype, (ctypes.c_void_p * 1)(), None, set_error) != 0
    assert [kind for kind, _ in errors] == [b"BufferError"]
    assert not exchange.previous


def test_scatter_and_gather_refuse_parts_of_other_shapes() -> None:
    comm = importlib.import_module("torch.cuda.comm")
    whole = torch.arange(8.0, device="cuda").view(4, 2)
    for out in ([torch.empty(1, 4, 2)], [torch.empty(3, 2)], [torch.empty(2, 2), torch.empty(2, 3)]):
        with pytest.raises(RuntimeError, match=r"openreg: .*wrong (shape|size)"):
            comm.scatter(whole, out=[each.cuda() for each in out])
    with pytest.raises(RuntimeError, match="openreg: a part has the wrong shape"):
        comm.gather([whole, whole.unsqueeze(0)])
    with pytest.raises(RuntimeError, match="openreg: the parts have the wrong size"):
        comm.gather([whole, whole], out=torch.empty(7, 2, device="cuda"))
    parts = comm.scatter(whole, out=[torch.empty(3, 2, device="cuda"), torch.empty(1, 2, device="cuda")])
    assert torch.equal(comm.gather(parts, out=torch.empty_like(whole)), whole)
