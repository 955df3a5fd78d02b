"""Which tests of PyTorch's suite may fail on openreg: by file, regular expressions of `Class::test`, with the reason.

The lists are exact. What no longer fails has to leave them.
"""

from __future__ import annotations

EXPECTED: dict[str, dict[str, str]] = {}
