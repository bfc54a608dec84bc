"""Blocks of random bytes in every ggml type that we read, and the numbers that the gguf package makes of them.

Needs gguf and numpy. Usage: python scripts/golden/model_dequantise.py trainer/tests/data/model_dequantise.json
"""

import json
import sys

import gguf
import numpy

TYPES = ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
# Where in a block the half-precision numbers stand: random bytes there would give infinities.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}


def main(out: str) -> None:
    random = numpy.random.default_rng(7)
    golden = {}
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        numbers, size = gguf.GGML_QUANT_SIZES[kind]
        if numbers == 1:
            values = random.normal(size=8).astype(numpy.float32)
            raw = gguf.quants.quantize(values, kind).view(numpy.uint8).reshape(-1)
        else:
            raw = random.integers(0, 256, size=(2, size), dtype=numpy.uint8)
            for at in HALVES[name]:
                raw[:, at : at + 2] = random.normal(size=(2, 1)).astype(numpy.float16).view(numpy.uint8)
            raw = raw.reshape(-1)
        values = gguf.quants.dequantize(raw, kind).astype(numpy.float32).reshape(-1)
        assert numpy.isfinite(values).all()
        golden[name] = {
            "bytes": raw.tobytes().hex(),
            # The bit patterns, so that the comparison is exact.
            "f32": values.tobytes().hex(),
        }
    with open(out, "w", encoding="utf-8") as handle:
        json.dump(golden, handle, indent=1)
        handle.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
