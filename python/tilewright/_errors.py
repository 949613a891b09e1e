"""Exceptions. All of them are Error; ONNX Runtime's names are aliases of the closest one."""

from __future__ import annotations


class Error(RuntimeError):
    """A failure. `message` names the file, node or input; `hint` is the remedy, or empty."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}\nhint: {hint}" if hint else message)
        self.message = message
        self.hint = hint


class InvalidArgument(Error, ValueError):
    """The call is wrong: an unknown name, an array of another type."""


class InvalidModel(Error):
    """The model or the data: damaged, not supported, of another shape."""


class RuntimeException(Error):
    """The machine: a file that cannot be read, out of memory."""


class NoSuchFile(RuntimeException):
    """The model's file does not exist."""


class InternalError(Error):
    """A bug of Tilewright."""


class Busy(Error):
    """Another thread uses the session."""


class Cancelled(Error):
    """RunOptions.terminate was set."""


class NotImplemented(Error, NotImplementedError):  # noqa: A001
    """A call or an option of ONNX Runtime that Tilewright does not have."""


Fail = Error
InvalidGraph = InvalidProtobuf = InvalidModel
EPFail = RuntimeException

# By tilewright_status.
_CLASSES = {1: InvalidArgument, 2: InvalidModel, 3: RuntimeException, 4: InternalError, 5: Busy, 6: Cancelled}


def make(status: int, message: str, hint: str) -> Error:
    """The exception for a status of the C interface."""
    return _CLASSES.get(status, Error)(message, hint)
