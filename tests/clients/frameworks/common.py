"""What the programs of this folder share: how the card is filled at a known moment, and what the error's traceback tells of it."""

import os
import sys
import traceback

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

MIB = 1 << 20
STEP = 2 * MIB
WIDTH = 2048
ROWS = 2048
ballast = []


def fill(leave=4 * MIB):
    """Takes what is free of the card and of PyTorch's cache but for so much, without an error on the way."""
    torch.cuda.init()
    torch.cuda.empty_cache()
    for segment in torch.cuda.memory_snapshot():
        for block in segment["blocks"]:
            if block["state"] == "inactive" and segment["segment_type"] == "large":
                ballast.append(torch.empty(block["size"], dtype=torch.uint8, device="cuda"))
    free = torch.cuda.mem_get_info()[0]
    ballast.append(torch.empty((free - leave) // STEP * STEP, dtype=torch.uint8, device="cuda"))


def fill_before_step(leave=4 * MIB):
    """The card is full when an optimizer takes a step."""
    register_optimizer_step_pre_hook(lambda *_: fill(leave))


class Net(nn.Module):
    """Two layers; the card is full where `full` says: at the beginning or the end of a forward pass, of a training or not."""

    def __init__(self, full=None, bias=False):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH, bias=bias), nn.Linear(WIDTH, WIDTH, bias=bias)
        self.full = full

    def forward(self, batch):
        if self.full == ("forward" if self.training else "evaluation"):
            fill()
        out = self.second(torch.relu(self.first(batch)))
        if self.full == "backward":
            fill()
        return out


def rows(device="cpu", count=ROWS):
    return torch.ones(count, WIDTH, device=device)


def run(scenarios):
    """Runs what the command line names. Its error's traceback has to hold the function that a scenario names: so it is true."""
    phase, function, scenario = scenarios[sys.argv[1]]
    try:
        scenario()
        print("no error")
    except torch.OutOfMemoryError as error:
        frames = traceback.extract_tb(error.__traceback__)
        for frame in frames:
            print(f"  {frame.filename}:{frame.lineno} {frame.name}")
        is_there = any(frame.name == function for frame in frames)
        print(f"truth: {phase}" if is_there else f"no such function in the traceback: {function}")
        own = [f"{frame.name}:{frame.lineno}" for frame in frames if "site-packages" not in frame.filename]
        print("own lines: " + " ".join(own))
    sys.stdout.flush()
    os._exit(0)
