# Threads that allocate with the interpreter released, each from a function of its own, while one computes and never gives
# the interpreter up by itself; two of them go on while Python is taken down.
# Whatever frames the trace has of a call must be those of the thread that made it: worker_N allocates N MiB.
import ctypes
import gc
import sys
import threading

hip = ctypes.CDLL(sys.argv[1])
running = True
started = threading.Barrier(7)

source = """
def worker_%d(times):
    block = ctypes.c_void_p()
    while times != 0:
        times -= 1
        assert hip.hipMalloc(ctypes.byref(block), ctypes.c_size_t(%d << 20)) == 0
        assert hip.hipFree(block) == 0
        [[] for _ in range(50)].append(gc)

def body_%d(times):
    started.wait()
    worker_%d(times)
"""


def compute():
    number = 0
    while running:
        number += 1


threads = []
for size in range(1, 7):
    exec(source % ((size,) * 4))
    lasts = size > 4
    threads.append(threading.Thread(target=globals()["body_%d" % size], args=(-1 if lasts else 60,), daemon=lasts))
busy = threading.Thread(target=compute)
busy.start()
for thread in threads:
    thread.start()
started.wait()
for thread in threads[:4]:
    thread.join()
running = False
busy.join()
print("done", flush=True)
