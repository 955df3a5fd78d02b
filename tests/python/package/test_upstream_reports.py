"""The programs in reports for PyTorch still show the error. Where one does not, the report can go."""

from __future__ import annotations

import signal
import subprocess
import sys

from documents import DOCUMENTS, page_of


def test_empty_host_cache_crashes_without_a_host_allocator():
    blocks = page_of(DOCUMENTS / "upstream/pytorch-empty-host-cache.md").blocks
    (block,) = [each for each in blocks if each.language == "python"]
    result = subprocess.run([sys.executable, "-c", block.code], capture_output=True, text=True, timeout=120)
    assert result.returncode == -signal.SIGSEGV, result.stdout + result.stderr
