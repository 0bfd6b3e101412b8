"""Runs out of memory in functions whose names are those of a training, and none of which is PyTorch's.

    lookalike.py step|forward|backward|evaluate
"""

import os
import sys

import torch

from common import MIB, OutOfMemoryError, say

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lookalike", "torch", "optim"))
from optimizer import Optimizer  # noqa: E402


def fills():
    blocks = []
    while True:
        blocks.append(torch.empty(64 * MIB, dtype=torch.uint8, device="cuda"))


class Engine:
    def _engine_run_backward(self):
        fills()

    def _call_impl(self):
        fills()


def backward():
    Engine()._engine_run_backward()


def forward():
    Engine()._call_impl()


def evaluation_loop():
    fills()


def step():
    Optimizer().step(fills)


if __name__ == "__main__":
    try:
        {"step": step, "forward": forward, "backward": backward, "evaluate": evaluation_loop}[sys.argv[1]]()
    except OutOfMemoryError:
        say("out of memory in", "none of PyTorch's phases")
