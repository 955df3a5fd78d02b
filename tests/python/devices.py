"""The device that tests use.

`TEST_DEVICE=cuda pytest --openreg-cuda tests/python` runs the tests with the mark `any_device` on another device. In a
file that has the mark as a whole, `openreg_only` excepts a test.
"""

import os

OPENREG = "openreg"
DEVICE = os.environ.get("TEST_DEVICE", OPENREG)
