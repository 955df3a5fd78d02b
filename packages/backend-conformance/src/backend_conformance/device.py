"""The device under test, as checks see it."""

from __future__ import annotations

import importlib
import runpy
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .verdicts import missing, not_applicable, refuses, wrong

if TYPE_CHECKING:
    import torch


def set_up(setup: str) -> None:
    """Loads a backend: imports a package, or calls `file.py:function`. If empty, `import torch` has to do.

    torch comes first: an installed backend is loaded by its import, and cannot be imported by it a second time.
    """
    importlib.import_module("torch")
    if not setup:
        return
    path, colon, function = setup.rpartition(":")
    if colon:
        runpy.run_path(path)[function]()
    else:
        importlib.import_module(setup)


@dataclass(frozen=True)
class Device:
    """The device under test. Can be pickled, so that a child process can load the same backend (`load`)."""

    name: str
    setup: str = ""

    def load(self) -> None:
        """Loads the backend in a new process."""
        set_up(self.setup)

    def run(self, source: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Runs a program in a new process with the backend loaded, `torch` imported, and this object as `device`."""
        program = (
            "import gc\ngc.disable()  # while modules are imported\n"
            f"from backend_conformance import Device\ndevice = {self!r}\ndevice.load()\n"
            f"import torch\ngc.enable()\n{source}"
        )
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=timeout)

    def output(self, source: str, timeout: float = 60.0) -> str:
        """What such a program prints. If it fails, so does the check: missing after a refusal, else wrong."""
        ended = self.run(source, timeout)
        if ended.returncode == 0:
            return ended.stdout
        lines = ended.stderr.strip().splitlines()
        reason = lines[-1] if lines else "it printed no error"
        if ended.returncode < 0:
            wrong(f"a process died by signal {-ended.returncode}: {reason}")
        if refuses(reason):
            missing(reason)
        wrong(f"a process failed: {reason}")

    @property
    def module(self) -> Any:
        """`torch.<name>`, which the backend registers."""
        import torch

        found = getattr(torch, self.name, None)
        if found is None:
            missing(f"torch has no module {self.name!r}: torch._register_device_module({self.name!r}, module)")
        return found

    @property
    def count(self) -> int:
        import torch

        return torch.accelerator.device_count()

    def at(self, index: int) -> torch.device:
        import torch

        return torch.device(self.name, index)

    @property
    def this(self) -> torch.device:
        return self.at(0)

    @property
    def other(self) -> torch.device:
        """A second device; without one, the check is not applicable."""
        if self.count < 2:
            not_applicable("there is only one device")
        return self.at(1)

    @property
    def key(self) -> str:
        """The dispatch key of the device's dense kernels, such as "PrivateUse1"."""
        import torch

        return str(torch._C._dispatch_key_for_device(self.name))

    def synchronize(self) -> None:
        """Waits for all work of the current device."""
        import torch

        torch.accelerator.synchronize()

    def enough_work(self, stream: torch.Stream | None = None) -> bool:
        """Submits work to a stream (the current one if None) that takes longer than its submission.

        Returns whether the work was seen unfinished after the call, so that what is submitted next has something
        to wait for. If not, the device completes work before calls return, or the stream's query is wrong.
        """
        from . import work

        return work.submit(self, stream)

    def cpu_equal(self, actual: torch.Tensor, expected: Any, **tolerance: Any) -> None:
        """Compares a tensor of the device with values; NaNs are equal. Keywords are those of assert_close."""
        import torch

        if actual.device.type != self.name:
            wrong(f"the result is on {actual.device}, not on {self.name}")
        values = actual.detach().cpu()
        if not isinstance(expected, torch.Tensor):
            expected = torch.as_tensor(expected, dtype=values.dtype)
        torch.testing.assert_close(values, expected.detach(), equal_nan=True, **tolerance)
