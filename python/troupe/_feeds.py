"""Data larger than memory: sources, and feeds of their batches."""
import atexit
import weakref

from . import _core
from ._core import Source

_open = weakref.WeakSet()


def _plain(value):
    """Paths as texts; whatever gives several, a set or a generator, as a list."""
    if hasattr(value, "__fspath__"):
        return str(value)
    return value if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__") else [_plain(v) for v in value]


def source(name, /, *args, **kwargs):
    """A source of the catalog, by its name; its first argument, files or folder, is a path, or several."""
    named = {k: _plain(v) if k in ("files", "folder") else v for k, v in kwargs.items()}
    return _core.source(name, *map(_plain, args[:1]), *args[1:], **named)


def side_by_side(*sources):
    """The fields of several sources as one sample: side_by_side(npy_rows("x/"), npy_rows("y/", field="y"))."""
    return _core.side_by_side(list(sources))


def mixed(parts, size=0):
    """Several sources by weight: mixed([(wiki, 0.7), (code, 0.3)]). size: samples of an epoch; 0, as many as there are in all."""
    return _core.mixed_sources([(source, float(weight)) for source, weight in parts], size)


class Feed:
    """Batches of a source, dicts of tensors by field, made ahead on threads: for batch in Feed(source, batch=32, seed=1): ...

    seed: of the order, which each epoch has of its own; None, the order of the source. Blocks of `block` samples that lie side by side
    are permuted, then the samples of `together` of them. steps: functions of a sample, a dict, in their order; one gives a dict, or None
    for a sample that goes, or True or False. They run on the feed's threads, under the interpreter's lock. pack=("ids", 1024) fills rows
    of that length with the ids of samples; pad={"ids": 0} pads to the longest, and bucket=("ids", [64, 128]) puts samples of similar length together. With rank and ranks, this rank's rows of each batch.
    readers=["w1", "w2"] with cluster=cluster: these workers read, without steps. device="cuda:0": where batches are. skip_broken: samples whose reading or functions fail (ValueError, KeyError) are left out and counted in report().

    Made before the loop of a Job, it goes on behind the last batch of the checkpoint, also with another batch, threads and ranks.
    """

    def __init__(self, source, batch=32, *, seed=None, steps=(), repeat=1, take=None, pack=None, bucket=None, pad=None, pad_to=1, drop_last=False,
                 skip_broken=False, threads=1, ahead=4, rank=0, ranks=1, block=1024, together=64, readers=(), cluster=None, device="cpu"):
        numbers = {"batch": batch, "repeat": repeat, "threads": threads, "ahead": ahead, "rank": rank, "ranks": ranks,
                   "block": block, "together": together, "pad_to": pad_to}
        functions = [steps] if callable(steps) else list(steps)
        self._core = _core.feed(source, functions, numbers, seed, take, dict(pad or {}), pack, bucket and (bucket[0], list(bucket[1])), drop_last, skip_broken,
                                cluster and cluster._core, list(readers), str(device))
        _open.add(self)

    def __iter__(self):
        return self

    def __next__(self):
        return self._core.next()

    def report(self):
        """Rows that were given, samples that were broken, seconds waited for them, and rows a second: a dict."""
        return dict(zip(("rows", "broken", "waited", "rows_per_second"), self._core.report()))

    def state_dict(self):
        """Its place."""
        return self._core.state_dict()

    def load_state_dict(self, state):
        """Goes on from a place, of a feed of the same source and order."""
        self._core.load_state_dict(state)


@atexit.register
def _end():  # threads may be in functions of Python, whose interpreter goes
    for feed in list(_open):
        feed._core.end()
