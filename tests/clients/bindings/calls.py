"""What the programs here write down of their own calls, so that a trace can be held against it.

A line of calls.txt: what was called, address, bytes, device, line of the program, status. Each call stands on the same line of
the program as what writes it down.
"""

import sys
import threading

MIB = 1 << 20

_file = open("calls.txt", "w")
_lock = threading.Lock()


def noted(name, result, size, device=0, address=None):
    """Writes down a call by what the binding answered, its status first, and answers the same."""
    status = int(result[0])
    if address is None:
        address = 0 if status != 0 else int(result[1])
    with _lock:
        print(name, f"{address:#x}", size, device, sys._getframe(1).f_lineno, status, file=_file, flush=True)
    return result


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
