"""Initial values, written in place."""
import math

from .._modes import no_grad
from .. import _catalog, ops


def _fans(tensor):
    field = tensor[0][0].numel() if tensor.ndim > 2 else 1
    return tensor.size(1) * field, tensor.size(0) * field


def _write(tensor, values):
    with no_grad():
        tensor.detach().copy_(values)
    return tensor


def zeros_(tensor):
    """0 everywhere."""
    return constant_(tensor, 0.0)


def ones_(tensor):
    """1 everywhere."""
    return constant_(tensor, 1.0)


def constant_(tensor, val):
    """One number everywhere."""
    with no_grad():
        tensor.detach().fill_(val)
    return tensor


def uniform_(tensor, a=0.0, b=1.0):
    """Uniform in [a, b)."""
    return _write(tensor, ops.rand(list(tensor.shape)) * (b - a) + a)


def normal_(tensor, mean=0.0, std=1.0):
    """A normal distribution."""
    return _write(tensor, ops.randn(list(tensor.shape)) * std + mean)


def xavier_uniform_(tensor, gain=1.0):
    """Glorot's, uniform."""
    bound = gain * math.sqrt(6.0 / sum(_fans(tensor)))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor, gain=1.0):
    """Glorot's, normal."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_fans(tensor))))


def _gain(a, nonlinearity):
    known = {"relu": math.sqrt(2.0), "leaky_relu": math.sqrt(2.0 / (1 + a * a)), "linear": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3}
    if nonlinearity not in known:
        raise ValueError("nonlinearity is one of %s, got %r" % (", ".join(known), nonlinearity))
    return known[nonlinearity]


def kaiming_uniform_(tensor, a=0.0, mode="fan_in", nonlinearity="leaky_relu"):
    """He's, uniform."""
    bound = math.sqrt(3.0) * _gain(a, nonlinearity) / math.sqrt(_fans(tensor)[mode == "fan_out"])
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(tensor, a=0.0, mode="fan_in", nonlinearity="leaky_relu"):
    """He's, normal."""
    return normal_(tensor, 0.0, _gain(a, nonlinearity) / math.sqrt(_fans(tensor)[mode == "fan_out"]))


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(_catalog.unknown("troupe.nn.init", name, [n for n in globals() if not n.startswith("_")]))
