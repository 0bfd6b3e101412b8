"""Runs the programs of this folder under the recorder, and compares what the report says with the error's own traceback.

    compare.py PYTHON LIBRARY ANALYZER OUT PACKAGE[,PACKAGE] [SCENARIO ...]
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = {"pytorch-lightning": "lightning", "peft": "transformers", "trl": "transformers"}


def scenarios(program):
    text = program.read_text()
    return re.findall(r'^    "([a-z0-9-]+)": \("', text, re.M)


def version(python, package):
    code = f"import importlib.metadata as m; print(m.version('{package}'))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()


def one(python, library, analyzer, out, package, program, scenario):
    trace = out / f"{package}-{scenario}.trace.bin"
    for old in out.glob(trace.name + "*"):
        old.unlink()
    env = dict(os.environ, LD_PRELOAD=library, GPUOOM_TRACE=str(trace), PACKAGE=package, GPUOOM_PROBE="off")
    env.setdefault("SIM_CAPACITY", "2G")
    done = subprocess.run([python, program, scenario], env=env, capture_output=True, text=True, timeout=300)
    trace.with_suffix(".log").write_text(done.stdout + done.stderr)
    found = re.search(r"^truth: (.*)$", done.stdout, re.M)
    if not found:
        return None, f"no truth: {(done.stdout + done.stderr).strip().splitlines()[-1:]}", "", ""
    own = re.search(r"^own lines: (.*)$", done.stdout, re.M).group(1).split()
    report = subprocess.run([analyzer, "report", "--format", "json", str(trace)], capture_output=True, text=True)
    trace.with_suffix(".json").write_text(report.stdout)
    text = subprocess.run([analyzer, "report", str(trace)], capture_output=True, text=True)
    trace.with_suffix(".txt").write_text(text.stdout)
    ooms = json.loads(report.stdout)["ooms"]
    oom = ooms[-1] if ooms else {}
    entry = oom.get("phase_entry") or {}
    told = oom.get("phase") or "none"
    called = entry.get("called_from") or "-"
    return found.group(1), told, f"{entry.get('function')} ({entry.get('file')})", f"{called}   [{own[-1] if own else ''}] ooms {len(ooms)}"


def main():
    python, library, analyzer, out, packages, *wanted = sys.argv[1:]
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for package in packages.split(","):
        program = HERE / f"with_{PROGRAMS.get(package, package).replace('-', '_')}.py"
        for scenario in wanted or scenarios(program):
            truth, told, entry, line = one(python, library, analyzer, out, package, program, scenario)
            equal = truth == told
            failed += not equal
            print(f"{package:18} {version(python, package):8} {scenario:18} {truth or '?':11} {told:11} {'=' if equal else 'DIFFERS'}  {entry} from {line}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
