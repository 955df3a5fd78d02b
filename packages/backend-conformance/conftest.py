"""Options of pytest: tests are in `tests`. Those in `src` belong to the kit and to the projects it writes."""

import importlib.util

collect_ignore = ["src"]
if importlib.util.find_spec("backend_conformance") is None:  # not installed
    collect_ignore.append("tests")
