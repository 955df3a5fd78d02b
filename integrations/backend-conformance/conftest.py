"""pytest's options for this folder: tests are in `tests`; those in `src` are the kit's and its projects'."""

collect_ignore = ["src"]
