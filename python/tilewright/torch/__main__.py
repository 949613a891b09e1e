"""Prints the table of operators that docs/torch.md has: python -m tilewright.torch."""

from . import _operators_nn, _operators_shape  # noqa: F401  (they add to the table)
from ._operators import OPERATORS


def table() -> str:
    """A row for each form in ONNX, with the ATen operators that take it."""
    rows: dict[str, list[str]] = {}
    for target, operator in OPERATORS.items():
        name = str(target).removeprefix("aten.").removesuffix(".default")
        rows.setdefault(operator.onnx, []).append(name)
    lines = ["| ONNX | ATen |", "|---|---|"]
    lines += [f"| {onnx} | {', '.join(f'`{n}`' for n in sorted(names))} |" for onnx, names in sorted(rows.items())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
