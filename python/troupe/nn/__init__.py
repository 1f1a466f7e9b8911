"""Modules under PyTorch's names. Those of the catalog (nn.Linear, ...) and nn.Sequential of them also go to actors."""
from .. import _catalog, _core
from . import functional, init, utils
from ._layers import Sequential, classes
from ._losses import losses
from ._module import Module, ModuleDict, ModuleList, Parameter

globals().update(classes())
globals().update(losses())
_MISSING = {
    "DataParallel": "troupe.DataParallel(model, cluster)",
    "Transformer": "nn.TransformerEncoderLayer, or nn::Transformer in C++",
    "LSTMCell": "nn.LSTM over one step",
}


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    if name in _MISSING:
        raise AttributeError("troupe.nn.%s is not there: write %s" % (name, _MISSING[name]))
    raise AttributeError(_catalog.unknown("troupe.nn", name, [n for n in globals() if n[:1].isupper()]))
