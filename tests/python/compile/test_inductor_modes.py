"""The ways to compile that PyTorch documents, with Inductor on the device; and what is refused, in which words."""

from __future__ import annotations

import copy
import os
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from torch_openreg._pytorch.compile.inductor import compiling

DEVICE = "openreg"


def rows() -> torch.Tensor:
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(0)).to(DEVICE)


def fused(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * 2 + x).softmax(-1)


def test_reduce_overhead_warns_once_that_it_is_the_default_mode():
    compiling._refuse_graphs.cache_clear()
    x = rows()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for function in (fused, torch.cos):
            run = torch.compile(function, mode="reduce-overhead")
            for _ in range(3):
                assert_close(run(x).cpu(), function(x.cpu()))
    about_graphs = [str(each.message) for each in caught if "openreg:" in str(each.message)]
    assert len(about_graphs) == 1 and "mode='reduce-overhead' compiles as the default mode does" in about_graphs[0]


@pytest.mark.parametrize("mode", ["max-autotune", "max-autotune-no-cudagraphs"])
def test_max_autotune(mode):
    x, w = rows(), torch.randn(16, 4)
    run = torch.compile(lambda x, w: fused(x) @ w + 1, mode=mode)
    assert_close(run(x, w.to(DEVICE)).cpu(), fused(x.cpu()) @ w + 1)


def test_frozen_networks():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5)).eval()
    images = torch.randn(2, 3, 8, 8)
    with torch._inductor.config.patch(freezing=True), torch.no_grad():
        frozen = torch.compile(copy.deepcopy(network).to(DEVICE))
        assert_close(frozen(images.to(DEVICE)).cpu(), network(images), rtol=1e-4, atol=1e-4)


def test_a_region_that_repeats_is_compiled_once():
    @torch.compiler.nested_compile_region
    def region(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    run = torch.compile(lambda x: region(region(x)), fullgraph=True)
    x = rows()
    assert_close(run(x).cpu(), (x.cpu().sin() + 1).sin() + 1)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.linear(x)) + x


def test_layers_that_are_compiled_one_by_one():
    torch.manual_seed(0)
    network = nn.Sequential(Layer(), Layer(), Layer())
    expected = network(rows().cpu())
    network.to(DEVICE)
    for layer in network:
        layer.compile(fullgraph=True)
    assert_close(network(rows()).cpu(), expected)
    torch.openreg.reset_launch_stats()
    network(rows())
    assert torch.openreg.launch_stats()["compiled"] == 3


def test_stances():
    run = torch.compile(fused, fullgraph=True)
    x = rows()
    torch.openreg.reset_launch_stats()
    with torch.compiler.set_stance("force_eager"):
        run(x)
    assert torch.openreg.launch_stats()["compiled"] == 0
    run(x)
    assert torch.openreg.launch_stats()["compiled"] == 1
    with torch.compiler.set_stance("fail_on_recompile"), pytest.raises(RuntimeError, match="recompile"):
        run(x.double())


def test_a_compiled_optimizer_steps_as_an_eager_one():
    parameters = [torch.linspace(0, 1, 10 + i) for i in range(3)]

    def after_steps(device: str, compiled: bool) -> list[torch.Tensor]:
        mine = [p.to(device).requires_grad_() for p in parameters]
        optimizer = torch.optim.AdamW(mine, lr=0.1)
        step = torch.compile(optimizer.step, fullgraph=False) if compiled else optimizer.step
        for _ in range(3):
            for p in mine:
                p.grad = p.detach().cos()
            step()
        return [p.detach().cpu() for p in mine]

    assert_close(after_steps(DEVICE, True), after_steps("cpu", False))


def test_compiled_autograd():
    torch.manual_seed(0)
    network = nn.Linear(16, 4).to(DEVICE)
    network(rows()).square().mean().backward()
    expected = network.weight.grad.clone()
    network.zero_grad()
    loss = network(rows()).square().mean()
    with torch._dynamo.compiled_autograd._enable(torch.compile(fullgraph=True)):
        loss.backward()
    assert_close(network.weight.grad.cpu(), expected.cpu())


def test_programs_of_torch_export():
    class Fused(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return fused(x)

    program = torch.export.export(Fused(), (rows(),))
    assert_close(torch.compile(program.module())(rows()).cpu(), fused(rows().cpu()))


@pytest.mark.parametrize("way", ["cpp_wrapper", "aot_compile"])
def test_programs_in_cpp_are_refused(way, tmp_path):
    sentence = r"openreg: Inductor cannot write C\+\+ programs \(cpp_wrapper, AOTInductor\) for this device"
    with pytest.raises(RuntimeError, match=sentence):
        if way == "cpp_wrapper":
            with torch._inductor.config.patch(cpp_wrapper=True):
                torch.compile(fused)(rows())
        else:
            program = torch.export.export(nn.Sigmoid(), (rows(),))
            torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    assert_close(torch.compile(fused)(rows()).cpu(), fused(rows().cpu()))


def test_a_missing_compiler_is_reported_with_the_way_out(tmp_path, run_python):
    result = run_python(
        "import torch\n"
        "x = torch.ones(3, device='openreg')\n"
        "try: torch.compile(lambda x: x.sin() + 1)(x)\n"
        "except Exception as error: print(error)\n"
        "print(torch.compile(lambda x: x * 2 + 1, backend='aot_eager')(x).tolist())\n",
        CXX="/nowhere/g++",
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path),
    )
    assert "C++ compiler" in result.stdout or "/nowhere/g++" in result.stdout
    assert 'openreg: Inductor could not compile this graph; torch.compile(..., backend="aot_eager")' in result.stdout
    assert "[3.0, 3.0, 3.0]" in result.stdout


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to folders that are read-only")
def test_a_cache_folder_that_is_read_only_is_reported_with_the_way_out(tmp_path, run_python):
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o500)
    result = run_python(
        "import torch\n"
        "try: torch.compile(lambda x: x.sin() + 1)(torch.ones(3, device='openreg'))\n"
        "except Exception as error: print(error)\n",
        TORCHINDUCTOR_CACHE_DIR=str(cache),
    )
    assert "Permission denied" in result.stdout and 'backend="aot_eager"' in result.stdout


def test_combined_kernels_are_for_gpus_as_on_the_cpu():
    x = torch.randn(8, 8, device=DEVICE)
    run = torch.compile(lambda x: (x + 1, x.t() * 2, x[:3].sum(1)), options={"combo_kernels": True})
    for got, expected in zip(run(x), (x + 1, x.t() * 2, x[:3].sum(1)), strict=True):
        assert_close(got, expected)
