"""Troupe: models whose parts live in actors on several workers; gradients run through the calls between them.

Tensors, modules and optimizers have PyTorch's names: troupe.zeros(2, 3), troupe.nn.Linear, troupe.optim.AdamW.
"""
from . import _core
from ._errors import Error
from ._tensor import (HookHandle, Size, Tensor, ValuesAndIndices, as_tensor, device, dtype, from_dlpack, from_numpy, from_torch, is_tensor,
                      manual_seed, tensor)
from ._modes import autocast, autograd, enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from ._cluster import Actor, Cluster, Future, Step, as_completed, launch, wait_all
from ._core import load_safetensors, save_safetensors
from ._jobs import Job, keep
from ._libraries import load
from ._parallel import DataParallel, Group, Pipeline, Pipelines, plan, serve
from ._drawing import Chart
from ._pool import Pool
from . import _extras, data, llm, nn, ops, optim, utils

_extras.dress(globals())

float32, float64, float16, bfloat16 = _core.float32, _core.float64, _core.float16, _core.bfloat16
int64, int32, uint8 = _core.int64, _core.int32, _core.uint8
_ALIASES = {"float": float32, "double": float64, "half": float16, "long": int64, "int": int32, "bool": _core.bool}
_OTHERS = {
    "save": "troupe.save_safetensors(path, model.state_dict()); files of torch.save hold code and are not written",
    "compile": "the model as it is: there is no compiler",
    "jit": "the model as it is: there is no compiler",
    "distributed": "troupe.Cluster, troupe.DataParallel, or cluster.group() and its all_reduce",
    "set_num_threads": "TROUPE_NUM_THREADS=n before the command",
    "random": "troupe.manual_seed(seed), troupe.rand and their like",
    "Generator": "troupe.manual_seed(seed)",
    "complex64": "two tensors: there are no complex numbers",
}


def __getattr__(name):
    if name in _ALIASES:
        return _ALIASES[name]
    if name in _OTHERS:
        raise AttributeError("troupe.%s is not there: write %s" % (name, _OTHERS[name]))
    if name.startswith("__"):
        raise AttributeError(name)
    value = getattr(ops, name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_ALIASES, *dir(ops)})
