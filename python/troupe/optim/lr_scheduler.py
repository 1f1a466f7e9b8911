"""Schedules of the learning rate under PyTorch's names."""
from .. import _catalog, _core


class Scheduler:
    """Sets an option of an optimizer by a schedule of the catalog: Scheduler(opt, "cosine", 100), from its step() on."""

    def __init__(self, optimizer, schedule, *args, option="lr", **kwargs):
        self._optimizer, self._option = optimizer, option
        self._core = _core.scheduler(optimizer._core, _core.schedule(schedule, *args, **kwargs), option)

    def step(self):
        """On to the rate of the next step."""
        self._core.step()

    def get_last_lr(self):
        """The rates as they are now, of each group."""
        return [group[self._option] for group in self._optimizer.param_groups]


class StepLR(Scheduler):
    """Times gamma every step_size steps."""

    def __init__(self, optimizer, step_size, gamma=0.1):
        super().__init__(optimizer, "step_decay", step_size, gamma)


class MultiStepLR(Scheduler):
    """Times gamma at each of the milestones."""

    def __init__(self, optimizer, milestones, gamma=0.1):
        super().__init__(optimizer, "multi_step", list(milestones), gamma)


class ExponentialLR(Scheduler):
    """Times gamma every step."""

    def __init__(self, optimizer, gamma):
        super().__init__(optimizer, "exponential", gamma)


class CosineAnnealingLR(Scheduler):
    """Half a cosine down to eta_min in T_max steps."""

    def __init__(self, optimizer, T_max, eta_min=0.0):
        super().__init__(optimizer, "cosine", T_max, eta_min)


class LambdaLR:
    """The first rate of each group times lr_lambda(step)."""

    def __init__(self, optimizer, lr_lambda):
        self._optimizer, self._lambda, self._step = optimizer, lr_lambda, 0
        self._first = [group["lr"] for group in optimizer.param_groups]
        self._set()

    def _set(self):
        for group, first in zip(self._optimizer.param_groups, self._first):
            group["lr"] = first * self._lambda(self._step)

    def step(self):
        """On to the rate of the next step."""
        self._step += 1
        self._set()

    def get_last_lr(self):
        """The rates as they are now, of each group."""
        return [group["lr"] for group in self._optimizer.param_groups]


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(_catalog.unknown("troupe.optim.lr_scheduler", name, [n for n in globals() if not n.startswith("_")]))
