"""torch.nn.DataParallel and the functions of torch.nn.parallel over the devices of one process."""

from __future__ import annotations

import copy
import warnings
from collections import namedtuple

import pytest
import torch
from devices import DEVICE
from torch import nn
from torch.nn.parallel import comm, data_parallel, gather, parallel_apply, replicate, scatter
from torch.testing import assert_close
from waits import no_waits

pytestmark = pytest.mark.any_device

DEVICES = [torch.device(DEVICE, index) for index in range(2)]


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(DEVICES[0])


def batch(size=10, device=DEVICES[0]):
    return torch.randn(size, 6, generator=torch.Generator().manual_seed(1)).to(device)


def gradients(model):
    return [parameter.grad.cpu() for parameter in model.parameters()]


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# --- DataParallel ---


@pytest.mark.parametrize("size", [10, 7, 2])
@pytest.mark.parametrize("source", [*DEVICES, torch.device("cpu")])
def test_outputs_and_gradients_are_those_of_one_device(size, source):
    alone, parallel = network(), nn.DataParallel(network())
    want, got = alone(batch(size)), parallel(batch(size, source))
    assert got.device == DEVICES[0]
    assert_close(got, want)
    want.square().sum().backward()
    got.square().sum().backward()
    assert_close(gradients(parallel), gradients(alone))


def test_a_batch_of_one_and_a_single_device_are_no_copies():
    for model, x in ((nn.DataParallel(network()), batch(1)), (nn.DataParallel(network(), [0]), batch())):
        assert_close(model(x), network()(x))


def test_training_continues_as_on_one_device():
    alone, parallel = network(), nn.DataParallel(network())
    for model in (alone, parallel):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(5):
            optimizer.zero_grad()
            model(batch()).square().mean().backward()
            optimizer.step()
    assert_close([*parallel.parameters()], [*alone.parameters()])


def test_nothing_waits():
    parallel, x = nn.DataParallel(network()), batch()
    parallel(x).sum().backward()
    with no_waits():
        parallel(x).sum().backward()


def test_each_replica_computes_on_its_own_device_and_stream():
    seen = []

    class Spy(nn.Module):
        def forward(self, x, *, scale):
            stream = torch.accelerator.current_stream()
            seen.append((x.device, torch.accelerator.current_device_index(), stream.device, len(x)))
            return x * scale

    out = nn.DataParallel(Spy())(batch(5), scale=torch.full((5, 1), 2.0, device=DEVICES[0]))
    assert_close(out, batch(5) * 2)
    assert sorted(seen, key=str) == [(DEVICES[0], 0, DEVICES[0], 3), (DEVICES[1], 1, DEVICES[1], 2)]


def test_buffers_of_the_first_replica_are_the_modules():
    parallel, alone = (nn.BatchNorm1d(6).to(DEVICES[0]) for _ in range(2))
    nn.DataParallel(parallel)(batch(10))
    alone(batch(10)[:5])
    assert_close(parallel.running_mean, alone.running_mean)
    assert parallel.num_batches_tracked == 1


def test_other_modules():
    torch.manual_seed(0)
    lstm = nn.LSTM(6, 4, num_layers=2, batch_first=True).to(DEVICES[0])
    x = torch.randn(4, 5, 6, device=DEVICES[0])
    alone = copy.deepcopy(lstm)
    got, _ = nn.DataParallel(lstm)(x)
    want, _ = alone(x)
    assert_close(got, want)
    got.sum().backward()
    want.sum().backward()
    assert_close(gradients(lstm), gradients(alone))


def test_complex_parameters():
    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.tensor([1 + 2j, 3 - 1j], device=DEVICES[0]))

        def forward(self, x):
            return x * self.factor

    x = torch.ones(4, 2, device=DEVICES[0], dtype=torch.complex64)
    alone, parallel = Product(), Product()
    want, got = alone(x), nn.DataParallel(parallel)(x)
    assert_close(got, want)
    want.abs().sum().backward()
    got.abs().sum().backward()
    assert_close(parallel.factor.grad, alone.factor.grad)


def test_scalars_become_a_vector():
    class Mean(nn.Module):
        def forward(self, x):
            return x.mean()

    x = batch(4).requires_grad_()
    with pytest.warns(UserWarning, match="all input tensors were scalars"):
        out = nn.DataParallel(Mean())(x)
    assert_close(out, torch.stack([x[:2].mean(), x[2:].mean()]))
    out.sum().backward()
    assert_close(x.grad, torch.full_like(x, 1 / 12))


def test_autocast_around_it_reaches_the_replicas():
    parallel, x = nn.DataParallel(network()), batch()
    with torch.autocast(DEVICE, torch.bfloat16):
        out = parallel(x)
        want = parallel.module(x)
    assert out.dtype == torch.bfloat16
    assert_close(out, want)
    assert parallel(x).dtype == torch.float32


def test_without_gradients():
    with torch.no_grad():
        out = nn.DataParallel(network())(batch())
        assert_close(out, network()(batch()))
    assert not out.requires_grad


def test_an_error_in_a_replica_names_it():
    class Broken(nn.Module):
        def forward(self, x):
            if x.device == DEVICES[1]:
                raise ValueError("broken")
            return x

    with pytest.raises(ValueError, match=r"(?s)Caught ValueError in replica 1 on device 1.*broken"):
        nn.DataParallel(Broken())(batch())


@pytest.mark.openreg_only
def test_a_module_on_another_device_is_refused():
    with pytest.raises(RuntimeError, match=r"on device openreg:0 .* but found one of them on device: openreg:1"):
        nn.DataParallel(network().to(DEVICES[1]))(batch())


