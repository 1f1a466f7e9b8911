"""Every operator and function of tensors by name; troupe.NAME is the same. dir(troupe.ops) lists them."""
from . import _catalog, _core

_KNOWN = _catalog.section("ops")
_MAKE_NEW = {n for n, e in _KNOWN.items() if not (e.parameters and "tensor" in e.parameters[0][1]) and n not in ("einsum",)}
_KEYWORDS = {"axis": "dim", "keepdims": "keepdim"}


def _plain(name):
    run = _core.run

    def operator(*args, **kwargs):
        return _catalog.named(name, run(name, *args, **_catalog.renamed(kwargs, _KEYWORDS)) if kwargs else run(name, *args))
    return operator


def _making(name):
    def operator(*args, device=None, requires_grad=False, generator=None, **kwargs):
        if generator is not None:
            raise TypeError("troupe.%s draws from the numbers that troupe.manual_seed(seed) begins: there are no generators" % name)
        out = _core.run(name, *args, **kwargs)
        if device is not None:
            out = out.to(device)
        return out.requires_grad_() if requires_grad else out
    return operator


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    if name not in _KNOWN:
        raise AttributeError(_catalog.unknown("troupe", name, _KNOWN))
    operator = _catalog.described((_making if name in _MAKE_NEW else _plain)(name), name, _KNOWN[name])
    globals()[name] = operator  # `sum` and others cover Python's own here: this file uses none of those
    return operator


def __dir__():
    return list(_KNOWN)
