"""What training loops use of PyTorch's nn.utils."""
from .. import _catalog, _core
from .._tensor import Tensor, tensor


def clip_grad_norm_(parameters, max_norm):
    """Scales the gradients of parameters in this process to that norm at most; the norm before."""
    return tensor(_core.clip_grad_norm_([parameters] if isinstance(parameters, Tensor) else list(parameters), float(max_norm)))


def clip_grad_value_(parameters, clip_value):
    """Limits each element of the gradients to [-clip_value, clip_value]."""
    for p in [parameters] if isinstance(parameters, Tensor) else parameters:
        if p.grad is not None:
            p.grad.clamp_(-clip_value, clip_value)


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(_catalog.unknown("troupe.nn.utils", name, [n for n in globals() if not n.startswith("_")]))
