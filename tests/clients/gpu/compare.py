# Holds a recorded run against the plain one, and its report against what the client itself read from the driver.
#     compare.py ANALYZER OUT_DIR NAME
# A client prints lines; one that begins with "expect " is JSON: what the trace must say.
import json
import pathlib
import subprocess
import sys

analyzer, out_dir, name = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]


def read(path):
    return (out_dir / path).read_text(errors="replace")


complaints = []
before, after = read(f"{name}-plain.stdout"), read(f"{name}.stdout")
# Free memory differs from run to run; what is expected of the trace is compared with this run's own numbers.
if [line for line in before.splitlines() if not line.startswith("expect ")] != [
    line for line in after.splitlines() if not line.startswith("expect ")
]:
    complaints.append("the recorded run printed something else")
if read(f"{name}-plain.status") != read(f"{name}.status"):
    complaints.append("the recorded run ended with another status")

told = subprocess.run([analyzer, "report", "--format", "json", out_dir / f"{name}.trace.bin"], capture_output=True, text=True)
report = json.loads(told.stdout)
device = report["devices"][0] if report["devices"] else {}
expected = [json.loads(line[len("expect ") :]) for line in after.splitlines() if line.startswith("expect ")]
for wanted in expected:
    peak = device.get("peak", {}).get("requested_bytes", 0)
    if "peak_at_least_bytes" in wanted and peak < wanted["peak_at_least_bytes"]:
        complaints.append(f"peak {peak} is below {wanted['peak_at_least_bytes']}")
    if "peak_at_most_bytes" in wanted and peak > wanted["peak_at_most_bytes"]:
        complaints.append(f"peak {peak} is above {wanted['peak_at_most_bytes']}")
    if "ooms" in wanted and len(report["ooms"]) < wanted["ooms"]:
        complaints.append(f"{len(report['ooms'])} out-of-memory returns, {wanted['ooms']} expected")
    if "outcome" in wanted and wanted["outcome"] not in [oom["outcome"] for oom in report["ooms"]]:
        complaints.append(f"no failure is {wanted['outcome']}")
    if "live_at_end" in wanted and device.get("end", {}).get("requested_bytes") != wanted["live_at_end"]:
        complaints.append(f"{device.get('end')} is left at the end, not {wanted['live_at_end']} bytes")
if report["trace"]["events_lost"]:
    complaints.append("events were lost")

share = report.get("coverage", {}).get("share")
coverage = "not compared" if share is None else f"{share:.1%}"
print(f"  {name}: accounted {coverage}, {report['trace']['events']} events, {len(expected)} expectations")
for complaint in complaints:
    print(f"DIFFERS: {name}: {complaint}")
if not complaints:
    print(f"held: {name}: output, status and what was expected")
sys.exit(1 if complaints else 0)
