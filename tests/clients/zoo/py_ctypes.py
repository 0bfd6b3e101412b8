# Python loads the library by ctypes: RTLD_LOCAL, and each function by dlsym on the handle.
# The trace must show either all four allocations (the recorder hooks dlsym) or none at all; never a part.
import ctypes
import sys

hip = ctypes.CDLL(sys.argv[1])
blocks = []
for mebibytes in (1, 2, 3, 4):
    block = ctypes.c_void_p()
    status = hip.hipMalloc(ctypes.byref(block), ctypes.c_size_t(mebibytes << 20))
    assert status == 0, status
    blocks.append(block)
for block in blocks:
    assert hip.hipFree(block) == 0
print("done")
