"""Programs run without computing, to find out how much memory they need."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .. import _C

__all__ = ["assume", "compute_report", "get_compute_mode", "set_compute_mode"]


def set_compute_mode(computes: bool) -> None:
    """Sets whether the devices of this process compute; ``TORCH_OPENREG_COMPUTE`` sets what they do otherwise.

    Without computing a program runs as always, with the same launches, streams, events, allocations and errors, but
    kernels run on small tensors only, and the memory of the devices is reserved and not used. So it takes as long as
    its launches, and `max_memory_allocated` is what the program needs, also if this machine has less memory.

    Raises:
        RuntimeError: device memory has been used already, or another setting excludes the mode
            (``TORCH_OPENREG_EXECUTOR=process``, ``TORCH_OPENREG_DEBUG_MEMORY=1``, faults of the kind ``corrupt``).
    """
    if not isinstance(computes, bool):
        raise TypeError(f"openreg: computes must be a bool (got {computes!r})")
    _C.set_compute_mode(computes)


def get_compute_mode() -> bool:
    """Whether the devices compute."""
    return _C.computes()


@contextlib.contextmanager
def assume(*, nonzero: float | None = None, routing: str | None = None) -> Iterator[None]:
    """Context manager, without computing: what to assume of values that are not computed. It is for all threads.

    Where nothing is assumed, shapes that depend on such values are an error. In a nested scope, an argument that is
    None leaves what the outer scope assumes. If the devices compute, nothing is assumed.

    Args:
        nonzero: the part of the elements, from 0 to 1, that `torch.nonzero`, `torch.masked_select` and boolean masks
            select.
        routing: ``"balanced"``: `torch.topk`, `torch.argmax`, `torch.argmin` and `torch.multinomial` choose each index
            equally often, as a balanced router of a mixture of experts does. Small tensors that are computed of these
            indices, such as the number of tokens of each expert, are computed.

    Raises:
        ValueError: `nonzero` is not from 0 to 1, or `routing` is another text.

    Example::

        with torch.openreg.assume(routing="balanced"):
            loss = mixture_of_experts(tokens).mean()
    """
    if nonzero is not None and not 0 <= nonzero <= 1:
        raise ValueError(f"openreg: nonzero must be a part of the elements (got {nonzero!r}, expected 0 to 1)")
    if routing not in (None, "balanced"):
        raise ValueError(f"openreg: unknown routing (got {routing!r}, expected 'balanced')")
    scope = _Scope(nonzero, routing is not None)
    _replace(lambda scopes: [*scopes, scope])
    try:
        yield
    finally:
        _replace(lambda scopes: [each for each in scopes if each is not scope])


class _Scope(NamedTuple):
    nonzero: float | None
    balanced_routing: bool


_scopes: list[_Scope] = []  # of all threads: they may be left in another order than the reverse
_lock = threading.Lock()


def _replace(change: Callable[[list[_Scope]], list[_Scope]]) -> None:
    with _lock:
        _scopes[:] = change(_scopes)
        given = [each.nonzero for each in _scopes if each.nonzero is not None]
        _C.assume(given[-1] if given else None, any(each.balanced_routing for each in _scopes))


def compute_report() -> dict[str, Any]:
    """What happened so far without computing.

    ``computed`` and ``skipped`` count the commands that ran and that did not. ``unknown_reads`` lists what the host
    read of values that were not computed, for which it got zeros: the ``line`` of the program, the ``op`` that read,
    and the ``count``.
    """
    return _C.compute_report()
