# SPDX-License-Identifier: Apache-2.0
"""Attention of sizes around the blocks of matrix units, as programs for `build/tests/random_programs`.

Usage: python3 tests/vulkan/attention_table.py FOLDER

Writes FOLDER/*.mlir: rows, keys, depth and width one below, at and one above what a team and a matrix have,
grouped heads, masks, bf16 and f16, results of either type. `random_programs --devices vulkan FOLDER/*.mlir`
holds each, by all its kernels, to what the evaluator makes of its operations one by one.
"""
import pathlib
import random
import re
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import gpu_kernels  # noqa: E402

# (heads, groups, rows, keys, depth, width), operands, result, mask
CASES = [
    ((1, 1, 16, 16, 8, 8), "f16", "f32", "none"),
    ((2, 1, 15, 15, 7, 7), "f16", "f16", "causal"),
    ((1, 2, 9, 17, 9, 9), "bf16", "bf16", "bias"),
    ((1, 1, 31, 33, 16, 17), "bf16", "f32", "causal"),
    ((1, 1, 33, 31, 15, 16), "f16", "f32", "bias"),
    ((2, 2, 16, 65, 17, 24), "bf16", "f32", "none"),
    ((1, 1, 65, 64, 24, 40), "f16", "f16", "causal"),
    ((1, 3, 21, 63, 32, 33), "bf16", "bf16", "causal"),
]


def _bytes(element: str, value: float) -> bytes:
    # Values are multiples of 1/64 below 2: bf16 has their upper half.
    return struct.pack("<f", value)[2:] if element == "bf16" else struct.pack("<e" if element == "f16" else "<f", value)


def with_inputs(text: str, seed: int) -> str:
    """The program with a function @inputs, as `random_programs` wants them."""
    types = re.findall(r"%\w+: tensor<([^>]*)>", text[:text.index("->")])
    draw, lines = random.Random(seed), []
    for number, of in enumerate(types):
        *dims, element = of.split("x")
        size = 1
        for dim in dims:
            size *= int(dim)
        data = b"".join(_bytes(element, draw.randrange(-128, 128) / 64) for _ in range(size))
        lines.append(f'  %{number} = stablehlo.constant dense<"0x{data.hex().upper()}"> : tensor<{of}>')
    results = ", ".join(f"tensor<{of}>" for of in types)
    names = ", ".join(f"%{number}" for number in range(len(types)))
    body = "\n".join(lines)
    return f"{text}func.func private @inputs() -> ({results}) {{\n{body}\n  return {names} : {results}\n}}\n"


def main() -> int:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for number, (sizes, element, result, mask) in enumerate(CASES):
        text = gpu_kernels.attention(sizes, element, result, mask)
        (folder / f"attention_{number}.mlir").write_text(with_inputs(text, number))
    return 0


if __name__ == "__main__":
    sys.exit(main())
