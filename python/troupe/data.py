"""Data sets by name, and tensors as one: for x, y in data.digits(640, batch_size=64).batches(): ..."""
from . import _catalog, _core, _feeds
from ._feeds import Feed, Source, mixed, side_by_side

_SETS = _catalog.section("data", "Data sets")
_KNOWN = _catalog.section("data")
_OWN = ("Feed", "Source", "TokenFile", "mixed", "of", "side_by_side", "write_token_file")


def of(x, y, **options):
    """Tensors as a data set. Options, of all sets: batch_size, shuffle, drop_last, rank, ranks, shard, order_seed."""
    return _core.data_of(x, y, **options)


TokenFile, write_token_file = _core.TokenFile, _core.write_token_file


def __getattr__(name):
    if name not in _KNOWN:
        raise AttributeError(name if name.startswith("__") else _catalog.unknown("troupe.data", name, [*_KNOWN, *_OWN]))

    if name not in _SETS:
        def source(*args, **kwargs):
            return _feeds.source(name, *args, **kwargs)
        return _catalog.described(source, name, _KNOWN[name])

    def data_set(*args, **kwargs):
        return _core.data_set(name, *args, **kwargs)
    return _catalog.described(data_set, name, _KNOWN[name])


def __dir__():
    return sorted([*_KNOWN, *_OWN])
