"""Runs the kit. A failure names the check, the function to implement, and how to run the check alone."""

import subprocess
import sys
from pathlib import Path

DECLARATIONS = Path(__file__).with_name("declarations.toml")


def test_the_backend_does_what_pytorch_expects_of_one_that_trains():
    kit = [sys.executable, "-m", "backend_conformance", "--device", "acme"]
    run = subprocess.run([*kit, "--level", "trains", "--declarations", DECLARATIONS, "-n", "2"])
    assert run.returncode == 0
