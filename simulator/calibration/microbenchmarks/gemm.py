"""How long does a matrix product of exact shape take? Parameters: m, n, k, dtype (as `Gemm`)."""

from __future__ import annotations

from simulator.calibration.microbenchmarks.benchmark import Scope, Trial, register
from simulator.calibration.microbenchmarks.case import Case
from simulator.calibration.microbenchmarks.device import Device, torch_dtype
from simulator.calibration.microbenchmarks.groups import Groups

# Square, tall and flat, small k, widths off the tile (5461 = 8/3 x 2048, 10922 likewise) as models have them.
GPU_SHAPES = (
    *((s, s, s) for s in (512, 1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384)),
    *((m, 4096, 4096) for m in (128, 256, 768, 1536, 2560, 16384)),
    *((8192, n, 4096) for n in (1024, 1536, 11008, 14336, 32000, 50257)),
    *((4096, 4096, k) for k in (64, 128, 256, 512, 1024, 16384)),
    (8192, 10922, 4096),
    (8192, 10944, 4096),
    (4096, 5461, 2048),
)
CPU_SHAPES = (
    *((s, s, s) for s in (64, 128, 192, 256, 384, 512, 768)),
    *((m, 512, 512) for m in (16, 32, 64, 128)),
    *((256, n, 256) for n in (64, 1000, 1024)),
    *((256, 256, k) for k in (16, 64, 1024)),
)


def cases(scope: Scope) -> list[Case]:
    shapes = GPU_SHAPES if scope.device == "cuda" else CPU_SHAPES
    dtypes = ("bf16", "fp16", "tf32", "fp8") if scope.device == "cuda" else ("fp32",)
    if scope.quick:
        shapes, dtypes = shapes[::4], dtypes[:1]
    return [Case("gemm", {"m": m, "n": n, "k": k, "dtype": dtype}) for dtype in dtypes for m, n, k in shapes]


def prepare(case: Case, device: Device, groups: Groups) -> Trial:
    import torch

    m, n, k, dtype = case["m"], case["n"], case["k"], case["dtype"]
    if not device.supports(dtype):
        return lambda times: {}
    where = device.torch_device
    if dtype == "fp8":
        return _prepare_fp8(m, n, k, device)
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    kind = torch_dtype(dtype)
    a, b = torch.randn(m, k, device=where).to(kind), torch.randn(n, k, device=where).to(kind)
    out = torch.empty(m, n, device=where, dtype=kind)
    # A row-major weight of shape (n, k), as torch.nn.Linear keeps it.
    return lambda times: {"gemm": device.time_loop(lambda: torch.mm(a, b.t(), out=out), times)}


def _prepare_fp8(m: int, n: int, k: int, device: Device) -> Trial:
    """Tensor-wise scaled fp8 product with bf16 output; shapes off multiples of 16 are not supported by torch."""
    import torch

    if n % 16 or k % 16:
        return lambda times: {}
    where = device.torch_device
    a = torch.randn(m, k, device=where).to(torch.float8_e4m3fn)
    b = torch.randn(n, k, device=where).to(torch.float8_e4m3fn)
    one = torch.ones((), device=where)

    def multiply() -> object:
        return torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    return lambda times: {"gemm": device.time_loop(multiply, times)}


register("gemm", cases, prepare)
