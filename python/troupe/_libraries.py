"""Actors in C++, of libraries of one's own."""
import os

from . import _cluster, _core


def load(library):
    """Loads actors in C++: troupe.load("build/libmine.so"), a library with TROUPE_LIBRARY(Half). Before the cluster is made, in each process.
    Gives the names of their types, for cluster.spawn("Half", "w1", ...)."""
    path = os.fspath(library)
    if list(_cluster._open):
        raise RuntimeError("troupe.load(%r) comes after the cluster, whose workers have their types: load it before troupe.Cluster(...)" % path)
    with open(path, "rb") as file:
        if file.read(4) != b"\x7fELF":
            raise TypeError("troupe.load(%r) is for libraries of actors, and this is none; write troupe.load_safetensors(path) for tensors: files of "
                            "torch.save hold code and are not read" % path)
    return _core.load_library(path)
