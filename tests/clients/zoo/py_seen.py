# Allocates again and again from the same lines and from ever new ones, so that most stacks are known ones, and prints for each
# allocation what Python itself says: its number of KiB, then line and function of each frame, innermost first.
#     py_seen.py LIBRARY keeps|releases
# The recorder recognises a stack that it has seen before by the words of its frames; none may be taken for another.
import ctypes
import os
import random
import sys

loader = ctypes.PyDLL if sys.argv[2] == "keeps" else ctypes.CDLL
library = loader(sys.argv[1])
said = []


def take(number):
    frames = []
    frame = sys._getframe()
    while frame:
        frames.append((frame.f_code.co_name, frame))
        frame = frame.f_back
    block = ctypes.c_void_p()
    size = ctypes.c_size_t(number << 10)
    # The line of this frame that counts is the one of the call.
    assert library.hipMalloc(ctypes.byref(block), size) == 0; lines = [frame.f_lineno for _, frame in frames]
    said.append("\x1f".join([str(number)] + ["%d\t%s" % (line, name) for line, (name, _) in zip(lines, frames)]))
    assert library.hipFree(block) == 0


def one(number):
    take(number)
    take(number); take(number)


def two(number):
    for _ in range(2):
        one(number)
    [take(number) for _ in range(2)]


def generator(number):
    yield take(number)
    yield one(number)


def down(depth, number):
    if depth == 0:
        take(number)
    else:
        down(depth - 1, number)


class Model:
    def __call__(self, number):
        return self.forward(number)

    def forward(self, number):
        max([number], key=lambda value: take(value) or 0)


def made(index):
    scope = {"take": take}
    exec(compile("def f(number):\n" + "\n" * (index % 5) + "    take(number)\n", f"made{index % 7}", "exec"), scope)
    return scope["f"]


def main():
    chance = random.Random(1)
    model = Model()
    functions = [made(index) for index in range(20)]
    calls = [one, two, model, lambda number: list(generator(number)), lambda number: down(number % 9, number)] + functions
    for number in range(1, 1500):
        chance.choice(calls)(number)
        if number % 300 == 0:
            # Code objects that go away, and others that may come to their addresses.
            functions[:] = [made(index) for index in range(20)]
            calls[5:] = functions
    child = os.fork()
    if child == 0:
        del said[:]
        for number in range(2000, 2100):
            chance.choice(calls)(number)
    else:
        assert os.waitpid(child, 0)[1] == 0
    os.write(1, ("\n".join(said) + "\n").encode())
    os._exit(0)


main()
