# What card_bench.c measured in turn with and without the recorder: medians, and 95 % intervals of them by ranks.
#     compare_times.py OUT_DIR ROUNDS
import json
import math
import pathlib
import statistics
import sys

out_dir, rounds = pathlib.Path(sys.argv[1]), int(sys.argv[2])


def measures(name):
    found = {}
    for line in (out_dir / f"{name}.stdout").read_text().splitlines():
        line = json.loads(line)
        found[line["measure"]] = line["each_ns"]
    return found


def bounds(values):
    """The narrowest pair of ranks, as far from both ends, that has the median between them with 95 % (sign test)."""
    count, values = len(values), sorted(values)
    outside, rank = 0, 0
    while 2 * (outside + math.comb(count, rank) / 2**count) <= 0.05:
        outside += math.comb(count, rank) / 2**count
        rank += 1
    if rank == 0:
        return "too few pairs for an interval"
    return values[rank - 1], values[count - rank]


def told(values, form):
    interval = bounds(values)
    text = interval if isinstance(interval, str) else " to ".join(form.format(bound) for bound in interval)
    return f"{form.format(statistics.median(values))} ({text})"


pairs = [(measures(f"bench-{round}-plain"), measures(f"bench-{round}")) for round in range(1, rounds + 1)]
for measure in pairs[0][0]:
    plain = [before[measure] for before, _ in pairs]
    added = [after[measure] - before[measure] for before, after in pairs]
    ratios = [after[measure] / before[measure] for before, after in pairs]
    print(f"{measure}: {statistics.median(plain):.0f} ns alone, {told(added, '{:+.0f}')} ns with the recorder, {told(ratios, '{:.3f}')} times")
