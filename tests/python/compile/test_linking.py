"""Where PyTorch cannot link C++, tests that need it are skipped: tests/python/linking.py."""

from __future__ import annotations

import linking
import pytest
import torch
from torch._inductor.cpp_builder import CppBuilder
from torch._inductor.utils import fresh_cache


@pytest.mark.parametrize(
    ("path", "taken_apart"),
    [
        ("/home/user/torch_openreg/.venv/lib/python3.11/site-packages/torch", False),
        ("/home/Jörg/torch-2.13+cpu_1/@x,y:z=w/torch", False),
        ("/home/user/my clone/torch", True),
        ("/home/user/torch_openreg(1)/torch", True),
        ("/home/user's/torch", True),
    ],
)
def test_paths_that_pytorch_does_not_quote(path, taken_apart):
    assert linking.is_taken_apart(path) == taken_apart


def test_a_test_in_which_inductor_compiles_is_skipped(monkeypatch):
    monkeypatch.setattr(CppBuilder, "build", CppBuilder.build)  # restored afterwards
    linking.skip_what_inductor_compiles()
    with fresh_cache(), pytest.raises(pytest.skip.Exception, match="PyTorch, on the CPU too, cannot link C"):
        torch.compile(lambda x: x.sin() + 1)(torch.ones(3, device="openreg"))
