"""How long do fused attention's forward and backward take? Parameters: batch, heads, kv_heads,
sequence, head_dim, causal, dtype."""

from __future__ import annotations

from simulator.calibration.microbenchmarks.benchmark import Scope, Trial, register
from simulator.calibration.microbenchmarks.case import Case
from simulator.calibration.microbenchmarks.device import Device, torch_dtype
from simulator.calibration.microbenchmarks.groups import Groups

# batch, heads, kv_heads, sequence, head_dim
GPU_SHAPES = (
    *((16384 // s, 32, 32, s, 128) for s in (512, 1024, 2048, 4096, 8192, 16384)),
    *((16384 // s, 32, 32, s, 64) for s in (512, 2048, 8192)),
    (4, 32, 8, 4096, 128),
    (4, 16, 16, 2048, 256),
    (1, 8, 8, 2048, 128),
    (1, 96, 96, 2048, 128),
)
CPU_SHAPES = ((1, 4, 4, 128, 64), (2, 4, 4, 256, 64), (1, 8, 2, 256, 64), (1, 4, 4, 512, 32))


def cases(scope: Scope) -> list[Case]:
    shapes = GPU_SHAPES if scope.device == "cuda" else CPU_SHAPES
    if scope.quick:
        shapes = shapes[:2]
    names = ("batch", "heads", "kv_heads", "sequence", "head_dim")
    dtype = "bf16" if scope.device == "cuda" else "fp32"
    return [
        Case("attention", {**dict(zip(names, shape, strict=True)), "causal": causal, "dtype": dtype})
        for shape in shapes
        for causal in (True, False)
    ]


def prepare(case: Case, device: Device, groups: Groups) -> Trial:
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    where, dtype = device.torch_device, torch_dtype(case["dtype"])
    grouped = case["kv_heads"] != case["heads"]

    def make(heads: int) -> torch.Tensor:
        shape = (case["batch"], heads, case["sequence"], case["head_dim"])
        return torch.randn(shape, device=where).to(dtype).requires_grad_()

    q, k, v = make(case["heads"]), make(case["kv_heads"]), make(case["kv_heads"])

    def forward() -> torch.Tensor:
        return scaled_dot_product_attention(q, k, v, is_causal=case["causal"], enable_gqa=grouped)

    def trial(times: int) -> dict[str, float]:
        with torch.no_grad():
            ahead = device.time_loop(forward, times)
        out = forward()
        weight = torch.ones_like(out)
        back = device.time_loop(lambda: torch.autograd.grad(out, (q, k, v), weight, retain_graph=True), times)
        return {"forward": ahead, "backward": back}

    return trial


register("attention", cases, prepare)
