"""The programs in reports for PyTorch show the error. Where none of the supported versions does, the report can go."""

from __future__ import annotations

import signal
import subprocess
import sys

import torch
from documents import DOCUMENTS, page_of


def test_empty_host_cache_crashes_without_a_host_allocator_before_version_2_15():
    blocks = page_of(DOCUMENTS / "upstream/pytorch-empty-host-cache.md").blocks
    (block,) = [each for each in blocks if each.language == "python"]
    result = subprocess.run([sys.executable, "-c", block.code], capture_output=True, text=True, timeout=120)
    is_mended = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)
    expected = (0, "nothing to free\n") if is_mended else (-signal.SIGSEGV, "")
    assert (result.returncode, result.stdout) == expected, result.stderr
