"""Small steps with many blocks, in which an allocator's events weigh most:

    toy.py STEPS [history FILE]

Some 550 blocks a step, which takes about 3 ms where kernels do nothing. With `history` PyTorch's own record of its blocks is on, and is
written at the end.
"""

import sys

import torch
from torch import nn

from common import say


def network():
    layers = [layer for _ in range(36) for layer in (nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32))]
    return nn.Sequential(*layers).cuda()


def main(steps, *history):
    if history:
        torch.cuda.memory._record_memory_history(max_entries=sys.maxsize)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    given = None
    for step in range(steps):
        loss = model(torch.randn(16, 32, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 0:
            given = torch.cuda.memory_stats()["allocation.all.allocated"]
    torch.cuda.synchronize()
    all_given = torch.cuda.memory_stats()["allocation.all.allocated"]
    say("blocks a step", (all_given - given) // max(steps - 1, 1))
    if history:
        torch.cuda.memory._dump_snapshot(history[1])


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
