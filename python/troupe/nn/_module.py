"""The base of modules: parameters, buffers and modules inside, by name."""
import collections

from .. import _core
from .._tensor import Tensor


class _ParameterKind(type):
    def __instancecheck__(cls, x):
        return isinstance(x, Tensor) and x.is_leaf and x.requires_grad


class Parameter(metaclass=_ParameterKind):
    """Parameter(tensor): a leaf that a module trains."""

    def __new__(cls, data, requires_grad=True):
        return data.detach().requires_grad_(requires_grad)


class Module:
    """A model, or a part of it. One with a forward of your own computes in this process; see troupe.nn for those that actors take."""

    def __init__(self):
        object.__setattr__(self, "_parameters", {})
        object.__setattr__(self, "_buffers", {})
        object.__setattr__(self, "_modules", {})
        object.__setattr__(self, "training", True)

    # ---- what it has

    def __setattr__(self, name, value):
        if "_modules" not in self.__dict__:
            raise AttributeError("call super().__init__() before you assign to a module")
        for kept in (self._parameters, self._buffers, self._modules):
            if name in kept and not (kept is self._buffers and isinstance(value, Tensor)):
                del kept[name]
        if isinstance(value, Module):
            self._modules[name] = value
        elif isinstance(value, Parameter):
            self._parameters[name] = value
        elif name in self._buffers:
            self._buffers[name] = value
        else:
            object.__setattr__(self, name, value)
            return
        self.__dict__.pop(name, None)

    def __getattr__(self, name):
        for kept in ("_parameters", "_buffers", "_modules"):
            found = self.__dict__.get(kept, {})
            if name in found:
                return found[name]
        raise AttributeError("%s has no %r" % (type(self).__name__, name))

    def register_parameter(self, name, parameter):
        """A parameter by its name; None: there is none."""
        self._parameters[name] = parameter

    def register_buffer(self, name, tensor, persistent=True):
        """A tensor that belongs to the state, but is not trained."""
        self._buffers[name] = tensor

    def add_module(self, name, module):
        """A module inside, by its name."""
        self._modules[name] = module

    def _own(self, kind):
        return self._parameters if kind == "parameters" else self._buffers

    def _named(self, kind, prefix, seen):
        for name, tensor in self._own(kind).items():
            if tensor is not None and not any(tensor.is_same(t) for t in seen):
                seen.append(tensor)
                yield prefix + name, tensor
        for name, module in self._modules.items():
            if module is not None:
                yield from module._named(kind, prefix + name + ".", seen)

    def named_parameters(self, prefix="", recurse=True):
        """Parameters with their names, each once."""
        return self._named("parameters", prefix + "." if prefix else "", [])

    def parameters(self, recurse=True):
        """What an optimizer takes."""
        return (p for _, p in self.named_parameters())

    def named_buffers(self, prefix="", recurse=True):
        """Buffers with their names."""
        return self._named("buffers", prefix + "." if prefix else "", [])

    def buffers(self, recurse=True):
        """Tensors of the state that are not trained."""
        return (b for _, b in self.named_buffers())

    def children(self):
        """The modules directly inside."""
        return (m for m in self._modules.values() if m is not None)

    def named_children(self):
        """The same with their names."""
        return ((n, m) for n, m in self._modules.items() if m is not None)

    def named_modules(self, prefix=""):
        """This module and all inside, with their names."""
        yield prefix, self
        for name, module in self.named_children():
            yield from module.named_modules(prefix + "." + name if prefix else name)

    def modules(self):
        """This module and all inside."""
        return (m for _, m in self.named_modules())

    def get_submodule(self, name):
        """The module of that name inside: "encoder.0"."""
        module = self
        for part in name.split(".") if name else ():
            if part not in module._modules:
                raise AttributeError("%s has no module %r" % (type(module).__name__, part))
            module = module._modules[part]
        return module

    # ---- state

    def _state(self, prefix, out):
        for kept in (self._own("parameters"), self._own("buffers")):
            for name, tensor in kept.items():
                if tensor is not None:
                    out[prefix + name] = tensor.detach()
        for name, module in self.named_children():
            module._state(prefix + name + ".", out)

    def state_dict(self):
        """Parameters and buffers by name; the elements are shared with the module."""
        out = collections.OrderedDict()
        self._state("", out)
        return out

    def load_state_dict(self, state, strict=True):
        """Copies the values in. Errors name what is missing, unexpected or of another shape, with nothing changed."""
        mine = self.state_dict()
        missing, extra = [n for n in mine if n not in state], [n for n in state if n not in mine]
        wrong = ["%s is %s, got %s" % (n, list(mine[n].shape), list(state[n].shape)) for n in mine
                 if n in state and tuple(state[n].shape) != tuple(mine[n].shape)]
        if wrong or strict and (missing or extra):
            from .._errors import Error
            raise Error("[load_state_dict] missing: %s; unexpected: %s; of another shape: %s"
                        % tuple(", ".join(n) or "none" for n in (missing, extra, wrong)))
        for name, tensor in mine.items():
            if name in state:
                tensor.copy_(state[name])
        return collections.namedtuple("LoadedState", "missing_keys unexpected_keys")(missing, extra)

    # ---- modes

    def train(self, mode=True):
        """Training mode, of this module and all inside."""
        object.__setattr__(self, "training", bool(mode))
        for module in self.children():
            module.train(mode)
        return self

    def eval(self):
        """Evaluation mode."""
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        """Whether its parameters are trained."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        """Drops the gradients of its parameters."""
        for p in self.parameters():
            p.grad = None

    def to(self, *args, dtype=None, device=None):
        """Its parameters and buffers in another dtype, or on another device."""
        for arg in args:
            if isinstance(arg, _core.dtype):
                dtype = arg
            else:
                device = arg
        for module in self.modules():
            module._convert(dtype, device)
        return self

    def _convert(self, dtype, device):
        for kept in (self._parameters, self._buffers):
            for name, tensor in kept.items():
                if tensor is not None and (device is not None or tensor.is_floating_point()):
                    kept[name] = tensor.detach().to(dtype=dtype, device=device).requires_grad_(tensor.requires_grad)

    def apply(self, function):
        """Calls a function with each module inside, then this one."""
        for module in self.children():
            module.apply(function)
        function(self)
        return self

    def forward(self, *args, **kwargs):
        """What the module computes."""
        raise NotImplementedError("%s has no forward(): write one" % type(self).__name__)

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    def _troupe_spec(self):
        from .._errors import Error
        raise Error("%s has a forward of its own, which runs in this process: actors take the modules of troupe.nn, nn.Sequential of "
                    "them, or an actor type of C++" % type(self).__name__)

    def extra_repr(self):
        """What its line says besides the modules inside."""
        return ""

    def __repr__(self):
        inside = ["(%s): %s" % (n, repr(m).replace("\n", "\n  ")) for n, m in self.named_children()]
        if not inside:
            return "%s(%s)" % (type(self).__name__, self.extra_repr())
        return "%s(\n  %s\n)" % (type(self).__name__, "\n  ".join(([self.extra_repr()] if self.extra_repr() else []) + inside))


for _name, _dtype in (("float", _core.float32), ("double", _core.float64), ("half", _core.float16), ("bfloat16", _core.bfloat16)):
    setattr(Module, _name, lambda self, _dtype=_dtype: self.to(_dtype))
Module.cpu = lambda self: self.to("cpu")
Module.cuda = lambda self, device=None: self.to("cuda" if device is None else device if isinstance(device, str) else "cuda:%d" % device)


class ModuleList(Module):
    """Modules in a list."""

    def __init__(self, modules=()):
        super().__init__()
        self.extend(modules)

    def append(self, module):
        """One more, at the end."""
        self.add_module(str(len(self._modules)), module)
        return self

    def extend(self, modules):
        """Several more."""
        for module in modules:
            self.append(module)
        return self

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def __getitem__(self, i):
        found = list(self._modules.values())[i]
        return type(self)(found) if isinstance(i, slice) else found


class ModuleDict(Module):
    """Modules by name."""

    def __init__(self, modules=None):
        super().__init__()
        for name, module in (modules or {}).items():
            self.add_module(name, module)

    def __getitem__(self, name):
        return self._modules[name]

    __setitem__ = Module.add_module
    keys = lambda self: self._modules.keys()  # noqa: E731
    values = lambda self: self._modules.values()  # noqa: E731
    items = lambda self: self._modules.items()  # noqa: E731
    __iter__ = lambda self: iter(self._modules)  # noqa: E731
    __len__ = lambda self: len(self._modules)  # noqa: E731
    __contains__ = lambda self, name: name in self._modules  # noqa: E731
