"""Prints what models, settings and program are, in a few lines that can be compared: made_of.py NAME=PATH|NAME=@TEXT...

The files of a folder by name and size, small ones and settings by their sha256 as well.
"""

import hashlib
import pathlib
import sys

SMALL = 4 << 20


def line(path: pathlib.Path) -> str:
    size = path.stat().st_size
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if size <= SMALL else "-"
    return f"  {path.name} {size} {digest}"


for argument in sys.argv[1:]:
    name, path = argument.split("=", 1)
    if path.startswith("@"):
        print(name, path[1:])
        continue
    path = pathlib.Path(path)
    print(f"{name} {path}")
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    print("\n".join(map(line, files)))
