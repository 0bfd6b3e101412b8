"""Tensors of many sizes that come and go in expandable segments, until a large one finds no room in whole pages. Prints what is free behind
the failure, when PyTorch has given back what it had taken for that request."""
import random

import torch

random.seed(3)
MIB = 1 << 20
kept = []
try:
    for step in range(3000):
        kept.append(torch.empty(random.randint(2, 60) * MIB + random.randint(0, MIB), dtype=torch.uint8, device="cuda"))
        while sum(tensor.numel() for tensor in kept) > 600 * MIB:
            kept.pop(random.randrange(len(kept)))
        if step % 50 == 49:
            torch.empty(300 * MIB, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    print(error)
    print(f"free: {torch.cuda.mem_get_info()[0]}")
