# The table of promises: every run that was planned, held against its own account. What was not run, or cannot be compared, differs.
#     judge.py PACK OUT_DIR
# OUT_DIR/runs.tsv has a line for each run: its name, how it is compared, and the status that it should end with. What the comparisons
# print goes to OUT_DIR/NAME.judged.
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
pack, out_dir = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
analyzer = pack / "gpuoom-analyze"


def file(name, kind):
    return out_dir / f"{name}.{kind}"


def command(name, kind):
    trace = file(name, "trace.bin")
    if kind == "tour":
        return ["compare_tour.py", analyzer, out_dir, name]
    if kind == "blocks":
        return ["compare_blocks.py", pack / "told_blocks", trace, file(name, "own.json")]
    if kind == "requests":
        driver = (out_dir / "driver").read_text().strip()
        return ["compare_requests.py", "--analyzer", analyzer, "--driver", driver, file(name, "requests.jsonl"), trace, *children(trace)]
    if kind == "torch":
        report = file(name, "json")
        subprocess.run([analyzer, "report", "--format", "json", "-o", report, trace], capture_output=True)
        plain = file(f"{name}-plain", "account.json")
        return ["compare_torch.py", report, trace, file(name, "account.json"), "--analyzer", analyzer, "--plain", plain]
    return ["compare.py", analyzer, out_dir, name]


def children(trace):
    return sorted(trace.parent.glob(trace.name + ".*"))


# What a run of this kind leaves behind; without it there is nothing to compare.
def missing(name, kind):
    left = {"blocks": ["trace.bin", "own.json"], "requests": ["trace.bin", "requests.jsonl"], "torch": ["trace.bin", "account.json"]}
    wanted = [file(name, end) for end in left.get(kind, ["trace.bin", "stdout"])]
    if kind == "requests":
        wanted.append(out_dir / "driver")
    return [path.name for path in wanted if not path.exists() or path.stat().st_size == 0]


def judge(name, kind, expected):
    gone = missing(name, kind)
    if gone:
        return [], [f"nothing to compare: {', '.join(gone)} is missing or empty"]
    status = file(name, "status").read_text().strip()
    if status != expected:
        return [], [f"it ended with {status}, not {expected}: see {name}.stderr"]
    done = subprocess.run([sys.executable, *map(str, [HERE / command(name, kind)[0], *command(name, kind)[1:]])], capture_output=True, text=True)
    file(name, "judged").write_text(done.stdout + done.stderr)
    lines = done.stdout.splitlines()
    held = [line for line in lines if re.match("held: |AGREE: ", line)]
    differs = [line for line in lines if re.match("DIFFERS: |DO NOT AGREE|NOTHING COMPARED", line)]
    if done.returncode != 0 and not differs:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        differs = [f"it could not be compared to the end: {last}"]
    if not held and not differs:
        differs = ["the comparison says nothing"]
    return held, differs


def main():
    runs = out_dir / "runs.tsv"
    if not runs.exists():
        sys.exit(f"{runs} is missing: was `scripts/gpu-acceptance run` here?")
    planned = [line.split("\t") for line in runs.read_text().splitlines()]
    if not planned:
        sys.exit(f"{runs} names no run: nothing to compare")
    wrong = 0
    for name, kind, expected in planned:
        held, differs = judge(name, kind, expected)
        wrong += bool(differs)
        print(f"{name:28} {len(held):3} held" + (f", {len(differs)} DIFFER" if differs else ""))
        for line in differs:
            print("    " + line[:400])
    print(f"{wrong} of {len(planned)} runs differ" if wrong else f"all {len(planned)} runs agree; details are in {out_dir}/NAME.judged")
    sys.exit(1 if wrong else 0)


main()
