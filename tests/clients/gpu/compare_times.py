# What card_bench.c measured in turn with and without the recorder: medians, and an interval of the ratios.
#     compare_times.py OUT_DIR ROUNDS
import json
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


pairs = [(measures(f"bench-{round}-plain"), measures(f"bench-{round}")) for round in range(1, rounds + 1)]
for measure in pairs[0][0]:
    plain = [before[measure] for before, _ in pairs]
    added = sorted(after[measure] - before[measure] for before, after in pairs)
    ratios = sorted(after[measure] / before[measure] for before, after in pairs)
    # Order statistics: of nine pairs the second and the eighth bound the median with 96 %.
    low, high = (1, rounds - 2) if rounds >= 9 else (0, rounds - 1)
    print(
        f"{measure}: {statistics.median(plain):.0f} ns alone, {statistics.median(added):+.0f} ns with the recorder "
        f"({added[low]:+.0f} to {added[high]:+.0f}), {statistics.median(ratios):.3f} times ({ratios[low]:.3f} to {ratios[high]:.3f})"
    )
