"""Without computing: which values programs see, and what is refused."""

from __future__ import annotations

import os

import pytest
import torch

pytestmark = pytest.mark.no_executor("nothing computes")


@pytest.fixture
def run_idle(run_alone):
    """Runs a function in a process whose devices do not compute, and returns what it prints."""

    def run(function, **variables):
        return run_alone(function, TORCH_OPENREG_COMPUTE="0", **variables)

    return run


def see_known_values():
    lengths = torch.tensor([3, 1, 2]).to("openreg")
    mask = torch.ones(4, 128, dtype=torch.long, device="openreg")
    assert lengths.tolist() == [3, 1, 2]
    assert lengths.cumsum(0).tolist() == [3, 4, 6]
    assert (torch.arange(5, device="openreg") + 1).tolist() == [1, 2, 3, 4, 5]
    assert mask.sum().item() == 512
    assert (mask == 1).all()
    assert mask.nonzero().shape == (512, 2)
    assert lengths[lengths > 1].tolist() == [3, 2]
    assert torch.repeat_interleave(torch.arange(3, device="openreg"), lengths).tolist() == [0, 0, 0, 1, 2, 2]
    assert torch.full((), 2.5, device="openreg").item() == 2.5
    assert torch.unique(mask).tolist() == [1]
    pinned = torch.empty(3, dtype=torch.long, pin_memory=True)
    pinned.copy_(lengths, non_blocking=True)
    torch.openreg.synchronize()
    assert pinned.tolist() == [3, 1, 2]
    assert torch.openreg.compute_report()["unknown_reads"] == []


def test_small_values_that_follow_from_known_ones_are_computed(run_idle):
    run_idle(see_known_values)


def see_unknown_values():
    large = torch.randn(4096, 4096, device="openreg")
    product = large @ large
    assert product.mean().item() == 0.0
    assert not product[:2].cpu().any()
    assert product.isfinite().all() and not product.isnan().any()
    assert torch.equal(product, product.clone())
    assert str(product.mean()) == "tensor(0., device='openreg:0')"
    assert str(product).startswith("tensor([[0., 0., 0.,  ..., 0., 0., 0.],")
    assert product.argmax(-1)[:3].tolist() == [0, 0, 0]
    assert product.log().sum().item() == 0.0  # not what log makes of zeros
    assert torch.linalg.svdvals(product).shape == (4096,)
    assert torch.linalg.cholesky(product).shape == (4096, 4096)
    [first, *_] = reads = torch.openreg.compute_report()["unknown_reads"]
    assert "in see_unknown_values" in first["line"]
    assert sum(read["count"] for read in reads) >= 6
    assert {read["op"]: read["count"] for read in reads}["aten::equal"] == 1


def test_other_values_read_as_zeros_and_each_read_is_reported(run_idle):
    run_idle(see_unknown_values)


def scale_gradients():
    model = torch.nn.Linear(512, 512, device="openreg")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("openreg")
    for _ in range(3):
        loss = model(torch.randn(8, 512, device="openreg")).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == 65536


def test_a_gradient_scaler_finds_no_infinities(run_idle):
    run_idle(scale_gradients)


def end_a_loop():
    unfinished = torch.ones(8, dtype=torch.long, device="openreg")
    logits = torch.randn(8, 50000, device="openreg")
    steps = 0
    while unfinished.max() != 0 and steps < 10:
        token = logits.argmax(-1)
        unfinished = unfinished * (token != 0)
        steps += 1
    assert steps == 1


def test_loops_over_integers_end(run_idle):
    run_idle(end_a_loop)


def wait_forever():
    large = torch.randn(4096, 4096, device="openreg")
    try:
        while large.sum() < 1:
            pass
    except RuntimeError as error:
        print(error)


def test_a_loop_that_waits_for_a_value_ends_with_an_error(run_idle):
    assert "a loop that waits for it would not end without computing" in run_idle(wait_forever)


def ask_for_shapes():
    large = torch.randn(4096, 4096, device="openreg")
    for call in (
        lambda: (large > 0).nonzero(),
        lambda: large[large > 0],
        lambda: torch.masked_select(large, large > 0),
        lambda: torch.where(large > 0)[0],
        lambda: torch.unique(large),
        lambda: torch.bincount(large.long().flatten()),
        lambda: torch.repeat_interleave(large.argmax(-1)),
        lambda: large.to_sparse(),
    ):
        try:
            call()
        except RuntimeError as error:
            assert "depends on values that are not computed" in str(error), error
            assert "torch.openreg.assume(" in str(error)
        else:
            raise AssertionError("no error")


