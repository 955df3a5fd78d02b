"""Race detection: unsynchronized accesses to the same memory."""

from __future__ import annotations

from .. import _C

__all__ = ["UnsynchronizedAccessError", "get_race_detection_mode", "set_race_detection_mode"]

UnsynchronizedAccessError: type[RuntimeError] = vars(_C)["UnsynchronizedAccessError"]
"""Two accesses to the same memory, at least one of them a write, are unsynchronized. A RuntimeError.

Raised by the call that makes the second access, before it is submitted, if the mode is ``"error"``. The message has
the operator, the argument, the stream and the line of both accesses, an element in common, and what would order them.
"""

_MODES = ("off", "warn", "error")


def set_race_detection_mode(mode: str) -> None:
    """Sets what happens on an unsynchronized access: two accesses to the same memory, at least one of them a write.

    The accesses of commands, collectives, graphs and of the host are compared, byte by byte. They are ordered by their
    stream, by events and waits, and by what a host has waited for. Whether they would in fact have overlapped does not
    matter, so each run of a program gives the same reports. The mode applies to the process;
    `TORCH_OPENREG_DETECT_RACES` sets it at the start. The call waits for all devices.

    Args:
        mode: ``"off"`` (also ``"default"``): nothing happens, and nothing is compared. ``"warn"``: a warning, once for
            each pair of lines. ``"error"``: `UnsynchronizedAccessError`, raised by the call that makes the second
            access, before it is submitted.

    Raises:
        RuntimeError: `mode` is none of these.
    """
    mode = "off" if mode == "default" else mode
    if mode not in _MODES:
        expected = ", ".join(f"`{each}`" for each in _MODES)
        raise RuntimeError(f"openreg: invalid race detection mode (got {mode!r}, expected one of {expected})")
    _C.set_race_detection_mode(_MODES.index(mode))


def get_race_detection_mode() -> str:
    """The mode set by `set_race_detection_mode`: ``"off"``, ``"warn"`` or ``"error"``."""
    return _MODES[_C.get_race_detection_mode()]
