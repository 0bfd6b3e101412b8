"""Trains for some steps that keep nothing, and then keeps something from batch to batch until the card is full.

    piles.py graphs | predictions | hook | thread | loss | garbage | image | larger |
             rounds

`graphs`: an evaluation without `no_grad`, whose outputs keep their graphs. `predictions`: one with it, whose outputs stay. `hook`: a hook
of a parameter's keeps each gradient. `thread`: no training, and a thread of the program's own that is called as PyTorch's are. `loss`: the
training's own loss is computed by a function that is called `evaluate`, for more and more batches before one backward pass. `garbage`:
no training, and objects that refer to each other while the collector is off. `image`: no training, and one input without gradients whose
result does not fit. `larger`: equal steps, an evaluation without gradients, and one much larger batch by another line. `rounds`: what each
epoch keeps is dropped at its end, and the last epoch is longer.
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


def deep():
    return nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]).cuda()


def train_larger():
    net = deep()
    train(net, 30)
    with torch.no_grad():
        net(batch())
    net(torch.randn(60000, WIDTH, device="cuda")).sum().backward()


def train_in_rounds(net):
    for steps in (60, 60, 60, 60, 1 << 20):
        outputs = []
        for _ in range(steps):
            output = net(batch())
            output.sum().backward()
            net.zero_grad()
            outputs.append(output.detach()[:512].clone())


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
    alone = {"loss": lambda: train_by_sums(net), "garbage": make_garbage, "image": lambda: infer(net), "larger": train_larger}
    alone["rounds"] = lambda: train_in_rounds(net)
    alone = alone.get(scenario)
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
