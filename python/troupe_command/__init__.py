"""The command `troupe` of an installed wheel. A package of its own: it starts without loading the library twice."""
import os
import sys


def main():
    """Becomes the command."""
    program = os.path.join(os.path.dirname(__file__), "troupe")
    os.execv(program, [program] + sys.argv[1:])
