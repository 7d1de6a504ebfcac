"""How a weight matrix is stored: bytes per element, and the scales that go with it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage format: `num / den` bytes per element, and the scales beside them."""

    name: str
    num: int
    den: int = 1
    block: tuple[int, int] | None = None  # one F32 scale per rows x cols block
    row_bytes: int = 0  # per output row
    tensors: int = 1  # tensors of a checkpoint that hold one weight matrix

    def size(self, rows: int, cols: int) -> int:
        """Bytes of one `rows` x `cols` matrix with its scales."""
        weights = rows * cols * self.num // self.den + rows * self.row_bytes
        if self.block is None:
            return weights
        return weights + 4 * -(-rows // self.block[0]) * -(-cols // self.block[1])

    @property
    def per_element(self) -> str:
        """Bytes per element as a reader would write them: `2`, `0.53125`."""
        value = self.num / self.den
        return f"{value:g}"


BF16 = Storage("BF16", 2)
F32 = Storage("F32", 4)
FP8 = Storage("FP8 E4M3", 1, tensors=2)
FP8_BLOCK = Storage("FP8 E4M3, F32 scale per 128x128", 1, block=(128, 128), tensors=2)
MXFP4 = Storage("MXFP4, E8M0 scale per 32", 17, 32, tensors=2)
NVFP4 = Storage("NVFP4, E4M3 scale per 16", 9, 16, tensors=4)
INT4_G32 = Storage("INT4, BF16 scale per 32", 9, 16, tensors=3)
W4A8 = Storage("INT4; F32 scale, offset and bias per row", 1, 2, row_bytes=12, tensors=4)

FORMATS = {
    "bf16": BF16,
    "f32": F32,
    "fp8": FP8,
    "fp8_block": FP8_BLOCK,
    "mxfp4": MXFP4,
    "nvfp4": NVFP4,
    "int4_g32": INT4_G32,
    "w4a8": W4A8,
}
