"""What are measurements made on: processor, GPUs, versions, network?"""

from __future__ import annotations

import os
import platform
from typing import Any

from simulator.calibration.microbenchmarks.device import Device


def describe_machine(device: Device, num_ranks: int) -> dict[str, Any]:
    """Facts that make two sets of measurements comparable; nothing that identifies a person or a host."""
    import torch

    described: dict[str, Any] = {
        "device": device.kind,
        "num_ranks": num_ranks,
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "backend": device.backend,
    }
    if device.kind == "cuda":
        described |= _describe_gpu(device)
    cluster = os.environ.get("CLUSTERSIM_CLUSTER")
    if cluster:
        described["minicluster"] = cluster
    return described


def processor_name() -> str:
    """The processor's own name where Linux tells it, else the architecture."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def _describe_gpu(device: Device) -> dict[str, Any]:
    import torch

    properties = torch.cuda.get_device_properties(device.index)
    return {
        "gpu": properties.name,
        "sms": properties.multi_processor_count,
        "gpu_memory": properties.total_memory,
        "gpus_per_node": torch.cuda.device_count(),
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
    }
