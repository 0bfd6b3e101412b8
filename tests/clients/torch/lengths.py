"""Sequences of changing length: their caches are taken, and some of them are given back, until one finds no piece that is large enough
although enough is unused in all. What is unused is counted by PyTorch when the error has come.
"""

import torch

from common import MIB, say

CARD = 600 * MIB


def main():
    # One segment for all of them, as a program has it whose first batch is its longest.
    torch.empty(CARD, dtype=torch.uint8, device="cuda")
    lengths = [13, 29, 17, 41, 23, 37, 19, 31]
    caches = []
    while sum(cache.numel() for cache in caches) + 45 * MIB < CARD:
        caches.append(torch.empty(lengths[len(caches) % len(lengths)] * MIB, dtype=torch.uint8, device="cuda"))
    del caches[::2]
    try:
        torch.empty(180 * MIB, dtype=torch.uint8, device="cuda")
        say("error", "none")
    except torch.OutOfMemoryError:
        say("unused at the error", torch.cuda.memory_reserved() - torch.cuda.memory_allocated())


if __name__ == "__main__":
    main()
