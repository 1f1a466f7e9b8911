"""What training loops use of PyTorch's nn.utils."""
from .. import _core
from .._tensor import Tensor, tensor


def clip_grad_norm_(parameters, max_norm):
    """Scales the gradients of parameters in this process to that norm at most; the norm before."""
    return tensor(_core.clip_grad_norm_([parameters] if isinstance(parameters, Tensor) else list(parameters), float(max_norm)))
