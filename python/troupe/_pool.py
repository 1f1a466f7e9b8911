"""Actors that do the same work under supervision."""
from . import _core
from ._cluster import as_completed


class _Called:
    """Its methods are those of an actor, by call()."""

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self.call(name, *args, **kwargs)

    def __call__(self, *args, **kwargs):
        return self.call("forward", *args, **kwargs)


class Pool(_Called):
    """Actors of one type, or of a module, that do the same work: whoever is lost is made again elsewhere, and calls wait or run again.

    pool = troupe.Pool(cluster, "Rollout", 6, size=8): Rollout(6), dealt out to the workers. Options: size, on (workers), at_once, restart
    ("one", "all", "none"), most and within (losses in so many seconds; one more ends the pool). No gradients run through it.
    """
    _OPTIONS = ("size", "on", "at_once", "restart", "most", "within")

    def __init__(self, cluster, type, *args, **kwargs):
        options = {k: kwargs.pop(k) for k in self._OPTIONS if k in kwargs}
        module = None if isinstance(type, str) else type
        if module is not None:
            if args or kwargs:
                raise TypeError("troupe.Pool(cluster, module) takes options alone: the module has its arguments")
            type, args = "Module", (module,)
        self._core = _core.pool(cluster._core, type, list(args), kwargs, options)
        self._state = module.state_dict() if module is not None else None
        self._training = module is None or module.training
        self._start = None
        if module is not None:
            self._core.on_start(self._begin)

    def _begin(self, actor):
        if self._state is not None:
            actor.load_state_dict(self._state)
            if not self._training:
                actor.eval()
        if self._start:
            self._start(actor)

    def on_start(self, function):
        """function(actor) runs before a member takes its first call, and again for each that is made anew, on a thread of the pool."""
        self._start = function
        self._core.on_start(self._begin)
        return self

    def again(self, method, times=3):
        """Calls of that method may run twice: each goes to another member when its own is lost, so often."""
        self._core.again(method, times)
        return self

    def call(self, method, *args, **kwargs):
        """A future of what whoever is free gives."""
        return self._core.call(method, None, *args, **kwargs)

    def each(self, method, *args, **kwargs):
        """Futures of what each member gives."""
        return [self._core.call(method, i, *args, **kwargs) for i in range(len(self))]

    def as_they_come(self, method, tasks):
        """(number, result) of the tasks, as results come; a task is an argument, or a tuple of all."""
        futures = [self.call(method, *(task if isinstance(task, tuple) else (task,))) for task in tasks]
        numbers = {id(f): i for i, f in enumerate(futures)}
        return ((numbers[id(f)], f.result()) for f in as_completed(futures))

    def __getitem__(self, index):
        if index >= len(self) or index < 0:
            raise IndexError("the pool has %d members, got %d" % (len(self), index))
        return _Member(self._core, index)

    def __len__(self):
        return len(self._core)

    def close(self):
        """Its members go; calls that wait fail."""
        self._core.end()


class _Member(_Called):
    """A place in a pool: after a loss it is the new actor."""

    def __init__(self, core, index):
        self._core, self.index = core, index

    @property
    def incarnation(self):
        """How often it was made anew."""
        return self._core.incarnation(self.index)

    def call(self, method, *args, **kwargs):
        """A future of what this member gives."""
        return self._core.call(method, self.index, *args, **kwargs)
