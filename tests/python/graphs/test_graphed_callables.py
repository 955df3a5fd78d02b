"""`make_graphed_callables`: parts of a network whose passes are replayed, within training that is not captured."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from polling import happens

openreg = torch.openreg
# Sums are rounded alike, whoever runs a command: an engine, or a host that waits and has more threads.
pytestmark = pytest.mark.usefixtures("deterministic")


def network(seed: int = 0, dropout: float = 0.0) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 12),
        torch.nn.LayerNorm(12),
        torch.nn.GELU(),
        torch.nn.Dropout(dropout),
        torch.nn.Linear(12, 6),
    ).to("openreg")


def sample(*shape: int, **options: Any) -> torch.Tensor:
    return torch.randn(*shape, device="openreg", **options)


def trained(
    models: list[Callable[..., Any]], parameters: list[torch.Tensor], steps: int = 6, **options: Any
) -> list[torch.Tensor]:
    """Losses and parameters of each step of a training loop around `models`, which follow each other."""
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("openreg", enabled=bool(options))
    seen = []
    for step in range(steps):
        openreg.manual_seed(step)
        x, y = (torch.randn(4, 6, generator=torch.Generator().manual_seed(step * 2 + i)).to("openreg") for i in (0, 1))
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("openreg", enabled=bool(options), **options):
            for model in models:
                x = model(x)
            loss = F.mse_loss(x.float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        seen += [loss.detach().cpu(), *(p.detach().cpu().clone() for p in parameters)]
    return seen


def assert_equal(got: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for i, (g, e) in enumerate(zip(got, expected, strict=True)):
        assert torch.equal(g, e), f"{i}: {(g - e).abs().max()}"


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_a_graphed_module_trains_as_the_module_does(dropout):
    eager, model = network(dropout=dropout), network(dropout=dropout)
    graphed = openreg.make_graphed_callables(model, (sample(4, 6),))
    assert graphed is model
    assert_equal(trained([graphed], list(model.parameters())), trained([eager], list(eager.parameters())))


def test_several_modules_and_a_function():
    eager, graphed = [network(i) for i in range(2)], [network(i) for i in range(2)]

    def bend(x: torch.Tensor) -> torch.Tensor:
        return x * x.sigmoid()

    first, middle, last = openreg.make_graphed_callables(
        (graphed[0], bend, graphed[1]),
        ((sample(4, 6),), (sample(4, 6, requires_grad=True),), (sample(4, 6, requires_grad=True),)),
    )
    parameters = [[p for model in models for p in model.parameters()] for models in (graphed, eager)]
    assert_equal(trained([first, middle, last], parameters[0]), trained([eager[0], bend, eager[1]], parameters[1]))


def test_some_modules_are_graphed_and_the_loss_and_a_branch_are_not():
    def models(seed: int) -> list[torch.nn.Module]:
        return [network(seed), network(seed + 1)]

    class Branch(torch.nn.Module):
        """Chooses by its input, so that it cannot be captured itself."""

        def __init__(self, parts: list[torch.nn.Module]) -> None:
            super().__init__()
            self.parts = torch.nn.ModuleList(parts)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.parts[1](self.parts[0](x)) if x.sum().item() > 0 else self.parts[0](x)

    eager, parts = Branch(models(3)), models(3)
    graphed = Branch(
        list(openreg.make_graphed_callables(tuple(parts), ((sample(4, 6),), (sample(4, 6, requires_grad=True),))))
    )
    assert_equal(trained([graphed], list(graphed.parameters()), 8), trained([eager], list(eager.parameters()), 8))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_mixed_precision(dtype):
    eager, model = network(dropout=0.3), network(dropout=0.3)
    with torch.autocast("openreg", dtype=dtype, cache_enabled=False):
        graphed = openreg.make_graphed_callables(model, (sample(4, 6),))
    options = {"dtype": dtype, "cache_enabled": False}
    assert_equal(
        trained([graphed], list(model.parameters()), **options), trained([eager], list(eager.parameters()), **options)
    )


def test_the_cache_of_autocast_is_refused():
    with torch.autocast("openreg", dtype=torch.bfloat16), pytest.raises(RuntimeError, match="cache_enabled=False"):
        openreg.make_graphed_callables(network(), (sample(4, 6),))


def test_a_module_in_the_other_mode_is_not_replayed():
    eager, model = network(dropout=0.5), network(dropout=0.5)
    graphed = openreg.make_graphed_callables(model, (sample(4, 6),))
    x = sample(4, 6)
    assert torch.equal(graphed.eval()(x), eager.eval()(x))
    assert torch.equal(graphed(x[:2]), eager(x[:2]))  # of any shape
    graphed.train()
    eager.train()
    for _ in range(2):
        openreg.manual_seed(5)
        got = graphed(x).clone()
        openreg.manual_seed(5)
        assert torch.equal(got, eager(x))
    assert not torch.equal(got, graphed(x))


def test_gradients_of_inputs_and_arguments_of_several_kinds():
    def work(a: torch.Tensor, pair: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
        b, index = pair
        return {"product": a * b, "chosen": a[index], "constant": index + 1}

    def arguments() -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        a, b = sample(5, requires_grad=True), sample(5, requires_grad=True)
        return a, (b, torch.randint(5, (3,), device="openreg"))

    graphed = openreg.make_graphed_callables(work, arguments())
    for _ in range(4):
        a, pair = arguments()
        got, expected = graphed(a, pair), work(a, pair)
        assert list(got) == list(expected)
        for name, value in expected.items():
            assert torch.equal(got[name], value)
            assert got[name].requires_grad == value.requires_grad
        seeds = [torch.randn_like(expected[name]) for name in ("product", "chosen")]
        gradients = [
            torch.autograd.grad([results["product"], results["chosen"]], [a, pair[0]], seeds)
            for results in (got, expected)
        ]
        assert all(torch.equal(g, e) for g, e in zip(*gradients, strict=True))


def test_inputs_without_a_part_in_the_result():
    def work(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a * 2

    arguments = sample(3, requires_grad=True), sample(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        openreg.make_graphed_callables(work, arguments)
    graphed = openreg.make_graphed_callables(work, arguments, allow_unused_input=True)
    a, b = sample(3, requires_grad=True), sample(3, requires_grad=True)
    graphed(a, b).sum().backward()
    assert a.grad.tolist() == [2.0] * 3 and b.grad is None


def test_an_argument_in_the_memory_of_the_sample_but_with_other_strides_is_no_silent_error():
    x = torch.arange(9.0, device="openreg").reshape(3, 3)
    double = openreg.make_graphed_callables(lambda a: a * 2, (x,))
    assert double(x).tolist() == (x.cpu() * 2).tolist()
    with pytest.raises(RuntimeError, match="clone"):
        double(x.t())
    assert double(x.t().clone()).tolist() == (x.cpu() * 2).tolist()


def test_without_gradients():
    model = network()
    graphed = openreg.make_graphed_callables(model.requires_grad_(False), (sample(4, 6),))
    x = sample(4, 6)
    got = graphed(x)
    assert not got.requires_grad
    assert torch.equal(got, network()(x))


def test_losses_that_use_a_graphed_part_in_no_grad():
    model, eager = network(), network()
    graphed = openreg.make_graphed_callables(model, (sample(4, 6),))
    with torch.no_grad():
        x = sample(4, 6)
        assert torch.equal(graphed(x), eager(x))


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: openreg.make_graphed_callables(network(), (1.5,)), TypeError, "must be tensors"),
        (lambda: openreg.make_graphed_callables(hooked(), (sample(4, 6),)), RuntimeError, "must not have hooks"),
        (
            lambda: openreg.make_graphed_callables(buffered(), (sample(4, 6),)),
            RuntimeError,
            "must not require gradients",
        ),
        (
            lambda: openreg.make_graphed_callables(lambda x: x.sum().item() * x, (sample(3),)),
            RuntimeError,
            "not permitted",
        ),
    ],
    ids=["no tensor", "hooks", "buffers", "wait"],
)
def test_what_cannot_be_graphed(make, error, match):
    with pytest.raises(error, match=match):
        make()
    assert not openreg.is_current_stream_capturing()
    assert (sample(3) * 0).sum().item() == 0.0


def hooked() -> torch.nn.Module:
    model = network()
    model.register_forward_hook(lambda *_: None)
    return model


def buffered() -> torch.nn.Module:
    model = network()
    model.register_buffer("extra", sample(3, requires_grad=True))
    return model


def test_a_shared_pool():
    pool = openreg.graph_pool_handle()
    parts = [
        openreg.make_graphed_callables(network(i), (sample(4, 6, requires_grad=i > 0),), pool=pool) for i in range(2)
    ]
    x = sample(4, 6)
    assert torch.equal(parts[1](parts[0](x)), network(1)(network(0)(x)))


def allocations_of_a_capture(failing: int) -> int:
    """How many a capture makes, of which one may fail."""
    with openreg.faults.inject("oom", at=f"allocation:{failing}") as fault:
        try:
            openreg.make_graphed_callables(network(), (sample(4, 6, requires_grad=True),), num_warmup_iters=1)
        except torch.OutOfMemoryError:
            openreg.synchronize()  # another stream may still use what is freed with the error
            assert fault.fired
    return fault.counted


@pytest.mark.filterwarnings("ignore:openreg. the captured graph is empty")
def test_a_failed_capture_keeps_no_memory():
    count = allocations_of_a_capture(2**62)
    gc.collect()
    openreg.synchronize()
    before = openreg.memory_allocated()
    for failing in range(count, 0, -6):
        assert allocations_of_a_capture(failing) == failing
        gc.collect()
        # A thread of autograd may be the last to hold tensors.
        assert happens(lambda: openreg.memory_allocated() == before), failing


def test_a_side_stream():
    model, eager = network(), network()
    graphed = openreg.make_graphed_callables(model, (sample(4, 6),))
    side = openreg.Stream()
    side.wait_stream(openreg.current_stream())
    with side:
        x = sample(4, 6)
        for _ in range(3):
            graphed(x).sum().backward()
            eager(x).sum().backward()
            x = x * 0.5
    openreg.current_stream().wait_stream(side)
    for p, q in zip(model.parameters(), eager.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad)


def test_gradients_accumulate_over_several_calls():
    model, eager = network(), network()
    graphed = openreg.make_graphed_callables(model, (sample(4, 6, requires_grad=True),))
    inputs = [torch.linspace(-2, 1, 24, device="openreg").reshape(4, 6).requires_grad_() for _ in range(2)]
    for step in range(4):
        for each, x in ((graphed, inputs[0]), (eager, inputs[1])):
            each(x * 1).mul(step + 1).sum().backward()
            with torch.no_grad():
                x.copy_(torch.linspace(-1, 1, 24).reshape(4, 6) * step)
        for p, q in zip([*model.parameters(), inputs[0]], [*eager.parameters(), inputs[1]], strict=True):
            assert torch.equal(p.grad, q.grad), step


def test_gradients_of_a_leaf_accumulate_over_several_calls():
    x = sample(5).requires_grad_()
    graphed = openreg.make_graphed_callables(lambda x: x * x, (sample(5, requires_grad=True),))
    for _ in range(3):
        graphed(x).sum().backward()
    assert torch.equal(x.grad, 6 * x)
