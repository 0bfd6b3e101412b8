# Python loads an extension that is linked to the library (local_plugin.c), as it loads torch: RTLD_LOCAL.
# The trace must show the extension's three allocations.
import ctypes
import sys

assert ctypes.CDLL(sys.argv[1]).run() == 0
print("done")