def test_the_functions_by_themselves():
    module, x = network(), batch(6)
    replicas = replicate(module, DEVICES)
    outputs = parallel_apply(replicas, scatter(x, DEVICES), devices=DEVICES)
    assert [output.device for output in outputs] == DEVICES
    assert_close(gather(outputs, DEVICES[1]).to(DEVICES[0]), module(x))
    assert_close(gather(outputs, "cpu"), module(x).cpu())
    assert_close(data_parallel(module, x, DEVICES, output_device=1).to(DEVICES[0]), module(x))
    assert data_parallel(module, x, [0, 1], output_device=1).device == DEVICES[1]


def test_containers():
    Pair = namedtuple("Pair", "x y")
    x = batch(4)
    (first, second) = scatter({"a": [x, 3], "b": Pair(x, "s")}, DEVICES)
    assert second["a"][0].device == second["b"].x.device == DEVICES[1]
    assert first["a"][1] == 3 and second["b"].y == "s"
    back = gather([{"a": (first["a"][0],)}, {"a": (second["a"][0],)}], 0)
    assert_close(back["a"][0], x)


def test_second_derivatives():
    x = batch(4).double().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: gather([part.sin() for part in scatter(x, DEVICES)], 0), (x,))


# --- torch.nn.parallel.comm ---


def test_broadcast():
    x = batch(2)
    copies = comm.broadcast(x, DEVICES)
    assert [copy.device for copy in copies] == DEVICES and copies[0] is x
    out = [torch.empty(2, 6, device=device) for device in DEVICES]
    assert comm.broadcast(x.cpu(), out=out)[1] is out[1]
    for copied in (*copies, *out):
        assert_close(copied.cpu(), x.cpu())
    with pytest.raises(RuntimeError, match=r"an output has the wrong shape \(got \[3\], expected \[2, 6\]\)"):
        comm.broadcast(x, out=[torch.empty(3, device=DEVICE)])


@pytest.mark.openreg_only
def test_broadcast_coalesced_gives_copies_of_their_own():
    tensors = [torch.ones(2, device=DEVICE), torch.zeros(3, device=DEVICE, dtype=torch.int)]
    first, second, third = comm.broadcast_coalesced(tensors, [0, 1, 0])
    assert first[0] is tensors[0]
    tensors[0].zero_()
    assert second[0].tolist() == third[0].tolist() == [1, 1]
    assert (second[1].dtype, second[1].device) == (torch.int, DEVICES[1])
    with pytest.raises(RuntimeError, match=r"not on devices\[0\] \(got openreg:0, expected openreg:1\)"):
        comm.broadcast_coalesced(tensors, [1, 0])


def test_scatter_and_gather():
    x = torch.arange(12.0).view(2, 6)
    parts = comm.scatter(x, DEVICES, [2, 4], dim=-1)
    assert [[*part.shape] for part in parts] == [[2, 2], [2, 4]]
    assert_close(comm.gather(parts, dim=1, destination=DEVICES[1]).cpu(), x)
    assert comm.gather(parts, 1).device == DEVICES[0]
    with pytest.warns(FutureWarning, match="Using -1 to represent CPU tensor"):
        assert_close(comm.gather(parts, 1, destination=-1), x)
    out = torch.empty(2, 6)
    assert comm.gather(parts, 1, out=out) is out
    assert_close(out, x)
    into = [torch.empty(1, 6, device=device) for device in DEVICES]
    comm.scatter(x, out=into)
    assert_close(into[1].cpu(), x[1:])


def test_scatter_on_given_streams():
    streams = [torch.Stream(device) for device in DEVICES]
    x = torch.randn(4, 3).pin_memory()
    parts = comm.scatter(x, DEVICES, streams=streams)
    for stream, part, want in zip(streams, parts, x.chunk(2), strict=True):
        stream.synchronize()
        assert_close(part.cpu(), want)


def test_reductions():
    parts = [torch.full((2,), value, device=device) for value, device in zip((1.0, 2.0), DEVICES, strict=True)]
    assert comm.reduce_add(parts, 1).tolist() == [3, 3]
    (total,) = comm.reduce_add_coalesced([[part] for part in parts], 0)
    assert total.device == DEVICES[0] and total.tolist() == [3, 3]


@pytest.mark.openreg_only
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: comm.scatter(x, []), "no device to scatter to"),
        (lambda x: comm.scatter(x, DEVICES, [4]), "wrong number of chunks"),
        (lambda x: comm.scatter(x, DEVICES, [1, 1]), "split_sizes"),
        (lambda x: comm.scatter(x, [7]), "openreg:7|device"),
        (lambda x: comm.scatter(x, [0, -1]), "index of a device is negative"),
        (lambda x: comm.scatter(x, out=[]), "no tensor to scatter to"),
        (
            lambda x: comm.scatter(x, out=[x[:2], x[2:].cpu()]),
            "an output is on another device .got cpu, expected openreg",
        ),
        (
            lambda x: comm.scatter(x, DEVICES, streams=[torch.Stream(1)] * 2),
            "a stream is on another device than its part .got openreg:1, expected openreg:0",
        ),
        (lambda x: comm.broadcast(x, [0, -1]), "index of a device is negative"),
        (lambda x: comm.broadcast(x, out=[x.cpu()]), "an output is on another device .got cpu, expected openreg"),
        (lambda x: comm.gather([], 0), "no tensor to gather"),
        (lambda x: comm.gather([x.cpu()], 0), "a tensor to gather is on another device"),
        (lambda x: comm.gather([x, x[:, 1:]], 0), r"a part has the wrong shape \(got \[4, 5\], expected \[4, 6\]\)"),
        (lambda x: comm.gather([x], 0, out=torch.empty(3, 3)), "wrong s(ize|hape)"),
    ],
)
def test_what_cannot_be_is_refused(call, message):
    with pytest.raises(RuntimeError, match=message):
        call(batch(4))
