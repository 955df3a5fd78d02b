"""Options that several commands have."""

from __future__ import annotations

import argparse
from pathlib import Path

from .. import groups
from ..levels import Level


def level(text: str) -> Level:
    """The type of an option for a level: argparse shows the messages of its own error only."""
    try:
        return Level.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def folder(text: str) -> Path:
    """The type of an option for a folder of checks."""
    path = Path(text).resolve()
    if not groups.names(path):
        raise argparse.ArgumentTypeError(f"{text} has no groups of checks")
    return path
