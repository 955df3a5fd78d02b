"""``openreg-cuda PROGRAM ...``: runs a program with a CUDA device that computes on the CPU.

PROGRAM is a Python file, or ``-m`` and a module, or another command, such as ``torchrun``, whose Python processes all
have the device. ``OPENREG_CUDA`` selects a profile and a number of devices: ``OPENREG_CUDA=a100:2``.
"""

from __future__ import annotations

import os
import shutil
import sys

from ._options import VARIABLE, parse


def main() -> None:
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.exit(__doc__ if arguments else f"openreg-cuda: no program was given\n\n{__doc__}")
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


if __name__ == "__main__":
    main()
