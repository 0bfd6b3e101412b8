"""Trains a small network with AdamW, with batches of changing size between layers of changing width, so that the
caching allocator splits, keeps and, where memory is short, gives back and asks again.

    train.py [STEPS]

Works with every allocator that PYTORCH_ALLOC_CONF names. Ends with everything given back.
"""

import gc
import sys

import torch
from torch import nn

from common import MIB, say, say_statistics


def network(width):
    return nn.Sequential(nn.Linear(512, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 10))


def train(width, steps):
    model = network(width).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        batch = torch.randn(256 * (1 + step % 3), 512, device="cuda")
        labels = torch.zeros(batch.shape[0], dtype=torch.long, device="cuda")
        loss = nn.functional.cross_entropy(model(batch), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    say(f"parameters of width {width}", sum(parameter.numel() for parameter in model.parameters()))


def main(steps):
    say("backend", torch.cuda.get_allocator_backend())
    for width in (256, 1024, 512):
        train(width, steps)
    # Blocks of growing size: none fits into what an earlier one left behind.
    for size in range(8, 40, 8):
        block = torch.empty(size * MIB, dtype=torch.uint8, device="cuda")
        block.zero_()
        del block
    say_statistics()
    gc.collect()
    torch.cuda.empty_cache()
    say_statistics()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6)
