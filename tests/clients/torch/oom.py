"""A real torch.OutOfMemoryError.

    oom.py uncaught    it ends the program, with Python's traceback and status 1
    oom.py caught      it is caught, memory is given back, and the program goes on with less
    oom.py oversized   one request that is larger than the card, caught
    oom.py forked      the first of these in a forked child; its status is the program's
"""

import os
import sys

import torch

from common import MIB, OutOfMemoryError, say, say_statistics

BLOCK = 64 * MIB


def fill():
    """Takes blocks until the card is full, and answers them with the failure."""
    blocks = []
    while True:
        try:
            blocks.append(torch.empty(BLOCK, dtype=torch.uint8, device="cuda"))
        except OutOfMemoryError as error:
            return blocks, error


def uncaught():
    blocks = []
    while True:
        blocks.append(torch.empty(BLOCK, dtype=torch.uint8, device="cuda"))


def forked():
    child = os.fork()
    if child == 0:
        uncaught()
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def caught():
    blocks, error = fill()
    say("blocks", len(blocks))
    say("error", type(error).__name__)
    say("message", str(error).splitlines()[0])
    del error
    blocks.clear()
    torch.cuda.empty_cache()
    smaller = torch.zeros(BLOCK // 2, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    say("went on with", smaller.numel())
    say_statistics()


def oversized():
    small = torch.ones(MIB, dtype=torch.uint8, device="cuda")
    try:
        torch.empty(torch.cuda.get_device_properties(0).total_memory + BLOCK, dtype=torch.uint8, device="cuda")
    except OutOfMemoryError as error:
        say("error", type(error).__name__)
    say("small", small.numel())
    say_statistics()


if __name__ == "__main__":
    {"uncaught": uncaught, "caught": caught, "oversized": oversized, "forked": forked}[sys.argv[1]]()
