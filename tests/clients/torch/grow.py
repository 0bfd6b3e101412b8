"""A block that is replaced by a longer one, as torch.cat does:

    grow.py STEP_MIB STEPS

Says how many steps fitted, what PyTorch could have when the next did not, and the allocator's statistics.
"""

import sys

import torch

from common import MIB, OutOfMemoryError, say, say_statistics


def grow(step_mib, steps):
    block = torch.empty(step_mib * MIB, dtype=torch.uint8, device="cuda")
    for step in range(steps):
        try:
            new = torch.empty(step_mib * MIB, dtype=torch.uint8, device="cuda")
            longer = torch.empty(block.numel() + new.numel(), dtype=torch.uint8, device="cuda")
        except OutOfMemoryError:
            return step
        block = longer
        del longer
    return steps


if __name__ == "__main__":
    say("steps", grow(int(sys.argv[1]), int(sys.argv[2])))
    free, _ = torch.cuda.mem_get_info()
    say("usable", torch.cuda.memory_reserved() + free)
    say_statistics()