def test_shapes_that_depend_on_unknown_values_are_refused(run_idle):
    run_idle(ask_for_shapes)


def assume_shapes():
    large = torch.randn(1000, 1000, device="openreg")
    with torch.openreg.assume(nonzero=0.25):
        assert (large > 0).nonzero().shape == (250000, 2)
        assert large[large > 0].shape == (250000,)
        with torch.openreg.assume(routing="balanced"):
            assert torch.masked_select(large, large > 0).shape == (250000,)
    try:
        large[large > 0]
    except RuntimeError:
        return
    raise AssertionError("still assumed")


def test_a_density_can_be_assumed(run_idle):
    run_idle(assume_shapes)


def leave_scopes_in_another_order():
    """As two threads may."""
    large = torch.randn(1000, 1000, device="openreg")
    first, second = torch.openreg.assume(nonzero=0.25), torch.openreg.assume(nonzero=0.5)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert (large > 0).nonzero().shape == (500000, 2)
    second.__exit__(None, None, None)
    try:
        large[large > 0]
    except RuntimeError:
        return
    raise AssertionError("still assumed")


def test_a_scope_ends_what_it_assumed_itself(run_idle):
    run_idle(leave_scopes_in_another_order)


def route_tokens():
    experts, tokens, chosen = 8, 1024, 2
    scores = (torch.randn(tokens, 4096, device="openreg") @ torch.randn(4096, experts, device="openreg")).softmax(-1)
    with torch.openreg.assume(routing="balanced"):
        index = torch.topk(scores, chosen).indices
        counts = torch.bincount(index.flatten(), minlength=experts).tolist()
        assert counts == [tokens * chosen // experts] * experts
        order = index.flatten().argsort()
        assert [part.numel() for part in order.split(counts)] == counts
        assert [torch.where(index == expert)[0].numel() for expert in range(experts)] == counts
        assert scores.argmax(-1).bincount(minlength=experts).tolist() == [tokens // experts] * experts
    assert torch.openreg.compute_report()["unknown_reads"] == []


def test_balanced_routing_gives_each_expert_as_many_tokens(run_idle):
    run_idle(route_tokens)


def replay_with_other_inputs():
    length = torch.tensor([3], device="openreg")
    graph = torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        doubled = length * 2
    graph.replay()
    assert doubled.item() == 6
    length.fill_(5)
    graph.replay()
    assert doubled.item() == 10
    assert torch.openreg.compute_report()["unknown_reads"] == []
    large = torch.randn(4096, 4096, device="openreg")
    length.copy_(large.argmax().view(1))
    graph.replay()
    assert doubled.item() == 0
    assert len(torch.openreg.compute_report()["unknown_reads"]) == 1


def test_graphs_decide_in_each_run_what_is_known(run_idle):
    run_idle(replay_with_other_inputs)


def reuse_memory():
    known = torch.arange(100_000, device="openreg")
    del known
    unknown = torch.empty(100_000, dtype=torch.long, device="openreg")
    assert unknown[5].item() == 0
    assert len(torch.openreg.compute_report()["unknown_reads"]) == 1


def test_freed_values_are_forgotten(run_idle):
    run_idle(reuse_memory)


def race():
    large = torch.zeros(64 << 20, device="openreg")
    stream = torch.Stream("openreg")
    try:
        with stream:
            large.add_(1)
    except RuntimeError as error:
        print(error)


def test_the_race_detector_sees_commands_that_do_not_run(run_idle):
    assert "aten::add_" in run_idle(race, TORCH_OPENREG_DETECT_RACES="1")


def fail_at_a_launch():
    large = torch.zeros(64 << 20, device="openreg")
    large.mul_(2)
    try:
        torch.openreg.synchronize()
    except RuntimeError as error:
        print(error)


def test_faults_happen_to_commands_that_do_not_run(run_idle):
    assert "aten::mul" in run_idle(fail_at_a_launch, TORCH_OPENREG_FAULTS="error@aten::mul_:1")


def compile_a_model():
    from torch._inductor.codecache import CppCodeCache

    def refuse(*args, **kwargs):
        raise AssertionError("a kernel was compiled")

    CppCodeCache.load = CppCodeCache.load_async = refuse
    model = torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.GELU(), torch.nn.LayerNorm(4096)).to("openreg")
    compiled = torch.compile(model)
    for _ in range(2):
        compiled(torch.randn(512, 4096, device="openreg")).square().mean().backward()
    assert torch.openreg.launch_stats()["compiled"] > 4
    assert model[0].weight.grad.shape == (4096, 4096)


@pytest.mark.parametrize("threads", ["1", pytest.param("2", marks=pytest.mark.full)])
def test_kernels_of_programs_are_not_compiled(run_idle, tmp_path, threads):
    run_idle(compile_a_model, TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"), TORCHINDUCTOR_COMPILE_THREADS=threads)


def compile_without_a_compiler():
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.GELU()).to("openreg")
    torch.compile(model)(torch.randn(64, 512, device="openreg")).sum().backward()
    assert torch.openreg.launch_stats()["compiled"] > 1


def test_programs_are_compiled_where_there_is_no_compiler(run_idle, tmp_path):
    compiler = tmp_path / "g++"
    compiler.write_text(f"#!/bin/sh\necho $@ >> {tmp_path}/calls\nexit 1\n")
    compiler.chmod(0o755)
    for name in ("c++", "cc", "clang++", "gcc"):
        (tmp_path / name).symlink_to(compiler)
    variables = {"CXX": str(compiler), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    run_idle(compile_without_a_compiler, TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"), **variables)
    assert not (tmp_path / "calls").exists(), (tmp_path / "calls").read_text()


def send_to_a_process():
    from torch_openreg import _C

    try:
        _C.share_storage(torch.ones(4, device="openreg").untyped_storage(), [])
    except RuntimeError as error:
        print(error)


def test_tensors_are_not_sent_to_processes(run_idle):
    assert "cannot be sent to another process while devices do not compute" in run_idle(send_to_a_process)


def change_the_mode():
    assert torch.openreg.get_compute_mode()
    torch.openreg.set_compute_mode(False)
    assert torch.zeros(1 << 30, device="openreg").sum().item() == 0
    try:
        torch.openreg.set_compute_mode(True)
    except RuntimeError as error:
        print(error)


def test_the_mode_is_set_before_the_first_use(run_alone):
    assert "cannot change after the first use of device memory" in run_alone(change_the_mode)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TORCH_OPENREG_EXECUTOR", "process"),
        ("TORCH_OPENREG_DEBUG_MEMORY", "1"),
        ("TORCH_OPENREG_FAULTS", "corrupt@launch:1"),
    ],
)
def test_settings_that_need_contents_are_refused(first_use_errors, name, value):
    for error in first_use_errors(TORCH_OPENREG_COMPUTE="0", **{name: value}):
        assert "TORCH_OPENREG_COMPUTE=0 excludes" in error
        assert name in error


@pytest.mark.parametrize("arguments", [{"nonzero": 1.5}, {"nonzero": -0.1}, {"routing": "fair"}])
def test_wrong_assumptions_are_refused(arguments):
    with pytest.raises(ValueError, match="openreg: "), torch.openreg.assume(**arguments):
        pass


def attend_after_the_first_use():
    torch.openreg.Stream().synchronize()
    q = torch.empty(1, 2, 64, 64, device="openreg", dtype=torch.bfloat16, requires_grad=True)
    print(type(torch.nn.functional.scaled_dot_product_attention(q, q, q).grad_fn).__name__)


def attend_after_the_choice():
    torch.openreg.Stream().synchronize()
    torch.openreg.set_compute_mode(False)
    q = torch.empty(1, 2, 64, 64, device="openreg", dtype=torch.bfloat16, requires_grad=True)
    print(type(torch.nn.functional.scaled_dot_product_attention(q, q, q).grad_fn).__name__)


@pytest.mark.parametrize(("program", "computes"), [(attend_after_the_first_use, "0"), (attend_after_the_choice, "1")])
def test_attention_is_cudas_however_the_device_is_first_used(run_alone, program, computes):
    printed = run_alone(program, TORCH_OPENREG_COMPUTE=computes, TORCH_OPENREG_MEMORY="1GiB")
    assert printed.split() == ["ScaledDotProductFlashAttentionBackward0"]
