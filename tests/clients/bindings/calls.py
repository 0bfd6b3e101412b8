"""What the programs here write down of their own calls, so that a trace can be held against it.

A line of calls.txt: what was called, address, bytes, device, line of the program, status. Each call stands on one line of the
program together with what writes it down.
"""

import sys
import threading

MIB = 1 << 20

_file = open("calls.txt", "w")
_lock = threading.Lock()


def _write(name, address, size, device, status):
    line = sys._getframe(2).f_lineno
    with _lock:
        print(name, f"{address:#x}", size, device, line, status, file=_file, flush=True)


def took(name, block, size, device=0):
    """Writes down a call that gave memory, and answers what it gave."""
    _write(name, int(block), size, device, 0)
    return block


def refused(name, result, size, device=0):
    """Writes down a call that gave none: the binding answers the status first."""
    assert int(result[0]) != 0, result
    _write(name, 0, size, device, int(result[0]))


def checked(result):
    """What a call gave, or its status as an exception, as the bindings' own examples do it."""
    status, *given = result
    if int(status) != 0:
        raise RuntimeError(str(status))
    return given[0] if len(given) == 1 else given or None


def run(**scenarios):
    """Runs what the first argument names."""
    scenarios[sys.argv[1]]()


def in_threads(count, work):
    """Runs work(index) in so many threads; each of them has to come to its end."""
    ended = []
    threads = [threading.Thread(target=lambda index=index: ended.append(work(index))) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ended) == count
