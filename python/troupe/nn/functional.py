"""Operators under PyTorch's name for them: troupe.nn.functional as F."""
from .. import ops


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(ops, name)


def __dir__():
    return dir(ops)
