"""pytest's options for this folder: tests are in `tests`. Those in `src` belong to the kit and to the projects it writes."""

collect_ignore = ["src"]
