"""Two lines of this program hold what an installed package asks for, and a third holds what it asks for itself. Prints each line with
the bytes that PyTorch's allocator gave there, then runs out of memory."""

import os
import sys
import tempfile

import torch

PACKAGE = """
import torch


class Model:
    def weights(self, mib):
        return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")


def load(mib):
    return Model().weights(mib)
"""


def told(name, since):
    line = sys._getframe(1).f_lineno - 1
    print(f"{name} packages.py:{line} {torch.cuda.memory_allocated() - since}", flush=True)
    return torch.cuda.memory_allocated()


def main(zoo):
    held = []
    held.append(zoo.load(64))
    since = told("package", 0)
    held.append(zoo.load(32))
    since = told("package", since)
    held.append(torch.empty(16 << 20, dtype=torch.uint8, device="cuda"))
    told("own", since)
    try:
        zoo.load(1 << 20)
    except torch.OutOfMemoryError:
        print("out of memory", flush=True)
    return len(held)


with tempfile.TemporaryDirectory() as folder:
    packages = os.path.join(folder, "lib", "python3.11", "site-packages")
    os.makedirs(os.path.join(packages, "zoo"))
    with open(os.path.join(packages, "zoo", "__init__.py"), "w") as file:
        file.write(PACKAGE)
    sys.path.insert(0, packages)
    import zoo

    main(zoo)
