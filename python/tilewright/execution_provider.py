"""Tilewright inside of ONNX Runtime: the execution provider ``TilewrightExecutionProvider`` (docs/onnxruntime.md).

::

    import onnxruntime as ort
    import tilewright.execution_provider

    tilewright.execution_provider.register()
    session = ort.InferenceSession("model.onnx", providers=["TilewrightExecutionProvider", "CPUExecutionProvider"])

ONNX Runtime is not imported before it is needed, and needs to be 1.23 or later.
"""

from . import _tilewright

__all__ = ["get_ep_name", "get_ep_names", "get_library_path", "register", "unregister"]

_NAME = "TilewrightExecutionProvider"
_REGISTRATION = "tilewright"


def get_library_path() -> str:
    """The library for ``onnxruntime.register_execution_provider_library``."""
    return str(_tilewright.__file__)


def get_ep_name() -> str:
    """The name that sessions take in ``providers``."""
    return _NAME


def get_ep_names() -> list[str]:
    """The names of all providers of the library."""
    return [_NAME]


def register() -> None:
    """Makes the provider known to ONNX Runtime in this process; nothing if it is already."""
    import onnxruntime

    if not any(device.ep_name == _NAME for device in onnxruntime.get_ep_devices()):
        onnxruntime.register_execution_provider_library(_REGISTRATION, get_library_path())


def unregister() -> None:
    """Undoes ``register``. Sessions that use the provider must be gone."""
    import onnxruntime

    onnxruntime.unregister_execution_provider_library(_REGISTRATION)
