"""A training that runs out of memory where its own sizes lead, and says in which phase.

    cases.py train|healthy|longest|evaluation|validation|predictions|together

What it has reserved behind each phase it prints, so that a card can be chosen on which the next one does not fit.
"""

import os
import sys

import torch
from torch import nn

from common import OutOfMemoryError, say

WIDTH, LAYERS = 2048, 6
phase = None


def now(name):
    global phase
    phase = name


def reserved(behind):
    say(f"reserved behind {behind}", torch.cuda.memory_reserved())


def network():
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH, bias=False), nn.ReLU())]
    return nn.Sequential(*layers).cuda()


def batch(rows):
    return torch.ones(rows, WIDTH, device="cuda")


def step(model, optimizer, rows):
    optimizer.zero_grad()
    now("forward")
    loss = model(batch(rows)).sum()
    reserved("forward")
    now("backward")
    loss.backward()
    reserved("backward")
    now("optimizer")
    optimizer.step()
    reserved("optimizer")


@torch.no_grad()
def evaluate(model, rows, batches, keep):
    now("evaluation")
    kept = []
    for _ in range(batches):
        predictions = model(batch(rows))
        if keep:
            kept.append(predictions)
    reserved("evaluation")


def validate(model, rows):
    """What takes no gradients here has no frame."""
    now("evaluation")
    with torch.no_grad():
        model(batch(rows))


@torch.no_grad()
def predict(model, rows, batches):
    """The results fit, and once more they do not."""
    now("evaluation")
    kept = [model(batch(rows)) for _ in range(batches)]
    reserved("results")
    return torch.cat(kept)


def train(rows, steps):
    now("loading")
    model = network()
    reserved("loading")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number in range(steps):
        step(model, optimizer, rows(number))
    return model


def same(_number):
    return 1024


def longest(number):
    return 4096 if number == 25 else 256


CASES = {
    "train": lambda: train(same, 3),
    "healthy": lambda: evaluate(train(longest, 30), 256, 10, False),
    "longest": lambda: train(longest, 30),
    "evaluation": lambda: evaluate(train(same, 4), 32768, 2, False),
    "validation": lambda: validate(train(same, 4), 32768),
    "together": lambda: predict(train(same, 4), 512, 60),
    "predictions": lambda: evaluate(train(same, 4), 512, 400, True),
}

if __name__ == "__main__":
    try:
        CASES[sys.argv[1]]()
    except OutOfMemoryError:
        say("out of memory in", phase)
    # When Python goes, PyTorch's own threads may end the program by `terminate`.
    sys.stdout.flush()
    os._exit(0)
