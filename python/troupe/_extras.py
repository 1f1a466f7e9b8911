"""What PyTorch has under several names, or with other arguments than the catalog: made of the catalog's operators."""
import math

from . import _catalog, _core, ops
from ._tensor import Tensor, as_tensor, tensor


def numel(input):
    """How many elements there are."""
    return input.numel()


def _extreme(name, pair):
    def extreme(input, *args, **kwargs):
        if args and isinstance(args[0], Tensor) or isinstance(kwargs.get("other"), Tensor):
            return getattr(ops, pair)(input, *args, **kwargs)
        return getattr(ops, name)(input, *args, **kwargs)
    return _catalog.described(extreme, name, _catalog.section("ops")[name])


def _alpha(name):
    def sum_or_difference(input, other, *, alpha=1):
        run = _core.run
        return run(name, input, other if alpha == 1 else other * alpha)
    return _catalog.described(sum_or_difference, name, _catalog.section("ops")[name])


def _several(name, first):
    """Of any number of tensors, in a list or one after the other."""
    def operator(*args, **kwargs):
        tensors = args[first:]
        if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
            tensors = tensors[0]
        return _core.run(name, *args[:first], list(tensors), **kwargs)
    return _catalog.described(operator, name, _catalog.section("ops")[name])


def empty(*size, dtype=None, device=None, requires_grad=False):
    """A tensor whose elements are to be written: here 0."""
    return ops.zeros(*size, dtype=dtype, device=device, requires_grad=requires_grad)


def normal(mean, std, size=None):
    """Normal numbers of that mean and deviation."""
    if size is None:
        size = (mean if isinstance(mean, Tensor) else std).shape
    return ops.randn(list(size)) * std + mean


def scatter_(self, dim, index, src, reduce=None):
    """Writes src to the places index along dim, in place."""
    src = src if isinstance(src, Tensor) else ops.zeros(list(index.shape), dtype=self.dtype) + src
    args = {} if reduce is None else {"reduce": reduce}
    return self.copy_(_core.run("scatter", self.detach() if not self.requires_grad else self, dim, index, src.to(self.dtype), **args))


def trace(input):
    """The sum of the diagonal of a matrix."""
    return input.diagonal().sum()


def swapaxes(input, axis0, axis1):
    """Two dimensions in each other's place. A view."""
    return input.transpose(axis0, axis1)


def clip(input, min=None, max=None):
    """Limits the elements to [min, max]."""
    return ops.clamp(input, min=min, max=max)


def ravel(input):
    """All elements in one dimension."""
    return input.reshape(-1)


def type_of(self, dtype=None):
    """The elements as another dtype; without one, the name of the type."""
    return self.to(dtype) if dtype is not None else "troupe." + self.dtype.name


class cuda:
    """GPUs, where the library was built with them."""

    @staticmethod
    def is_available():
        """Whether a tensor can go to a GPU."""
        try:
            _core.to_device(ops.zeros(1), "cuda")
            return True
        except RuntimeError:
            return False


class _LinearAlgebra:
    """As torch.linalg: its norms."""

    @staticmethod
    def norm(input, ord=None, dim=None, keepdim=False):
        """The norm of all elements, or along dim."""
        return ops.norm(input, 2 if ord is None else ord, [] if dim is None else dim, keepdim)
    vector_norm = norm

    def __getattr__(self, name):
        raise AttributeError("troupe.linalg has no %r: it has norm and vector_norm; NumPy's linalg takes x.numpy()" % name)


linalg = _LinearAlgebra()


def randint(low, high=None, size=None, **kwargs):
    """Random integers in [low, high), or of one number in [0, low)."""
    if size is None:  # randint(10, (2, 3))
        low, high, size = 0, low, high
    return ops.randint(low, high, list(size), **kwargs)


def _of_dtype(dtype):
    def make(data):
        return tensor(data, dtype=dtype)
    make.__doc__ = "A tensor of %r." % dtype
    return make


class finfo:
    """The limits of a floating dtype."""
    _LIMITS = {"float32": (2.0 ** -23, 3.4028234663852886e38, 2.0 ** -126), "float64": (2.0 ** -52, 1.7976931348623157e308, 2.0 ** -1022),
               "float16": (2.0 ** -10, 65504.0, 2.0 ** -14), "bfloat16": (2.0 ** -7, 3.3895313892515355e38, 2.0 ** -126)}

    def __init__(self, dtype=_core.float32):
        self.eps, self.max, self.tiny = self._LIMITS[dtype.name]
        self.min, self.bits = -self.max, 8 * dtype.itemsize


class iinfo:
    """The limits of an integer dtype."""

    def __init__(self, dtype):
        self.bits = 8 * dtype.itemsize
        self.min, self.max = (0, 255) if dtype.name == "uint8" else (-2 ** (self.bits - 1), 2 ** (self.bits - 1) - 1)


def get_default_dtype():
    """What numbers with a fraction become: float32."""
    return _core.float32


def set_default_dtype(dtype):
    """float32 is the only one."""
    if _core.float32 is not dtype:
        raise TypeError("the default is float32: give dtype= where tensors are made")


_FUNCTIONS = {
    "numel": numel, "max": _extreme("max", "maximum"), "min": _extreme("min", "minimum"), "add": _alpha("add"), "sub": _alpha("sub"),
    "einsum": _several("einsum", 1), "meshgrid": _several("meshgrid", 0), "empty": empty, "normal": normal, "trace": trace,
    "swapaxes": swapaxes, "clip": clip, "ravel": ravel, "concat": lambda tensors, dim=0: ops.cat(tensors, dim), "cuda": cuda, "linalg": linalg,
    "randint": randint, "FloatTensor": _of_dtype(_core.float32), "DoubleTensor": _of_dtype(_core.float64),
    "LongTensor": _of_dtype(_core.int64), "finfo": finfo, "iinfo": iinfo, "pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan,
    "get_default_dtype": get_default_dtype, "set_default_dtype": set_default_dtype, "as_tensor": as_tensor,
}
_METHODS = {
    "max": _FUNCTIONS["max"], "min": _FUNCTIONS["min"], "add": _FUNCTIONS["add"], "sub": _FUNCTIONS["sub"], "scatter_": scatter_,
    "trace": trace, "swapaxes": swapaxes, "clip": clip, "ravel": ravel, "type": type_of,
    "expand_as": lambda self, other: self.expand(other.shape), "view_as": lambda self, other: self.view(other.shape),
    "reshape_as": lambda self, other: self.reshape(other.shape),
}


def dress(names):
    """Puts these into the package, where the catalog has none of its own, and on tensors."""
    for name, function in _FUNCTIONS.items():
        names[name] = function
    for name, function in _METHODS.items():
        setattr(Tensor, name, function)
