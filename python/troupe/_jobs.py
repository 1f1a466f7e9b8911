"""Loops that go on after a loss from their last checkpoint."""
import signal
import threading
import weakref

from . import _core


class Job:
    """for step in troupe.Job(cluster).steps(1000): ... A checkpoint has all actors, optimizers, modules and keep(...) dicts.

    The folder: Cluster(..., checkpoint="run1", resume=True). Ctrl-C or SIGTERM ends the loop behind its step, with a checkpoint of it.
    name: a folder within that folder, for a second loop.
    """

    def __init__(self, cluster, name=""):
        self._core = _core.job(cluster._core, name)

    def steps(self, total=None):
        """0, 1, ..., total - 1, or from the step on at which the newest checkpoint was made."""
        return _loop(self._core.steps(total))

    def batches(self, dataset, epochs):
        """x, y, epoch and whether it is the last of its epoch, over the batches of all epochs."""
        return _loop(self._core.batches(dataset, epochs))

    def attempt(self, step):
        """Calls step(), the forward, backward and optimizer's part of a step; again, where `troupe run --elastic` has lost a worker of
        replicas in it, once all that live are as they were before."""
        self._core.attempt(step)

    def check(self, number):
        """What a step came to, its loss: one that is made again has to come to the same."""
        self._core.check(number)

    @property
    def resumed(self):
        """Whether its loop went on from a checkpoint."""
        return self._core.resumed

    @property
    def stopping(self):
        """Whether the loop has been asked to end."""
        return self._core.stopping


def _loop(loop):
    main = threading.current_thread() is threading.main_thread()

    def asked(number, frame):
        if not _core.take_signal(number):
            raise KeyboardInterrupt
    before = signal.signal(signal.SIGINT, asked) if main else None
    try:
        while True:
            try:
                item = loop.next()
            except StopIteration:
                return
            yield item
    finally:
        loop.close()
        if main:
            signal.signal(signal.SIGINT, before)


class _Kept(dict):
    """A dict that checkpoints have."""
    __slots__ = ("_keep", "__weakref__")


def keep(**values):
    """A dict that checkpoints have from now on: state = troupe.keep(best=0.0, losses=[])."""
    kept = _Kept(values)
    kept._keep = _core.Keep(weakref.proxy(kept))
    return kept
