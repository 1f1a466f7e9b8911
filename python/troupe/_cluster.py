"""Clusters, actors, futures and steps."""
import asyncio
import atexit
import contextvars
import os
import select
import sys
import threading
import weakref

from . import _core
from ._core import Actor, Future, Step

_step = contextvars.ContextVar("troupe step", default=None)
_core.set_step_variable(_step)
_open = weakref.WeakSet()


class Cluster:
    """Workers w0, w1, ...; this process drives as w0.

    Cluster(workers=3): all in this process. Cluster(processes=3): two more processes, which end with it. Under a launcher
    (`troupe run -n 3 python train.py`, torchrun) the cluster is that of the launched processes: those of other ranks serve here until
    the driver ends, and go no further.

    timeout: seconds that a call may take. checkpoint: a folder for the checkpoints of troupe.Job; resume: go on from the newest one
    there; every: steps from one to the next (0: as often as costs 3 % of the time); keep: how many stay.
    """

    def __init__(self, workers=None, *, processes=None, timeout=60.0, checkpoint="", resume=False, every=0, keep=2):
        checkpoint = str(checkpoint)
        launched = _core.launched_as()
        if launched and launched[1] > 1 and launched[0] > 0:
            sys.stdout.flush()
            sys.exit(_core.serve(checkpoint))
        if workers is not None and processes is not None:
            raise TypeError("Cluster(workers=3) has its workers in this process, Cluster(processes=3) in processes; not both")
        self._core = _core.make_cluster(workers or 0, processes or 0, sys.executable, timeout,
                                        (checkpoint, resume, every, keep))
        _open.add(self)

    workers = property(lambda self: self._core.workers, doc="The names of its workers.")

    def spawn(self, type, worker, *args, **kwargs):
        """Makes an actor on a worker: of a type by its name, or of a module, whose parameters go there with it."""
        if isinstance(type, str):
            actor = _core.spawn(self._core, type, worker, *args, **kwargs)
            module = args[0] if type in ("Module", "ShardedModule") and args else None
        else:
            if args or kwargs:
                raise TypeError("cluster.spawn(module, worker) takes no more: the module has its arguments")
            module, actor = type, _core.spawn(self._core, "Module", worker, type)
        if hasattr(module, "_troupe_spec"):
            actor.load_state_dict(module.state_dict())
            if not module.training:
                actor.eval()
        return actor

    def context(self):
        """with cluster.context() as step: calls in it record gradients, through all workers."""
        return _Context(self._core.new_step())

    def group(self, members=None, name=""):
        """A process group of actors, or of workers by name or number; of all workers, if there is no list."""
        from ._parallel import Group
        return Group(_core.group(self._core, members, name))

    def mesh(self, dims, members=None, name="mesh"):
        """Members in several dimensions, the last one first: cluster.mesh({"dp": 2, "pp": 2})."""
        return _core.mesh(self._core, list(dims.items()), members, name)

    def measure(self, model, sample, **options):
        """Times the layers of a module on rows like these, messages and sums, on all workers at once: a profile for troupe.plan(). Options: file
        (that it writes), repeats, timeout."""
        return _core.measure(self._core, model, sample, **options)

    def lookup(self, name):
        """The actor that somebody gave this name."""
        return _core.lookup(self._core, name)

    def types(self, worker="w0"):
        """The names of the actor types that a worker can host."""
        return self._core.types(worker)

    def metrics(self, worker):
        """Counters of a worker, by name."""
        return self._core.metrics(worker)

    def shutdown(self, timeout=60.0):
        """Waits until nothing is under way, and ends all workers. A second one does nothing."""
        failures = self._core.failures() if self._core.is_open else ()
        for text in failures:
            print("a call that nobody waited for failed: " + text, file=sys.stderr)
        self._core.shutdown(timeout)
        _open.discard(self)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.shutdown()
        else:  # what failed is what counts
            self._core.end(_failed(kind))
            _open.discard(self)

    def __repr__(self):
        return "<cluster of %s>" % ", ".join(self.workers) if self._core.is_open else "<cluster, shut down>"


def launch(driver, workers=None, **options):
    """Makes a Cluster(workers, **options), calls driver(cluster), shuts the cluster down, and gives what the driver gave.

    Under `troupe run --elastic`, with a folder of checkpoints, the driver is called again if it comes to its end because a worker was
    lost: in the same process, on the workers that are there, and its Job goes on from the newest checkpoint. Actors that something
    outside the driver refers to keep it from that.
    """
    with Cluster(workers, **options) as cluster:
        return _core.run_driver(cluster._core, driver, cluster)


class _Context:
    """The step, while it is entered; it may be entered once."""

    def __init__(self, step):
        self._step = step

    def __enter__(self):
        self._token = _step.set(self._step)
        return self._step

    def __exit__(self, *_):
        _step.reset(self._token)
        self._step.close()

    def __getattr__(self, name):
        return getattr(self._step, name)


def _actor_attribute(self, name):
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        text = self.method_text(name)
    except _core_error() as e:
        if e.kind != "invalid":
            raise
        raise AttributeError(e.message) from None

    def method(*args, **kwargs):
        return self.call(name, *args, **kwargs)
    method.__name__, method.__doc__ = name, text
    return method


def _core_error():
    from ._errors import Error
    return Error


Actor.__getattr__ = _actor_attribute
Actor.__call__ = lambda self, *args, **kwargs: self.call("forward", *args, **kwargs)
Actor.__dir__ = lambda self: sorted({*object.__dir__(self), *self.methods()})
Actor.eval = lambda self: self.train(False)


class _Waker:
    """Futures in asyncio: one descriptor that Troupe's threads write to, without the interpreter's lock."""

    def __init__(self, loop):
        self.fd, self.waiting = _core.eventfd(), []
        loop.add_reader(self.fd, self.wake)

    def wake(self):
        try:
            os.read(self.fd, 8)
        except BlockingIOError:
            pass
        still = []
        for ours, theirs in self.waiting:
            if not ours.done():
                still.append((ours, theirs))
            elif not theirs.done():
                theirs.set_result(None)
        self.waiting = still


_wakers = weakref.WeakKeyDictionary()


def _await(self):
    if not self.done():
        loop = asyncio.get_running_loop()
        waker = _wakers.get(loop) or _wakers.setdefault(loop, _Waker(loop))
        future = loop.create_future()
        waker.waiting.append((self, future))
        self.wake(waker.fd)
        yield from future
    return self.result()


Future.__await__ = _await


def wait_all(futures):
    """The values of several futures, in order."""
    return [f.result() for f in futures]


_waits = threading.local()


def as_completed(futures):
    """Futures in the order in which they come."""
    if not hasattr(_waits, "descriptor"):
        _waits.descriptor = _core.eventfd()  # it stays: what comes later writes there, too
    waiting = list(futures)
    for f in waiting:
        f.wake(_waits.descriptor)
    while waiting:
        ready = [f for f in waiting if f.done()]
        waiting = [f for f in waiting if f not in ready]
        yield from ready
        if waiting and not ready:
            select.select([_waits.descriptor], [], [])
            os.read(_waits.descriptor, 8)


def _failed(kind):
    """Whether that is what a launcher counts as a failure of the driver."""
    return kind is not None and not issubclass(kind, (KeyboardInterrupt, SystemExit))


@atexit.register
def _end():
    for cluster in list(_open):
        cluster._core.end(_failed(getattr(sys, "last_type", None)))
