"""What the PyTorch clients share. They print only what is the same in each run: sizes and counts, no values (the
simulated card computes nothing), no addresses, no times."""

import sys

import torch

MIB = 1 << 20
# Of `torch` itself since 2.5.
OutOfMemoryError = torch.cuda.OutOfMemoryError
COUNTS = ["num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free"]
SIZES = ["allocated_bytes.all.peak", "allocated_bytes.all.current", "reserved_bytes.all.peak", "reserved_bytes.all.current"]


def say(what, value):
    # One write: several processes may say something at once.
    sys.stdout.write(f"{what}: {value}\n")
    sys.stdout.flush()


def say_statistics():
    statistics = torch.cuda.memory_stats()
    for name in COUNTS + SIZES:
        say(name, statistics.get(name, "none"))
