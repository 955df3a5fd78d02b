"""Tests are in `tests`. The files named so in `src` belong to the kit, and to the projects that it writes."""

collect_ignore = ["src"]
