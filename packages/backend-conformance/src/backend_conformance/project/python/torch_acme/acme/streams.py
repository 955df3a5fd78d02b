"""Streams and events. PyTorch's own classes serve every device that has a guard."""

from __future__ import annotations

from typing import Any

import torch
from torch import Event as Event, Stream as Stream

from .device import index_of


def current_stream(device: Any = None) -> torch.Stream:
    return torch.accelerator.current_stream(index_of(device))


def set_stream(stream: torch.Stream) -> None:
    torch.accelerator.set_stream(stream)


def stream(stream: torch.Stream | None) -> Any:
    """A context in which the stream is current. A stream is such a context; None changes nothing."""
    from contextlib import nullcontext

    return nullcontext() if stream is None else stream
