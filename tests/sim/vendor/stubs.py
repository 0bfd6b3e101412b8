"""Writes a C source with stubs for each of NVIDIA's libraries that programs want:

    stubs.py OUT_DIR ELF...

Reads the dynamic symbols that the ELF files leave undefined and writes, for each library that should have them,
OUT_DIR/SONAME.c, OUT_DIR/SONAME.map (the version node) and its name in OUT_DIR/libraries. A stub says that it was
called and answers the library's "not supported"; it is weak, so that a function which is really there replaces it.
A library's version is the one that the ELF files need, and where they open it by name, the one that the table has.
"""

import pathlib
import re
import subprocess
import sys

# Prefix of the names, soname, "not supported" in that library's numbers. The longest prefix counts.
LIBRARIES = [
    ("cuda", "libcudart.so.13", 801),
    ("__cuda", "libcudart.so.13", 801),
    ("cublas", "libcublas.so.13", 15),
    ("cublasLt", "libcublasLt.so.13", 15),
    ("cudnn", "libcudnn.so.9", 3000),
    ("cufft", "libcufft.so.12", 16),
    ("cupti", "libcupti.so.13", 27),
    ("cusolver", "libcusolver.so.12", 9),
    ("cusparse", "libcusparse.so.12", 10),
    ("cusparseLt", "libcusparseLt.so.0", 10),
    ("cuFile", "libcufile.so.0", 5001),
    ("nvrtc", "libnvrtc.so.13", 11),
    ("nccl", "libnccl.so.2", 2),
    ("nvshmem", "libnvshmem_host.so.3", 7),
    ("curand", "libcurand.so.10", 200),
    ("nvtx", "libnvToolsExt.so.1", 0),
]

# These answer a text and not a status.
TEXTS = re.compile(r"(cublas|cuda|cudnn|nccl|nvrtc|cusparse)Get(ErrorString|ErrorName|StatusString|StatusName|LastError)$")

# The simulated driver is a library of its own. A name that it lacks is an error when something calls it.
DRIVER = re.compile(r"cu[A-Z](?!ile)")


def undefined_symbols(path):
    """(name, version node or None) of each symbol that must come from elsewhere."""
    listing = subprocess.run(["readelf", "-W", "--dyn-syms", path], check=True, capture_output=True, text=True).stdout
    for line in listing.splitlines():
        fields = line.split()
        if len(fields) > 7 and fields[6] == "UND":
            name, _, node = fields[7].partition("@")
            yield name, node or None


def needed(paths):
    """Stem -> soname of each library that the ELF files need."""
    listing = subprocess.run(["readelf", "-W", "-d", *paths], check=True, capture_output=True, text=True).stdout
    return {soname.partition(".so")[0]: soname for soname in re.findall(r"\(NEEDED\).*\[(.*)\]", listing)}


def library_of(name):
    """The row of the library that a name belongs to."""
    fitting = [row for row in LIBRARIES if name.startswith(row[0])]
    return max(fitting, key=lambda row: len(row[0])) if fitting and not DRIVER.match(name) else None


def wanted(paths):
    """soname of the table -> {name: node}"""
    libraries = {soname: {} for _, soname, _ in LIBRARIES if soname.partition(".so")[0] in needed(paths)}
    for path in paths:
        for name, node in undefined_symbols(path):
            row = library_of(name)
            if row:
                libraries.setdefault(row[1], {})[name] = node
    return libraries


def source(soname, names, status):
    lines = ["// Made by tests/sim/vendor/stubs.py.", '#include "stub.h"', ""]
    if soname.startswith("libcudart."):
        lines.append(f"int sim_cudart_major = {int(soname.split('.')[2])};")
    for name in sorted(names):
        lines.append(f"TEXT_STUB({name})" if TEXTS.match(name) else f"STUB({name}, {status})")
    return "\n".join(lines) + "\n"


def version_script(soname, nodes):
    """Exports what begins like the library's names, under the node that they are asked for with."""
    prefixes = [prefix for prefix, of, _ in LIBRARIES if of == soname]
    node = next(iter(nodes - {None}), "")
    return f"{node} {{\nglobal:\n" + "".join(f"    {prefix}*;\n" for prefix in prefixes) + "local:\n    *;\n};\n"


def main(out_dir, *paths):
    out_dir = pathlib.Path(out_dir)
    versions, statuses = needed(paths), {soname: status for _, soname, status in LIBRARIES}
    made = []
    for listed, names in wanted(paths).items():
        soname = versions.get(listed.partition(".so")[0], listed)
        (out_dir / f"{soname}.c").write_text(source(soname, names, statuses[listed]))
        (out_dir / f"{soname}.map").write_text(version_script(listed, set(names.values())))
        made.append(soname)
    (out_dir / "libraries").write_text("".join(f"{soname}\n" for soname in sorted(made)))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} OUT_DIR ELF...")
    main(*sys.argv[1:])
