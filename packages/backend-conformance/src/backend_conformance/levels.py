"""What a backend can be used for. Each level includes those before it."""

from __future__ import annotations

import enum


class Level(enum.IntEnum):
    BOOTS = 1  # tensors exist, and go to the device and back
    TRAINS = 2  # a model trains, and its state is saved and restored
    ASYNCHRONOUS = 3  # work runs behind the host, in streams that events order
    COMPLETE = 4  # everything that PyTorch offers an accelerator

    @property
    def label(self) -> str:
        return self.name.lower()

    @classmethod
    def parse(cls, label: str) -> Level:
        try:
            return cls[label.upper()]
        except KeyError:
            raise ValueError(f"unknown level {label!r} (expected {', '.join(each.label for each in cls)})") from None
