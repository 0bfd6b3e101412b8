"""A folder of the program's own that is called as PyTorch's, with functions that are called as PyTorch's."""


class Optimizer:
    def step(self, takes):
        return wrapper(takes)


def wrapper(takes):
    return takes()
