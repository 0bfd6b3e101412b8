# stack_cost.c in a Python process: `stack_cost.py LIBRARY known|new`. With STACK_COST=released the interpreter is released during
# the measurement, as PyTorch releases it.
import ctypes
import os
import sys

load = ctypes.CDLL if os.environ.get("STACK_COST") == "released" else ctypes.PyDLL
measure = load(sys.argv[1]).measure
measure.restype = ctypes.c_double
print("%.1f" % measure(sys.argv[2] == "new"), file=sys.stderr)
