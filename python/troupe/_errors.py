"""The one error of Troupe."""
from . import _core


class Error(RuntimeError):
    """What went wrong, and what to do next.

    kind: "invalid" (fix the call), "failed" (the callee's code threw), "overloaded", "deadline", "disconnected" (a worker is gone:
    .worker names it), "cancelled" or "unimplemented". message: the text alone; trail: the calls that the error crossed, innermost
    first.
    """
    kind, message, trail, worker = "failed", "", (), ""


_core.set_error_type(Error)
