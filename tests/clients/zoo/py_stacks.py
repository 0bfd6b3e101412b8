# Allocates from Python frames of every sort, and prints for each what Python itself says of the stack: the size in MiB,
# then file, line and function of each frame, innermost first. `py_stacks.py LIBRARY keeps` calls through ctypes.PyDLL,
# which keeps the interpreter, `releases` through ctypes.CDLL, which releases it for the time of the call.
# The trace must have the same frames.
import asyncio
import ctypes
import os
import sys
import threading
import traceback

loader = ctypes.PyDLL if sys.argv[2] == "keeps" else ctypes.CDLL
malloc = loader(sys.argv[1]).hipMalloc


def say(mebibytes, stack):
    frames = ["%s\t%d\t%s" % (frame.filename, frame.lineno, frame.name) for frame in reversed(stack)]
    os.write(1, ("\x1f".join([str(mebibytes)] + frames) + "\n").encode())
    return ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(mebibytes << 20)


def take(size):
    assert malloc(*say(size, traceback.extract_stack())) == 0


class Model:
    def forward(self, size):
        take(size)

    def __del__(self):
        take(4)


def numbers(first):
    for number in range(first, first + 2):
        take(number)
        yield number


async def inner(size):
    await asyncio.sleep(0)
    take(size)


async def outer(size):
    await asyncio.gather(inner(size), asyncio.sleep(0))


def down(depth, size):
    take(size) if depth == 0 else down(depth - 1, size)


def größe(size):
    exec(compile("\n\ntake(%d)" % size, "<made ü>", "exec"), globals())


def while_handling(size):
    try:
        raise ValueError("is being handled")
    except ValueError:
        take(size)
        assert sys.exc_info()[0] is ValueError
        raise


def main():
    take(1)
    take(2)
    model = Model()
    model.forward(3)
    del model
    for _ in numbers(5):
        pass
    asyncio.run(outer(7))
    thread = threading.Thread(target=down, args=(5, 8))
    thread.start()
    thread.join()
    down(100, 9)
    größe(10)
    try:
        while_handling(11)
    except ValueError as error:
        assert str(error) == "is being handled" and error.__traceback__ is not None
    [take(size) for size in (12, 13)]
    (lambda size: take(size))(14)
    for _ in range(3):
        down(2, 15)
    child = os.fork()
    if child == 0:
        down(2, 16)
        down(3, 17)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    down(1, 18)


main()
