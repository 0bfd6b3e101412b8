"""Trains for some steps that keep nothing, and then keeps something from batch to batch until the card is full.

    piles.py graphs | predictions | hook | thread | loss | garbage | image

`graphs`: an evaluation without `no_grad`, whose outputs keep their graphs. `predictions`: one with it, whose outputs stay. `hook`: a hook
of a parameter's keeps each gradient. `thread`: no training, and a thread of the program's own that is called as PyTorch's are. `loss`: the
training's own loss is computed by a function that is called `evaluate`, for more and more batches before one backward pass. `garbage`:
no training, and objects that refer to each other while the collector is off. `image`: no training, and one input without gradients whose
result does not fit.
"""

import ctypes
import gc
import sys
import threading

import torch
from torch import nn

from common import OutOfMemoryError, say

WIDTH = 512
STEPS = 12
kept = []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, batch):
        hidden = torch.relu(self.first(batch))
        return torch.sigmoid(self.second(hidden))


def batch():
    return torch.randn(2048, WIDTH, device="cuda")


def train(net, steps):
    for _ in range(steps):
        net(batch()).sum().backward()
        net.zero_grad()


def evaluate(net):
    while True:
        kept.append(net(batch()))


def spy(gradient):
    kept.append(gradient.clone())


def prefetch():
    ctypes.CDLL(None).prctl(15, b"pt_autograd_0", 0, 0, 0)
    try:
        while True:
            kept.append(batch())
    except OutOfMemoryError:
        say("kept", len(kept))


def train_by_sums(net):
    def evaluate():
        return net(batch()).pow(2).mean()

    for batches in (2, 4, 8, 16, 1 << 10):
        net.zero_grad()
        sum(evaluate() for _ in range(batches)).backward()


class Holder:
    def __init__(self):
        self.me, self.block = self, torch.empty(16 << 20, dtype=torch.uint8, device="cuda")


def make_garbage():
    gc.disable()
    while True:
        Holder()
        kept.append(None)


def infer(net):
    with torch.no_grad():
        net(torch.randn(170000, WIDTH, device="cuda"))


def main(scenario):
    if scenario == "thread":
        thread = threading.Thread(target=prefetch)
        thread.start()
        thread.join()
        return
    net = Net().cuda()
    alone = {"loss": lambda: train_by_sums(net), "garbage": make_garbage, "image": lambda: infer(net)}.get(scenario)
    if alone:
        try:
            alone()
        except OutOfMemoryError:
            say("kept", len(kept))
        return
    if scenario == "hook":
        net.first.weight.register_hook(spy)
    train(net, STEPS)
    try:
        if scenario == "graphs":
            evaluate(net)
        elif scenario == "predictions":
            with torch.no_grad():
                evaluate(net)
        else:
            train(net, 1 << 20)
    except OutOfMemoryError:
        say("kept", len(kept))


main(sys.argv[1])
