"""Optimizers under PyTorch's names: of tensors here, or of actors, whose parameters stay where they are."""
from .. import _catalog, _core
from .._tensor import Tensor
from . import lr_scheduler

_NAMES = {"sgd": "SGD", "adamw": "AdamW", "rmsprop": "RMSprop", "lamb": "LAMB", "nadam": "NAdam", "radam": "RAdam"}


_TUPLES = {"betas": ("beta1", "beta2"), "etas": ("eta_minus", "eta_plus"), "step_sizes": ("step_min", "step_max"),
           "ns_coefficients": ("ns_a", "ns_b", "ns_c"), "eps": ("eps1", "eps2")}


def _options(options):
    out = {k: v for k, v in options.items() if k not in ("fused", "foreach", "capturable", "differentiable")}  # how, not what
    for name, parts in _TUPLES.items():
        if name not in out or (name == "eps" and not isinstance(out[name], (tuple, list))):
            continue
        values = out.pop(name)
        if not isinstance(values, (tuple, list)) or len(values) != len(parts):
            raise ValueError("%s are %d numbers, got %r" % (name, len(parts), values))
        out.update((part, 0 if value is None else value) for part, value in zip(parts, values))
    if "adjust_lr_fn" in out:
        word = out.pop("adjust_lr_fn")
        if word not in (None, "original", "match_rms_adamw", "spectral_unclamped"):
            raise ValueError('adjust_lr_fn is None, "original", "match_rms_adamw" or "spectral_unclamped", got %r' % (word,))
        out.update({word: True} if word not in (None, "original") else {})
    return out


def _positions(names):
    """The names of arguments in PyTorch's order, in which one tuple stands for several of ours."""
    first = {parts[0]: name for name, parts in _TUPLES.items()}
    behind = {part for parts in _TUPLES.values() for part in parts[1:]}
    return [first.get(n, n) for n in names if n not in behind]


class _Group(dict):
    """The options of a group; what is written there holds from the next step on."""

    def __init__(self, optimizer, number):
        super().__init__(optimizer._core.options(number))
        self._optimizer, self._number = optimizer, number

    def __setitem__(self, name, value):
        self._optimizer._core.change_options(self._number, {name: value})
        super().__setitem__(name, value)


class Optimizer:
    """optim.SGD(model.parameters(), lr=0.1); of actors: optim.SGD([a, b], lr=0.1), which steps within `with cluster.context():`."""
    _entry = None

    def __init__(self, params, *args, groups=None, **options):
        for name, value in zip(_positions([p[0] for p in self._entry.parameters]), args):
            if name in options:
                raise TypeError("%s() got several values for %s" % (type(self).__name__, name))
            options[name] = value
        options = _options(options)
        params = getattr(params, "_actors", params)  # replicas, pipelines
        params = [params] if isinstance(params, (Tensor, _core.Actor)) else list(params)
        if params and isinstance(params[0], dict):
            own = [(list(p["params"]), {**options, **_options({k: v for k, v in p.items() if k != "params"})}) for p in params]
            self._core = _core.optimizer_of_groups(self._entry.name, own)
        else:
            if params and isinstance(params[0], tuple):  # named_parameters()
                params = [p for _, p in params]
            self._core = _core.optimizer(self._entry.name, params, {**options, **({"groups": groups} if groups else {})})

    def step(self, closure=None):
        """One step, with the .grad of tensors here, or the gradients of the context that this code is in."""
        loss = closure() if closure else None
        self._core.step()
        return loss

    def zero_grad(self, set_to_none=True):
        """Drops the gradients of tensors here; those of actors end with their context."""
        self._core.zero_grad()

    @property
    def param_groups(self):
        """The options of each group: opt.param_groups[0]["lr"] = 0.01 changes one."""
        return [_Group(self, i) for i in range(self._core.group_count())]

    def clip_grad_norm(self, max_norm):
        """Scales the gradients to that norm at most; the norm before."""
        return _core.clip_grad_norm([self._core], max_norm)

    def state_dict(self):
        """What steps have left behind, by name; of tensors here."""
        return self._core.state()

    def load_state_dict(self, state):
        """Goes on from it."""
        self._core.load_state(state)

    def save(self, path):
        """Writes its state: a file, or of actors a folder with one for each."""
        self._core.save(str(path))

    def load(self, path):
        """Goes on from it."""
        self._core.load(str(path))

    def __repr__(self):
        return "<%s>" % self._core


def step_all(optimizers):
    """One step of several optimizers of actors: all make it, or none, whoever is lost meanwhile."""
    _core.step_all([o._core for o in optimizers])


def clip_grad_norm(optimizers, max_norm):
    """One norm over the gradients of several optimizers."""
    optimizers = [optimizers] if isinstance(optimizers, Optimizer) else optimizers
    return _core.clip_grad_norm([o._core for o in optimizers], max_norm)


for _name, _entry in _catalog.section("optim", "Optimizers").items():
    _class = _NAMES.get(_name, _name.capitalize())
    globals()[_class] = type(_class, (Optimizer,), {"_entry": _entry, "__module__": "troupe.optim", "__doc__":
                                                    _entry.signature + "\n\n" + _entry.text})


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(_catalog.unknown("troupe.optim", name, [n for n in globals() if n[:1].isupper()]))
