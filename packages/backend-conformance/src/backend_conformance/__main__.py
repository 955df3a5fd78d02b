"""python -m backend_conformance [run | list | explain | compare | matrix | pages | new] ..."""

from __future__ import annotations

import sys

from . import commands


def main() -> int:
    return commands.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
