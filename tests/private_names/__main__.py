"""The private names of PyTorch that the packages use, and what each of them is in a version of torch.

`private_names.json` is the table: for each name, the files that use it, and for each minor version of torch its kind:
the type of a value, or a function with its parameters. A name that a version lacks is "absent" there, so the code that
uses it has to ask first. `python tests/private_names` prints how the sources and the installed torch differ from the
table, and with `--refresh` writes that to it.

A name is private if a part of it begins with an underscore, or if it is one of a module of PyTorch that a patch gets.
Public names that a patch replaces are in the table too. The names are found by reading the sources:

- chains of attributes that begin at a module of torch: `torch._C._dispatch_keys`, also of what is imported from one;
- attributes of the module that a function gets because a list names both, as `_WHEN_IMPORTED` does;
- strings: `getattr(module, "name", None)`, and lists of names of a module (`{"torch._refs": ("native_layer_norm",)}`);
- methods that a class overrides in a base class of PyTorch;
- private attributes of other objects: those that the packages do not define themselves, by `OWNERS`.
"""

from __future__ import annotations

import argparse

from names_table import TABLE, differences, installed_version, read, refreshed, write

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--refresh", action="store_true", help="write what differs to the table")
    options = parser.parse_args()
    table = read() if TABLE.exists() else {}
    fresh = refreshed(table, installed_version())
    print(*differences(table, fresh), sep="\n")
    if options.refresh:
        write(fresh)
