"""What the recorder costs loops of PyTorch on this card:

    overhead.py [--recorder FILE] [--rounds N] [--pairs N] [--seconds S] [--limit S] [--only NAME] [--keep DIR] [--null]

A pair of processes, one with the recorder, stays alive and takes turns: in each round both do the same steps of a loop, one
after the other, and every other round in the other order. So a slow moment of the machine meets both, and PyTorch is imported once a
process. A pair may be lucky in where its memory lies; several pairs tell. Starts and ends of processes are not in the figures.
Prints a line of JSON for each loop: the ratio with/without of elapsed and of user time, as the median of all rounds with its
95 % interval by ranks. GPUOOM_ settings reach the recorded process; `--null` leaves the recorder out of both: what is
measured then is the noise.
"""

import argparse
import gc
import json
import math
import os
import pathlib
import random
import resource
import select
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
# A child that says nothing for so long hangs: the first one reads PyTorch from the disk.
PATIENCE = 120


# What a child does.


def toy_training():
    """Small kernels and some 550 blocks a step: the processor is the limit."""
    import torch
    from torch import nn

    layers = [layer for _ in range(36) for layer in (nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32))]
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(_):
        loss = model(torch.randn(16, 32, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def changing_lengths():
    """No step asks for what the one before gave back, and now and then the cache is emptied: the runtime's calls count, too."""
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    # The same in both processes.
    lengths = [random.Random(index).randrange(16, 512) for index in range(97)]

    def step(index):
        length = lengths[index % len(lengths)]
        loss = model(torch.randn(8, length, 256, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if index % 25 == 24:
            torch.cuda.empty_cache()

    return step


def launches():
    """One kernel a step, on one element: what the hook of a launch costs."""
    import torch

    x = torch.zeros(1, device="cuda")
    return lambda _: x.add_(1)


LOOPS = {loop.__name__: loop for loop in (toy_training, changing_lengths, launches)}


def measure(step, steps):
    import torch

    gc.collect()
    torch.cuda.synchronize()
    user, began = resource.getrusage(resource.RUSAGE_SELF).ru_utime, time.perf_counter()
    for index in range(steps):
        step(index)
    torch.cuda.synchronize()
    elapsed = time.perf_counter() - began
    return {"elapsed": elapsed, "user": resource.getrusage(resource.RUSAGE_SELF).ru_utime - user}


def child():
    """Reads "LOOP STEPS" and answers with the time that it took, until there is no more to read."""
    ready = {}
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        name, steps = line.split()
        if name not in ready:
            # The loop on the card is the only one: what an earlier one keeps would make it slower.
            ready = {name: LOOPS[name]()}
            measure(ready[name], 3)
        print(json.dumps(measure(ready[name], int(steps))), flush=True)


# What the parent does.


class Child:
    def __init__(self, environment):
        command = [sys.executable, __file__, "child"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def answer(self):
        # A line is the whole answer, so that nothing is left in Python's own buffer.
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            raise TimeoutError("a child hangs")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a child ended with {self.process.wait()}")
        return json.loads(line)

    def run(self, name, steps):
        self.process.stdin.write(f"{name} {steps}\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def start_pair(given, directory, number):
    """Without and with the recorder."""
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    recorded = plain | {"LD_PRELOAD": str(given.recorder), "GPUOOM_TRACE": f"{directory}/overhead-{number}.trace.bin"}
    pair = [Child(plain), Child(plain if given.null else recorded)]
    for one in pair:
        one.answer()
    return pair


def steps_for(one, name, seconds):
    """How many steps take so long, by a child without the recorder."""
    steps, took = 8, 0.0
    while took < seconds / 10:
        steps *= 2
        took = one.run(name, steps)["elapsed"]
    return max(8, round(steps * seconds / took))


def interval(values):
    """Where the true median lies with 95 %, by the ranks alone: whatever the spread looks like."""
    ranked, count = sorted(values), len(values)
    below, beyond = 0, 0.0
    while below < count / 2:
        beyond += math.comb(count, below) / 2**count
        if beyond > 0.025:
            break
        below += 1
    # With less than six rounds nothing narrower than all of them is sure enough.
    at = max(below - 1, 0)
    return [round(ranked[at], 4), round(ranked[count - 1 - at], 4)]


def rounds_of(pair, name, steps, given, is_over):
    """Pairs of times, without and with."""
    times = []
    # The first of each is for caches and clocks.
    for one in pair:
        one.run(name, max(1, steps // 4))
    for number in range(given.rounds):
        if is_over() and times:
            break
        taken = [None, None]
        for which in ((0, 1), (1, 0))[number % 2]:
            taken[which] = pair[which].run(name, steps)
        times.append(taken)
    return times


def summary(name, steps, by_pair):
    times = [taken for pair in by_pair for taken in pair]
    result = {"loop": name, "rounds_of_pairs": [len(pair) for pair in by_pair], "steps": steps}
    for what in ("elapsed", "user"):
        ratios = [recorded[what] / max(plain[what], 1e-9) for plain, recorded in times]
        result |= {f"{what}_ratio": round(statistics.median(ratios), 4), f"{what}_95": interval(ratios)}
    for index, who in enumerate(("plain", "recorded")):
        result[f"{who}_us_a_step"] = round(statistics.median(taken[index]["elapsed"] for taken in times) / steps * 1e6, 4)
    more = [(recorded["elapsed"] - plain["elapsed"]) / steps * 1e9 for plain, recorded in times]
    result |= {"more_ns_a_step": round(statistics.median(more), 1), "more_ns_95": interval(more)}
    result["ratio_of_pairs"] = [
        round(statistics.median(recorded["elapsed"] / plain["elapsed"] for plain, recorded in pair), 4) for pair in by_pair
    ]
    return result


def measure_all(given, directory):
    began, steps, times = time.monotonic(), {}, {name: [] for name in given.only or LOOPS}
    for number in range(given.pairs):
        if number and time.monotonic() - began > given.limit * 0.8:
            break
        pair = start_pair(given, directory, number)
        try:
            for place, name in enumerate(times):
                steps.setdefault(name, 0)
                steps[name] = steps[name] or steps_for(pair[0], name, given.seconds)
                # Each loop of each pair has its share of the time.
                share = (number * len(times) + place + 1) / (given.pairs * len(times)) * given.limit
                times[name].append(rounds_of(pair, name, steps[name], given, lambda: time.monotonic() - began > share))
        finally:
            for one in pair:
                one.end()
        if not given.null and not os.path.exists(f"{directory}/overhead-{number}.trace.bin"):
            raise RuntimeError("the recorder left no trace: nothing was measured")
    for name, by_pair in times.items():
        print(json.dumps(summary(name, steps[name], by_pair)), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--recorder", type=pathlib.Path, default=ROOT / "target/release/libgpuoom.so")
    parser.add_argument("--rounds", type=int, default=8, help="of each loop and pair")
    parser.add_argument("--pairs", type=int, default=2, help="of processes")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a loop in a round, without the recorder")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds for all of it: then rounds are left out")
    parser.add_argument("--only", action="append", choices=list(LOOPS))
    parser.add_argument("--keep", help="the traces stay in that directory")
    parser.add_argument("--null", action="store_true")
    given = parser.parse_args()
    if not given.null and not given.recorder.exists():
        parser.error(f"no recorder at {given.recorder}")
    if given.keep:
        os.makedirs(given.keep, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        measure_all(given, given.keep or scratch)


if __name__ == "__main__":
    child() if sys.argv[1:] == ["child"] else main()
