"""Memory that the caching allocator holds in pieces, and a request that none of them holds:

    fragment.py PICKLE half    every second piece is given back: much is unused, in pieces that are too small
    fragment.py PICKLE full    all pieces stay: nothing is unused

Four segments are taken and divided. The snapshot is written after the failure, when all pieces were given back: what the
allocator held at the failure is only in its history.
"""

import sys

import torch

from common import MIB, say, say_statistics

WHOLE = 200 * MIB
PIECE = 20 * MIB
REQUEST = 300 * MIB


def take(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def ask_for_scores():
    try:
        return take(REQUEST)
    except torch.OutOfMemoryError as error:
        print(str(error), file=sys.stderr)
        return None


def main(path, keep):
    torch.cuda.memory._record_memory_history(max_entries=100000, stacks="python")
    wholes = [take(WHOLE) for _ in range(4)]
    wholes.clear()
    pieces = [take(PIECE) for _ in range(4 * WHOLE // PIECE)]
    if keep == "half":
        del pieces[::2]
    say("unused", torch.cuda.memory_reserved() - torch.cuda.memory_allocated())
    granted = ask_for_scores()
    say("granted", 0 if granted is None else 1)
    pieces.clear()
    torch.cuda.memory._dump_snapshot(path)
    torch.cuda.memory._record_memory_history(enabled=None)
    say_statistics()


if __name__ == "__main__":
    main(*sys.argv[1:])
