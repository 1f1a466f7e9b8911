"""Modules of the catalog as classes: nn.Linear(784, 128), with PyTorch's names of arguments beside the catalog's."""
from .. import _catalog, _core
from ._module import Module, ModuleList

_NAMES = {"relu": "ReLU", "gelu": "GELU", "silu": "SiLU", "elu": "ELU", "celu": "CELU", "selu": "SELU", "glu": "GLU", "prelu": "PReLU",
          "relu6": "ReLU6", "leaky_relu": "LeakyReLU", "rms_norm": "RMSNorm", "lstm": "LSTM", "gru": "GRU", "rnn": "RNN"}
_ARGUMENTS = {"in_features": "in", "in_channels": "in", "out_features": "out", "out_channels": "out", "kernel_size": "kernel",
              "num_embeddings": "count", "embedding_dim": "width", "normalized_shape": "shape", "num_groups": "groups",
              "num_channels": "channels", "num_features": "channels", "embed_dim": "width", "num_heads": "heads", "d_model": "width",
              "nhead": "heads", "input_size": "input", "hidden_size": "hidden", "num_layers": "layers"}
_BATCH_FIRST = ("MultiheadAttention", "TransformerEncoderLayer")


class _Layer(Module):
    """A module of C++, with the parameters that it has there."""
    _entry = None

    def __init__(self, *args, **kwargs):
        super().__init__()
        inplace = kwargs.pop("inplace", None)  # what it gives is the same
        if inplace is not None and inplace not in (True, False):
            raise TypeError("inplace is True or False")
        device = kwargs.pop("device", None)
        if type(self).__name__ in _BATCH_FIRST and kwargs.pop("batch_first", False) is not True:
            raise TypeError("nn.%s takes x [batch, time, width]: write batch_first=True" % type(self).__name__)
        layer = _core.layer(self._entry.name, *args, **_catalog.renamed(kwargs, _ARGUMENTS))
        object.__setattr__(self, "_layer", layer)
        self._parameters.update(layer.parameters())
        self._buffers.update(layer.buffers())
        if device is not None:
            self.to(device)

    def __setattr__(self, name, value):
        if name in self._parameters or name in self._buffers:
            self._layer.replace(name, value)
            (self._parameters if name in self._parameters else self._buffers)[name] = value
        else:
            super().__setattr__(name, value)

    def __getattr__(self, name):
        layer = self.__dict__.get("_layer")
        if layer is None or name.startswith("__") or name in self._parameters or name in self._buffers:
            return super().__getattr__(name)
        spec = layer.spec()
        if name in ("weight", "bias"):  # there is none
            return None
        key = _ARGUMENTS.get(name, name)
        return spec[key] if isinstance(spec, dict) and key in spec else super().__getattr__(name)

    def __deepcopy__(self, memo):
        made = self.__class__.__new__(self.__class__)
        Module.__init__(made)
        spec = self._layer.spec()
        name = spec.pop("module") if isinstance(spec, dict) else spec
        object.__setattr__(made, "_layer", _core.layer(name, **(spec if isinstance(spec, dict) else {})))
        made._parameters.update(made._layer.parameters())
        made._buffers.update(made._layer.buffers())
        made.load_state_dict(self.state_dict())
        for name, p in self._parameters.items():
            made._parameters[name].requires_grad_(p.requires_grad)
        return made.train(self.training)

    def forward(self, input, *others):
        """What it computes of one tensor."""
        if others:
            raise TypeError("nn.%s computes with one tensor here: %s" % (type(self).__name__, (
                "self-attention, y = m(x)" if "Attention" in type(self).__name__ else "m(x)")))
        return self._layer.forward(input)

    def train(self, mode=True):
        self._layer.train(bool(mode))
        return super().train(mode)

    def _convert(self, dtype, device):
        if dtype is not None:
            self._layer.to_dtype(dtype)
        if device is not None:
            self._layer.to_device(str(device))

    def _troupe_spec(self):
        frozen = [name for name, p in self._parameters.items() if p is not None and not p.requires_grad]
        if frozen:
            raise TypeError("nn.%s has parameters that are not trained here (%s), and an actor would train them: leave requires_grad on, and "
                            "give them groups=[{\"params\": ..., \"lr\": 0.0}] in the optimizer" % (type(self).__name__, ", ".join(frozen)))
        return self._layer.spec()

    def __repr__(self):
        text = repr(self._layer)
        return text if "(" in text else text + "()"


class Sequential(ModuleList):
    """Modules one after the other."""

    def __init__(self, *modules):
        if len(modules) == 1 and isinstance(modules[0], dict):
            super().__init__()
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            super().__init__(modules[0] if len(modules) == 1 and isinstance(modules[0], (list, tuple)) else modules)

    def forward(self, input):
        """What the last one gives."""
        for module in self:
            input = module(input)
        return input

    def __getitem__(self, i):
        return Sequential(*list(self._modules.values())[i]) if isinstance(i, slice) else super().__getitem__(i)

    def _troupe_spec(self):
        return {"module": "sequential", "layers": [module._troupe_spec() for module in self]}


def class_name(name):
    """PyTorch's name of a module of the catalog."""
    return _NAMES.get(name, "".join(part[:1].upper() + part[1:] for part in name.split("_")))


def classes():
    """A class for each module of the catalog."""
    out = {}
    for name, entry in _catalog.section("nn").items():
        if name != "sequential":
            cls = type(class_name(name), (_Layer,), {"_entry": entry, "__module__": "troupe.nn", "__doc__":
                                                     entry.signature + "\n\n" + entry.text})
            out[cls.__name__] = cls
    return out
