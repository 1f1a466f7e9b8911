"""A worker of Cluster(processes=n), started by it: python -m troupe.worker CHECKPOINTS LIBRARY..."""
import sys

from . import _core

if __name__ == "__main__":
    for library in sys.argv[2:]:
        _core.load_library(library)
    sys.exit(_core.serve(sys.argv[1] if len(sys.argv) > 1 else ""))
