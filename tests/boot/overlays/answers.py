"""Run as a process: asks plain_shapes and the real module the same, and prints as JSON where their answers differ."""

import json
import warnings
from itertools import product
from typing import Any

import torch
from torch.fx.experimental import symbolic_shapes

from trainer_boot.overlays import plain_shapes

TENSOR = torch.zeros(2, 3)[:, 1:]
VALUES: list[Any] = [
    *(True, False, 0, 1, 7, -1, 0.5, None, "text", (), (1, 2), [1, 2], (1, True), (1, (2, 3)), [[1], 2], {"a": 1}),
    *(TENSOR, TENSOR.to_sparse(), [TENSOR, 3], torch.Generator(), torch.Size([1, 2]), object),
]


def answer(module: Any, name: str, *arguments: Any) -> Any:
    try:
        found = getattr(module, name)(*arguments)
        told = list(found) if name.startswith(("_iterate", "free")) else found
    except Exception as error:
        return type(error).__name__, str(error)
    return type(found).__name__, told


def same(one: Any, other: Any) -> bool:
    """Generators are told by what they give; their kinds differ."""
    return bool(one[1] == other[1] and {one[0], other[0]} - {"generator", "tuple_iterator"} in (set(), {one[0]}))


def main() -> None:
    warnings.simplefilter("error")
    differ, asked = [], 0
    for name in plain_shapes.ANSWERS:
        pairs = name in ("sym_and", "sym_or", "sym_eq")
        for given in product(VALUES, VALUES) if pairs else [(value,) for value in VALUES]:
            if name == "compute_unbacked_bindings":
                given = (None, *given)
            asked += 1
            mine, real = answer(plain_shapes, name, *given), answer(symbolic_shapes, name, *given)
            if not same(mine, real):
                differ.append(f"{name}{given}: {mine}, not {real}")
    print(json.dumps([asked, differ]))


if __name__ == "__main__":
    main()
