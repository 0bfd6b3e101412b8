# stack_cost.c in a Python process, for memray: `stack_cost.py LIBRARY known|new`.
import ctypes
import sys

measure = ctypes.PyDLL(sys.argv[1]).measure
measure.restype = ctypes.c_double
print("%.1f" % measure(sys.argv[2] == "new"), file=sys.stderr)
