# Holds the account that a tour (driver_tour.c, full.c, runtime_tour.c) printed on the simulated card against that of a real one,
# line by line. Where free memory stood is left out, and addresses, NVML and errno: what each call took of it is in its line.
#     compare_accounts.py CARD.jsonl SIM.jsonl [--without SECTION...]
# Exits with 1 if anything differs that is not in DIFFERS.
import argparse
import json
import pathlib
import sys

NAMES = ("call", "figure", "pool", "graphs", "refused")
IGNORED = {"free_bytes", "address", "errno"}

# Section, line and key of what the simulator does otherwise, and why.
DIFFERS = {
    ("", "runtime", "value"): "it has a version of its own",
    ("", "driver", "value"): "SIM_CUDA_VERSION says which one it has",
    ("managed", "taken when the card writes", "value"): "the card takes twice the size, and keeps half; it is not known why",
    ("code", "cuModuleLoadData", "taken_bytes"): "modules take nothing",
    ("code", "cuLaunchKernel", "taken_bytes"): "kernels have no local memory",
    ("code", "cuModuleUnload", "taken_bytes"): "modules took nothing",
    ("refused when full", "cuModuleLoadData", "status"): "modules take nothing",
}


# Each line, by its section, with what is compared of it.
def lines(path, left_out):
    section = ""
    for text in path.read_text().splitlines():
        line = json.loads(text) if text.startswith("{") else {}
        section = line.get("section", section)
        if section not in left_out and any(name in line for name in NAMES):
            yield section, {key: value for key, value in line.items() if key not in IGNORED}


def by_section(path, left_out):
    sections = {}
    for section, line in lines(path, left_out):
        sections.setdefault(section, []).append(line)
    return sections


def name_of(line):
    return next(line[name] for name in NAMES if name in line)


def differences(section, card, sim):
    if len(card) != len(sim):
        yield (section, "all", "lines"), len(card), len(sim)
    for real, simulated in zip(card, sim):
        for key in sorted(real.keys() | simulated.keys()):
            if real.get(key) != simulated.get(key):
                yield (section, name_of(real), key), real.get(key), simulated.get(key)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("card", type=pathlib.Path)
    parser.add_argument("sim", type=pathlib.Path)
    parser.add_argument("--without", nargs="+", default=[], metavar="SECTION")
    arguments = parser.parse_args()
    card, sim = (by_section(path, arguments.without) for path in (arguments.card, arguments.sim))
    wrong = 0
    for section in list(card) + [section for section in sim if section not in card]:
        for place, real, simulated in differences(section, card.get(section, []), sim.get(section, [])):
            reason = DIFFERS.get(place)
            wrong += reason is None
            verdict = f"differs as it may ({reason})" if reason else "DIFFERS"
            print(f"{verdict}: {' / '.join(filter(None, place))}: {real} on the card, {simulated} simulated")
    same = sum(map(len, card.values()))
    print(f"{same} lines compared, {wrong} differences")
    sys.exit(1 if wrong or not same else 0)


main()
