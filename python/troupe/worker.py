"""A worker of Cluster(processes=n): python -m troupe.worker, started by it."""
import sys

from . import _core

if __name__ == "__main__":
    sys.exit(_core.serve(sys.argv[1] if len(sys.argv) > 1 else ""))
