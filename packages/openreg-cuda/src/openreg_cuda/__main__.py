"""``openreg-cuda PROGRAM ...``: runs a program with a CUDA device that computes on the CPU.

PROGRAM is a Python file, or ``-m`` and a module, or another command, such as ``torchrun``, whose Python processes all
have the device. ``OPENREG_CUDA`` selects a profile and a number of devices: ``OPENREG_CUDA=a100:2``.

``openreg-cuda fits PROGRAM ...`` says on which GPUs the program fits; ``openreg-cuda fits --help`` has its options.
"""

from __future__ import annotations

import os
import shutil
import sys

from ._options import NAMES, VARIABLE, parse
from .device.fits import command as fits, run


def main() -> None:
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.exit(__doc__ if arguments else f"openreg-cuda: no program was given\n\n{__doc__}")
    if arguments[0] == "fits":
        sys.exit(fits.main(arguments[1:], "openreg-cuda fits", _settings, NAMES))
    if os.environ.get(VARIABLE, "0") in ("", "0"):
        os.environ[VARIABLE] = "1"
    try:
        parse(os.environ[VARIABLE])
    except ValueError as error:
        sys.exit(str(error))
    python = arguments[0].startswith("-") or arguments[0].endswith(".py")
    command = [sys.executable, *arguments] if python else arguments
    if shutil.which(command[0]) is None:
        sys.exit(f"openreg-cuda: command not found: {command[0]}")
    os.execvp(command[0], command)


def _settings(profile: str, devices: int | None) -> dict[str, str]:
    """The environment of a program that is measured: the GPU's name and properties, and its memory on any machine."""
    request = profile if devices is None else f"{profile}:{devices}"
    return {**run.device_settings(profile, None), VARIABLE: request}


if __name__ == "__main__":
    main()
