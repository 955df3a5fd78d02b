"""PyTorch on acme devices: ``import torch`` is enough, then ``torch.ones(2, device="acme")``.

``import torch`` calls ``_autoload`` at its end. A program that imports this package first imports torch through it, and
PyTorch then finds this module unfinished: so ``_autoload`` comes before everything that imports torch.
"""

from __future__ import annotations


def _autoload() -> None:
    """Loads the backend, once. PyTorch finds it by the entry point in pyproject.toml."""
    from ._load import load

    load()


_autoload()
