"""What a thread records, and in which precision it computes, for the length of a `with`."""
import functools

from . import _core

is_grad_enabled = _core.is_grad_enabled


class _Mode:
    """One may be entered again and again, and within itself; it decorates functions, too."""

    def __init__(self):
        self._scopes = []

    def _begin(self, scope):
        raise NotImplementedError

    def __enter__(self):
        scope = _core.ModeScope()
        self._begin(scope)
        self._scopes.append(scope)
        return self

    def __exit__(self, *_):
        self._scopes.pop().end()

    def __call__(self, function):
        @functools.wraps(function)
        def within(*args, **kwargs):
            with type(self)(*self._arguments()):
                return function(*args, **kwargs)
        return within

    def _arguments(self):
        return ()


class set_grad_enabled(_Mode):
    """with set_grad_enabled(training): operators are recorded, or not."""

    def __init__(self, mode):
        super().__init__()
        self._mode = bool(mode)

    def _begin(self, scope):
        scope.record(self._mode)

    def _arguments(self):
        return (self._mode,)


class _Fixed(_Mode):
    def __new__(cls, function=None):
        self = super().__new__(cls)
        if function is None:
            return self
        self.__init__()
        return self(function)  # @no_grad without brackets

    def __init__(self, function=None):
        super().__init__()

    def _begin(self, scope):
        scope.record(self._on)


class no_grad(_Fixed):
    """with no_grad(): nothing is recorded."""
    _on = False


class inference_mode(no_grad):
    """The same as no_grad."""


class enable_grad(_Fixed):
    """with enable_grad(): operators are recorded, also inside no_grad."""
    _on = True


class autocast(_Mode):
    """with autocast("cpu", dtype=troupe.bfloat16): products, convolutions and attention compute in halves."""

    def __init__(self, device_type="cpu", dtype=None, enabled=True):
        super().__init__()
        self._all = (device_type, dtype or _core.bfloat16, enabled)

    def _begin(self, scope):
        scope.autocast(self._all[1] if self._all[2] else None)

    def _arguments(self):
        return self._all


class autograd:
    """As torch.autograd."""

    @staticmethod
    def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, allow_unused=False):
        """Gradients of outputs, weighted by grad_outputs, with respect to inputs; it touches no .grad."""
        retain = create_graph if retain_graph is None else retain_graph
        found = _core.grad(outputs, inputs, grad_outputs, retain, create_graph)
        if not allow_unused and any(g is None for g in found):
            raise _core_error("grad: input %d was not used to compute the outputs; allow_unused=True gives None for it"
                              % [g is None for g in found].index(True))
        return tuple(found)

    @staticmethod
    def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False):
        """Adds the gradients of a tensor, or of the sum of several, into the .grad of all leaves."""
        roots = tensors if isinstance(tensors, (list, tuple)) else [tensors]
        weights = grad_tensors if isinstance(grad_tensors, (list, tuple)) else [grad_tensors] * len(roots)
        retain = create_graph if retain_graph is None else retain_graph
        for i, (root, weight) in enumerate(zip(roots, weights)):
            root.backward(weight, retain_graph=retain or i + 1 < len(roots), create_graph=create_graph)


def _core_error(text):
    from ._errors import Error
    error = Error(text)
    error.kind, error.message = "invalid", text
    return error
