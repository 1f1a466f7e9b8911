"""Tensor: what PyTorch's has beside operators, and every operator as a method."""
from . import _catalog, _core, ops
from ._catalog import ValuesAndIndices

Tensor, dtype, device, HookHandle = _core.Tensor, _core.dtype, _core.device, _core.HookHandle
manual_seed = _core.manual_seed


class Size(tuple):
    """The sizes of a tensor."""

    def numel(self):
        n = 1
        for size in self:
            n *= size
        return n

    def __repr__(self):
        return "troupe.Size(%s)" % list(self)


def is_tensor(x):
    """Whether x is a tensor."""
    return isinstance(x, Tensor)


def _numbers(data):
    """Nested lists, with the number of each tensor of one element in its place."""
    if isinstance(data, (list, tuple)) and any(isinstance(x, (list, tuple, Tensor)) for x in data):
        return [x.item() if isinstance(x, Tensor) and x.numel() == 1 else _numbers(x) for x in data]
    return data


def tensor(data, *, dtype=None, device=None, requires_grad=False):
    """A new tensor of numbers, nested lists, or a copy of an array or tensor."""
    out = _core.tensor(_numbers(data), dtype)
    if device is not None:
        out = out.to(device)
    return out.requires_grad_() if requires_grad else out


def from_numpy(array):
    """A tensor that shares the elements of a NumPy array; of one that may not be written it is a copy."""
    return _core.from_dlpack(array)


from_dlpack = _core.from_dlpack


def from_torch(what):
    """What PyTorch has, without a copy: a tensor, a dict or list of them, or a module, whose state it is."""
    if hasattr(what, "state_dict"):
        what = what.state_dict()
    if hasattr(what, "items"):
        return {name: from_torch(tensor) for name, tensor in what.items()}
    if isinstance(what, (list, tuple)):
        return [from_torch(tensor) for tensor in what]
    return from_dlpack(what.detach().cpu())


def as_tensor(data, dtype=None, device=None):
    """A tensor of the same elements where data has some, else as tensor()."""
    if isinstance(data, Tensor):
        out = data
    elif hasattr(data, "__dlpack__") or hasattr(data, "__array_interface__"):
        out = from_dlpack(data)
    else:
        return tensor(data, dtype=dtype, device=device)
    return out.to(dtype if dtype is not None else out.dtype).to(device if device is not None else out.device)


def _method(name, entry):
    run = _core.run

    def method(self, *args, **kwargs):
        if kwargs:
            kwargs = _catalog.renamed(kwargs, ops._KEYWORDS)
        return _catalog.named(name, run(name, self, *args, **kwargs))
    return _catalog.described(method, name, entry)


def _size(self, dim=None):
    """The sizes, or that of one dimension."""
    return Size(self.sizes()) if dim is None else self.size_of(dim)


def _to(self, *args, dtype=None, device=None, copy=False, non_blocking=False):
    """The elements as another dtype, on another device, or as those of another tensor are."""
    for arg in args:
        if isinstance(arg, Tensor):
            dtype, device = arg.dtype, arg.device
        elif isinstance(arg, _core.dtype) or arg in _DTYPES:
            dtype = arg
        else:
            device = arg
    out = self
    if dtype is not None:
        out = _core.run("to", out, dtype)
    if device is not None and _core.device(str(device)) != out.device:
        out = _core.to_device(out, str(device))
    return out.clone() if copy and out.is_same(self) else out


def _cast(name):
    def method(self):
        return _core.run("to", self, name)
    method.__doc__ = "The elements as " + name + "."
    return method


def _new(name):
    def method(self, *args, dtype=None, **kwargs):
        return getattr(ops, name)(*args, dtype=self.dtype if dtype is None else dtype, **kwargs)
    method.__doc__ = "As troupe.%s, with this tensor's dtype." % name
    return method


def _iter(self):
    if self.ndim == 0:
        raise TypeError("a tensor of no dimensions has no rows to go through: x.item() is its number")
    return (self[i] for i in range(len(self)))


def _format(self, spec):
    return format(self.item(), spec) if spec and self.numel() == 1 else format(repr(self), spec)


def _no_pickle(self):
    raise TypeError("a tensor is not pickled: troupe.save_safetensors(path, {\"x\": x}) writes it, x.numpy() can be pickled")


def _zero(self):
    """Writes 0 everywhere."""
    return _core.run("fill_", self, 0)


_DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool")
_OWN = {
    "shape": property(lambda self: Size(self.sizes())),
    "size": _size, "to": _to, "zero_": _zero,
    "T": property(lambda self: _core.run("permute", self, list(range(self.ndim))[::-1])),
    "mT": property(lambda self: _core.run("transpose", self, -2, -1)),
    "data": property(lambda self: self.detach(), lambda self, value: self.detach().copy_(value)),
    "grad_fn": property(lambda self: self.has_history() or None, doc="True of a result of a recorded operator, else None."),
    "cpu": lambda self: self.to("cpu"), "is_cuda": property(lambda self: self.device.type == "cuda"),
    "cuda": lambda self, device=None: self.to("cuda" if device is None else device if isinstance(device, str) else "cuda:%d" % device),
    "__deepcopy__": lambda self, memo: self.detach().clone().requires_grad_(self.requires_grad), "__reduce__": _no_pickle,
    "type_as": lambda self, other: self.to(other.dtype),
    "__iter__": _iter, "__format__": _format, "__hash__": object.__hash__, "__array_priority__": 1000,
    "new_tensor": lambda self, data, dtype=None: tensor(data, dtype=self.dtype if dtype is None else dtype),
    **{method: _cast(name) for method, name in (("float", "float32"), ("double", "float64"), ("half", "float16"), ("long", "int64"),
                                                ("int", "int32"), ("bool", "bool"), ("bfloat16", "bfloat16"))},
    **{"new_" + name: _new(name) for name in ("zeros", "ones", "empty", "full")},
}


def _dress():
    for name, entry in _catalog.section("ops").items():
        if name not in ops._MAKE_NEW and name not in _OWN and not hasattr(Tensor, name):
            setattr(Tensor, name, _method(name, entry))
    for name, value in _OWN.items():
        setattr(Tensor, name, value)


def _missing(self, name):
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(_catalog.unknown("a tensor", name, [n for n in dir(Tensor) if not n.startswith("__")]))


_dress()
Tensor.__getattr__ = _missing
Tensor.__module__ = dtype.__module__ = device.__module__ = "troupe"
