"""Memory of changing sizes, with the allocator's history:

    churn.py PICKLE|- [SEED] [one]

Takes and drops blocks of all the sizes that the caching allocator treats differently, on two streams, with an
empty_cache() between rounds, and writes torch.cuda.memory's snapshot. What does not fit is dropped and the round ends.
The requests are the same in each run, whatever the allocator's settings. `one`: all on one stream.
"""

import random
import sys

import torch

from common import MIB, say, say_statistics

# Largest request of each sort, in bytes: several to a small segment, several to a large one, a segment of its own.
SORTS = [64 * 1024, MIB, 9 * MIB, 48 * MIB]
ROUNDS = 4
STEPS = 150
LIVE = 24


def take(draw):
    most = draw.choice(SORTS)
    return torch.empty(draw.randrange(1, most), dtype=torch.uint8, device="cuda")


def churn(draw, side, lasting):
    live = []
    for step in range(STEPS):
        if live and (len(live) > LIVE or draw.random() < 0.4):
            live.pop(draw.randrange(len(live)))
            continue
        on_side = draw.random() < 0.2
        try:
            with torch.cuda.stream(side if on_side else torch.cuda.current_stream()):
                block = take(draw)
        except torch.OutOfMemoryError:
            return 1
        if draw.random() < 0.1:
            block.record_stream(side)
        # A few blocks outlive their round: they keep segments from being given back.
        (lasting if step % 50 == 7 else live).append(block)
    return 0


def main(path, seed=1, streams=""):
    if path != "-":
        torch.cuda.memory._record_memory_history(max_entries=1000000, stacks="python")
    side = torch.cuda.current_stream() if streams else torch.cuda.Stream()
    draw, lasting = random.Random(int(seed)), []
    failures = 0
    for number in range(ROUNDS):
        failures += churn(draw, side, lasting)
        if number % 2 == 1:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
    if path != "-":
        torch.cuda.memory._dump_snapshot(path)
        torch.cuda.memory._record_memory_history(enabled=None)
    say("failures", failures)
    say("segments", torch.cuda.memory_stats()["segment.all.current"])
    say_statistics()


if __name__ == "__main__":
    main(*sys.argv[1:])
