"""Losses as modules."""
from .. import _catalog, ops
from ._module import Module

_LOSSES = {"CrossEntropyLoss": "cross_entropy", "MSELoss": "mse_loss", "L1Loss": "l1_loss", "NLLLoss": "nll_loss",
           "BCELoss": "binary_cross_entropy", "BCEWithLogitsLoss": "binary_cross_entropy_with_logits", "SmoothL1Loss": "smooth_l1_loss",
           "HuberLoss": "huber_loss", "KLDivLoss": "kl_div", "CosineSimilarity": "cosine_similarity", "CTCLoss": "ctc_loss"}


class _Loss(Module):
    _operator = ""

    def __init__(self, **options):
        super().__init__()
        object.__setattr__(self, "_options", options)

    def forward(self, *args):
        return getattr(ops, self._operator)(*args, **self._options)

    def extra_repr(self):
        return ", ".join("%s=%r" % o for o in self._options.items())


def losses():
    """A class for each loss whose operator the catalog has."""
    known = _catalog.section("ops")
    return {name: type(name, (_Loss,), {"_operator": op, "__module__": "troupe.nn", "__doc__": "troupe.%s as a module." % op})
            for name, op in _LOSSES.items() if op in known}
