"""Processes of torch.multiprocessing, each with a card of the same machine, one of which gets a tensor of the other's.

Each prints what PyTorch's allocator gave out and took back there, once with the number of its process.
"""

import os

import torch
import torch.multiprocessing as mp

try:
    # The thread of a queue imports it, and an optimizer imports what imports it: two threads at once end in a deadlock of PyTorch 2.3's.
    import torch.nested._internal.nested_tensor
except ImportError:
    pass

from common import MIB, say
from blocks import training


def account(who):
    stats = torch.cuda.memory_stats()
    say(who, " ".join(str(number) for number in (
        os.getpid(), stats["allocation.all.allocated"], stats["allocation.all.freed"], torch.cuda.memory_allocated())))


def work(rank, queue, done):
    shared = queue.get() if rank == 0 else None
    kept = training(steps=2 + rank)
    torch.cuda.synchronize()
    account(f"child {rank}")
    del shared, kept
    done.wait()
    # PyTorch's own threads may want the interpreter while it ends, and end the process by `terminate`, without the recorder, too.
    os._exit(0)


def main():
    mp.set_start_method("spawn")
    queue, done = mp.Queue(), mp.Event()
    children = [mp.Process(target=work, args=(rank, queue, done)) for rank in range(2)]
    [child.start() for child in children]
    shared = torch.ones(4 * MIB, device="cuda")
    queue.put(shared)
    kept = training()
    account("parent")
    done.set()
    [child.join() for child in children]
    say("children", [child.exitcode for child in children])
    # As in the children.
    os._exit(0)


if __name__ == "__main__":
    main()
