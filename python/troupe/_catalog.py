"""What can be called by name, as C++ lists it."""
import collections
import difflib

from . import _core

Entry = collections.namedtuple("Entry", "prefix title name parameters result text signature")
ValuesAndIndices = collections.namedtuple("ValuesAndIndices", "values indices")
_PAIRS = {"max", "min", "sort", "topk", "median", "nanmedian", "mode", "kthvalue", "cummax", "cummin"}
_ENTRIES = [Entry(*e) for e in _core.catalog()]


def section(prefix, title=None):
    """{name: Entry} of a section."""
    return {e.name: e for e in _ENTRIES if e.prefix == prefix and title in (None, e.title)}


def described(function, name, entry):
    """The function with its name and what help() says of it."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = entry.signature + "\n\n" + entry.text
    return function


def renamed(kwargs, names):
    """Keyword arguments under the names that the catalog has."""
    return {names.get(k, k): v for k, v in kwargs.items()}


def named(name, result):
    """What sort, topk, max along a dimension and their like give: values and indices."""
    if name in _PAIRS and isinstance(result, (list, tuple)) and len(result) == 2:
        return ValuesAndIndices(*result)
    return result


def unknown(where, name, known):
    """The text of an AttributeError, with the nearest name."""
    near = difflib.get_close_matches(name, known, 1, 0.7)
    return "%s has no %r%s" % (where, name, "; did you mean %r?" % near[0] if near else "; dir(%s) lists what there is" % where)
