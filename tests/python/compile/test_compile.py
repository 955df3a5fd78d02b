"""torch.compile without a code generator: the graph is traced, differentiated and run operator by operator."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._prims import rng_prims
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

BACKENDS = ["eager", "aot_eager"]


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))


def train(model: nn.Module, run: nn.Module, device: str) -> tuple[list[float], list[torch.Tensor]]:
    """Losses and parameters of four steps, with batches of different sizes."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for size in (4, 5, 6, 7):
        images = torch.randn(size, 1, 8, 8, generator=generator).to(device)
        labels = torch.randint(3, (size,), generator=generator).to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(run(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().cpu() for p in model.parameters()]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_model_trains_as_on_the_cpu(backend):
    reference = make_model()
    expected = train(reference, reference, "cpu")
    model = make_model().to("openreg")
    got = train(model, torch.compile(model, backend=backend, fullgraph=True), "openreg")
    assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert got[0][-1] != got[0][0]


def random_numbers(x: torch.Tensor) -> torch.Tensor:
    drawn = F.dropout(x, 0.5) + torch.randn_like(x) + torch.bernoulli(x * 0.5) + F.rrelu(-x, training=True)
    return drawn + torch.rand(5, device="openreg") + torch.randint(9, (5,), device="openreg") + torch.normal(x, x)


@pytest.mark.parametrize("backend", BACKENDS)
def test_random_numbers_are_those_of_eager_mode(backend):
    x = torch.ones(5, device="openreg")
    torch.manual_seed(3)
    expected = [random_numbers(x) for _ in range(2)]
    run = torch.compile(random_numbers, backend=backend, fullgraph=True)
    run(x)
    torch.manual_seed(3)
    got = [run(x) for _ in range(2)]
    assert torch.equal(torch.stack(got), torch.stack(expected))
    assert not torch.equal(got[0], got[1])


def test_a_checkpointed_dropout_is_replayed_in_the_compiled_backward_pass():
    def block(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x.sin(), 0.5)

    def gradient(function, device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = torch.ones(64, device=device, requires_grad=True)
        torch.manual_seed(3)
        y = function(x)
        y.sum().backward()
        return y.detach(), x.grad, torch.rand(3, device=device)  # the generator goes on where it was

    compiled = torch.compile(lambda x: checkpoint(block, x, use_reentrant=False), backend="aot_eager", fullgraph=True)
    gradient(compiled, "openreg:1")  # compiled with numbers of its own
    expected = gradient(block, "openreg:1")
    got = gradient(compiled, "openreg:1")
    assert torch.equal(got[0] != 0, got[1] != 0)
    for g, e in zip(got, expected, strict=True):
        assert torch.equal(g, e)


@pytest.mark.parametrize("device", ["cpu", "openreg:0", "openreg:1"])
def test_a_saved_state_replays_an_operator_and_the_generator_continues(device):
    x = torch.zeros(8, device=device)
    torch.manual_seed(4)
    rand_like = torch.ops.aten.rand_like.default
    state, first = rng_prims.run_and_save_rng_state(rand_like, x)
    torch.manual_seed(4)
    assert torch.equal(first, torch.rand_like(x))
    second = torch.rand_like(x)
    torch.manual_seed(4)
    torch.rand_like(x)
    assert torch.equal(rng_prims.run_with_rng_state(state, rand_like, x), first)
    assert torch.equal(torch.rand_like(x), second)


def on_another_stream(x: torch.Tensor) -> torch.Tensor:
    stream = torch.openreg.Stream(0, priority=-1)
    stream.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(stream):
        y = x * 2
        y.record_stream(stream)
    torch.accelerator.current_stream().wait_stream(stream)
    return y + 1


def test_the_default_stream_is_the_same_in_compiled_code():
    with torch.openreg.Stream():
        assert torch.compile(torch.openreg.default_stream, backend="eager")(0) == torch.openreg.default_stream(0)


def with_an_event(x: torch.Tensor) -> torch.Tensor:
    stream, event = torch.Stream("openreg"), torch.openreg.Event()
    stream.wait_stream(torch.accelerator.current_stream())
    with stream:
        y = x * 2
        event.record(stream)
    event.wait()
    return y + 1


def with_synchronisation(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    torch.openreg.synchronize()
    torch.openreg.synchronize("openreg:1")
    torch.accelerator.synchronize()
    return y + 1


def on_another_device(x: torch.Tensor) -> torch.Tensor:
    y = x.to("openreg:1", non_blocking=True) * 2
    with torch.openreg.device(1):
        z = torch.ones(3, device="openreg:1")
    return (y + z).to(x.device)


def asking_about_devices(x: torch.Tensor) -> torch.Tensor:
    assert torch.openreg.is_available() and torch.accelerator.is_available() and x.is_openreg
    count, device = torch.openreg.device_count(), torch.accelerator.current_accelerator()
    return (
        x * count
        + torch.ones(3, device=device)
        + torch.openreg.current_device()
        - torch.accelerator.current_device_index()
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "function",
    [on_another_stream, with_an_event, with_synchronisation, on_another_device, asking_about_devices],
    ids=lambda function: function.__name__,
)
def test_streams_devices_and_questions_are_traced_without_a_break(backend, function):
    x = torch.arange(3.0, device="openreg")
    run = torch.compile(function, backend=backend, fullgraph=True)
    for _ in range(2):
        got = run(x)
        assert got.device == x.device
        assert got.tolist() == [1.0, 3.0, 5.0] == function(x).tolist()


@pytest.mark.parametrize("module", [torch.openreg, torch.accelerator], ids=["openreg", "accelerator"])
def test_a_device_context_is_entered_and_left(module):
    context = torch.openreg.device if module is torch.openreg else torch.accelerator.device_index

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with context(1):
            inside = torch.ones(3, device="openreg")
        return inside, torch.ones(3, device="openreg")

    inside, after = torch.compile(function, backend="eager", fullgraph=True)(torch.ones(1, device="openreg"))
    assert (inside.device.index, after.device.index) == (1, 0)
    assert torch.accelerator.current_device_index() == 0


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")
def test_a_graph_break_within_a_device_context_preserves_the_context():
    def function() -> tuple[torch.Tensor, ...]:
        with torch.openreg.device(1):
            before = torch.zeros(3, device="openreg")
            torch._dynamo.graph_break()
            inside = torch.ones(3, device="openreg")
        return before, inside, torch.ones(3, device="openreg")

    results = torch.compile(function, backend="eager")()
    assert [each.device.index for each in results] == [1, 1, 0]
    assert torch.accelerator.current_device_index() == 0


def test_a_device_context_has_its_class_in_a_graph():
    def function(x: torch.Tensor) -> torch.Tensor:
        context = torch.openreg.device(1)
        with context:
            y = torch.ones(3, device="openreg")
        return y * (2 if isinstance(context, torch.openreg.device) else 1)

    assert torch.compile(function, backend="eager", fullgraph=True)(torch.ones(1)).tolist() == [2, 2, 2]


@pytest.mark.parametrize("seed", [torch.manual_seed, torch.openreg.manual_seed], ids=["torch", "openreg"])
def test_seeding_inside_breaks_the_graph_and_works(seed):
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        seed(5)
        return y + torch.rand(3, device="openreg")

    x = torch.ones(3, device="openreg")
    run = torch.compile(function, backend="aot_eager")
    assert torch.equal(run(x), function(x))
    assert torch.equal(run(x), function(x))


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast_is_traced(backend):
    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("openreg", dtype=torch.bfloat16):
            return F.linear(x, x)

    x = torch.randn(3, 4, device="openreg")
    got = torch.compile(function, backend=backend, fullgraph=True)(x)
    assert got.dtype == torch.bfloat16
    assert torch.equal(got, function(x))


def test_control_flow_by_data_stays_in_the_graph():
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,))

    run = torch.compile(function, backend="aot_eager", fullgraph=True)
    assert run(torch.ones(2, device="openreg")).tolist() == [2.0, 2.0]
    assert run(-torch.ones(2, device="openreg")).tolist() == [-2.0, -2.0]


def test_a_compiled_model_can_be_copied_and_moved():
    model = make_model().to("openreg").eval()
    run = torch.compile(copy.deepcopy(model), backend="aot_eager")
    x = torch.randn(2, 1, 8, 8)
    first = run(x.to("openreg"))
    run.to("openreg:1")
    second = run(x.to("openreg:1"))
    assert (first.device.index, second.device.index) == (0, 1)
    assert_close(second.cpu(), first.cpu())
    assert_close(first, model(x.to("openreg")))


MODELS = {
    "LSTM": (lambda: nn.LSTM(3, 4, num_layers=2, dropout=0.5), (5, 2, 3), 1),
    "attention": (lambda: nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=True), (2, 3, 4), 3),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 3, 8), 1),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_with_dropout_are_those_of_eager_mode(name):
    make, shape, count = MODELS[name]
    model = make().to("openreg").train()
    inputs = [torch.randn(shape, device="openreg", requires_grad=True) for _ in range(count)]

    def results(function: nn.Module) -> tuple[torch.Tensor, ...]:
        torch.manual_seed(2)
        output = function(*inputs)
        output = output[0] if isinstance(output, tuple) else output
        return (output.detach(), *torch.autograd.grad(output.sum(), inputs))

    expected = results(model)
    assert_close(results(torch.compile(model, backend="aot_eager")), expected)
    assert_close(results(torch.export.export(model, tuple(inputs)).module()), expected)
