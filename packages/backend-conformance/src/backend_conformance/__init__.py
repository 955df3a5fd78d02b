"""Checks what PyTorch expects of an accelerator's backend. Importing this package does not import torch."""

from .device import Device
from .levels import Level
from .registry import check
from .verdicts import missing, not_applicable, vacuous, wrong

__version__ = "0.1.0"

__all__ = ["Device", "Level", "check", "missing", "not_applicable", "vacuous", "wrong"]
