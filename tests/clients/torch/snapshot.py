"""PyTorch's own account of its memory, beside the recorder's:

    snapshot.py PICKLE JSON [pinned]

Writes torch.cuda.memory's snapshot (what _dump_snapshot writes, with the history) while blocks are live, and the
segments in it as JSON: [{"address": ..., "bytes": ...}, ...]. The files differ from run to run in their addresses.
`pinned`: also what the host allocator pinned.
"""

import json
import pickle
import sys

import torch

from common import MIB, say, say_statistics


def main(pickle_path, json_path, *more):
    options = {"record_pinned_host_memory": True} if more else {}
    torch.cuda.memory._record_memory_history(max_entries=10000, **options)
    if more:
        pinned = [torch.zeros(size * MIB, dtype=torch.uint8, pin_memory=True) for size in (5, 5, 9)]
        del pinned[2]
    blocks = [torch.zeros(size * MIB, dtype=torch.uint8, device="cuda") for size in (1, 3, 12, 30)]
    blocks.append(torch.zeros(1000, device="cuda"))
    del blocks[1]
    torch.cuda.memory._dump_snapshot(pickle_path)
    torch.cuda.memory._record_memory_history(enabled=None)
    with open(pickle_path, "rb") as file:
        snapshot = pickle.load(file)
    segments = [{"address": segment["address"], "bytes": segment["total_size"]} for segment in snapshot["segments"]]
    with open(json_path, "w") as file:
        json.dump(segments, file)
    say("segments", len(segments))
    say("bytes", sum(segment["bytes"] for segment in segments))
    say("events", sum(len(events) for events in snapshot["device_traces"]))
    if more:
        statistics = torch.cuda.host_memory_stats()
        say("pinned", statistics["allocated_bytes.current"])
        say("pinned in use", statistics["active_bytes.current"])
    say_statistics()


if __name__ == "__main__":
    main(*sys.argv[1:])
