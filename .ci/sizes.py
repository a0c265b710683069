#!/usr/bin/env python3
"""A table of what images need: .ci/sizes.py IMAGE:runs|not-run ...

Flash is what is loaded into it, the first values of .data included. Static RAM is what is allotted before the program runs; the stack
and the heap have the rest.
"""
import pathlib
import struct
import sys

ALLOCATED, WRITABLE, NO_BITS = 2, 1, 8


def sizes(path):
    image = pathlib.Path(path).read_bytes()
    if image[:5] != b"\x7fELF\x01":
        sys.exit(f"{path} is no 32-bit ELF file")
    (offset,) = struct.unpack_from("<I", image, 0x20)
    size, count, names = struct.unpack_from("<HHH", image, 0x2E)
    headers = [struct.unpack_from("<10I", image, offset + size * place) for place in range(count)]
    text = headers[names][4]
    flash = ram = 0
    for header in headers:
        name, kind, flags, _, _, length = header[:6]
        start = text + name
        name = image[start : image.index(b"\0", start)].decode()
        if not flags & ALLOCATED or name in (".stack", ".heap"):
            continue
        if kind != NO_BITS:
            flash += length
        if flags & WRITABLE:
            ram += length
    if flash < 10_000:
        sys.exit(f"{path}: only {flash} bytes were linked")
    return flash, ram


print("| image | | here |\n|---|---:|---|")
for image in sys.argv[1:]:
    path, runs = image.rsplit(":", 1)
    name = pathlib.Path(path).name
    said = "runs in QEMU" if runs == "runs" else "linked, not run"
    flash, ram = sizes(path)
    print(f"| flash: {name} | {flash:,} B | {said} |")
    print(f"| static RAM: {name} | {ram:,} B | {said} |")
