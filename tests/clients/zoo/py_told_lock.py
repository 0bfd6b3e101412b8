# An allocator with a lock, told of with the lock held, by threads that have released the interpreter, while other threads hold the
# interpreter and wait for the lock. Who waited here for the interpreter without a bound would wait for good.
#     py_told_lock.py HIP PLUGIN
import ctypes
import sys
import threading

ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
releases, keeps = ctypes.CDLL(sys.argv[2]), ctypes.PyDLL(sys.argv[2])


def make(index):
    scope = {"releases": releases}
    exec(compile("\n" * index + "def f():\n    releases.tell_locked()\n", "made", "exec"), scope)
    return scope["f"]


def tells(first):
    for index in range(first, first + 60):
        make(index)()


def waits():
    for _ in range(200):
        keeps.take_lock()


threads = [threading.Thread(target=tells, args=(index * 100,)) for index in range(2)]
threads += [threading.Thread(target=waits) for _ in range(2)]
releases.begin()
[thread.start() for thread in threads]
tells(1000)
[thread.join() for thread in threads]
print("done", releases.told())
