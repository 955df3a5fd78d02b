"""The command line: run (the default), list, explain."""

from __future__ import annotations

import sys

from . import commands


def main() -> int:
    return commands.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
