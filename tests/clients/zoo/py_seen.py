# Allocates again and again from the same lines and from ever new ones, so that most stacks are known ones, and prints for each
# allocation what Python itself says: its number of KiB, then line and function of each frame, innermost first.
#     py_seen.py LIBRARY keeps|releases [THREADS [cleared]]
# With threads, all of it is done in so many of them at once, by each with numbers of its own, and for long. `cleared`: what `atexit`
# holds is forgotten meanwhile. Two daemons go on while Python ends.
# The recorder recognises a stack that it has seen before by the words of its frames; none may be taken for another.
import atexit
import ctypes
import os
import random
import sys
import threading

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


def many(numbers, every=300):
    chance = random.Random(1)
    model = Model()
    functions = [made(index) for index in range(20)]
    calls = [one, two, model, lambda number: list(generator(number)), lambda number: down(number % 9, number)] + functions
    for number in numbers:
        chance.choice(calls)(number)
        if number % every == 0:
            # Code objects that go away, and others that may come to their addresses.
            functions[:] = [made(index) for index in range(20)]
            calls[5:] = functions
    return chance, calls


def endless():
    block = ctypes.c_void_p()
    while True:
        library.hipMalloc(ctypes.byref(block), ctypes.c_size_t(4))
        library.hipFree(block)


def threads(count, is_cleared):
    # No number comes in two threads, so those calls of a number come in the order in which they are said.
    every = 1 << 14
    numbers = [range(every * index, every * index + 6000) for index in range(1, count + 1)]
    # Hardly any new stacks: to ask for one takes long where others keep the interpreter.
    work = [threading.Thread(target=many, args=(own, every)) for own in numbers]
    [thread.start() for thread in work]
    if is_cleared:
        work[0].join(0.3)
        atexit._clear()
    [thread.join() for thread in work]
    [threading.Thread(target=endless, daemon=True).start() for _ in range(2)]
    os.write(1, ("\n".join(said) + "\n").encode())


def main():
    chance, calls = many(range(1, 1500))
    child = os.fork()
    if child == 0:
        del said[:]
        for number in range(2000, 2100):
            chance.choice(calls)(number)
    else:
        assert os.waitpid(child, 0)[1] == 0
    os.write(1, ("\n".join(said) + "\n").encode())
    os._exit(0)


threads(int(sys.argv[3]), "cleared" in sys.argv) if len(sys.argv) > 3 else main()
