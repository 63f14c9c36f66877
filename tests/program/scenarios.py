"""Small random clusters and workloads for property tests of the program."""

from __future__ import annotations

from typing import Any, Literal

from hypothesis import strategies as st
from pydantic import Field

from simulator.costs.collectives import CollectiveCalibration
from simulator.costs.software import SoftwareProfile
from simulator.hardware.cluster import Cluster
from simulator.workloads.layers import Layer, Module, Operation, Parameters, Shard
from simulator.workloads.model import FAMILIES, Model
from simulator.workloads.operators import MemoryBound
from simulator.workloads.workload import Workload

RATES = {
    "base": 5e-6,
    "hop": 1.5e-6,
    "network_hop": 3e-6,
    "scale_up": 0.8,
    "nic": 0.9,
}
LIBRARY = CollectiveCalibration(
    name="test",
    library="nccl",
    architecture="ampere",
    interconnect="nvswitch",
    algorithms={
        name: {"simple": RATES} for name in ("ring", "tree", "direct", "point_to_point", "hierarchical")
    },
    choices={
        "all_reduce": ("ring",),
        "all_gather": ("ring",),
        "reduce_scatter": ("ring",),
        "all_to_all": ("direct",),
        "send_recv": ("point_to_point",),
    },
    gpu_share=0.1,
)


def software(**changes: Any) -> SoftwareProfile:
    """A profile without any overhead, but for `changes`."""
    values: dict[str, Any] = {
        "description": "test",
        "launch": 0.0,
        "launch_backward": 0.0,
        "synchronous_p2p": False,
        "p2p_overhead": 0.0,
        "scatter_gather": False,
        "fusions": ["qkv", "gate_up", "bias_gelu", "norm"],
        "flash_attention": "flash2",
        "overlap": {"dp_gradients": True, "dp_parameters": False, "tp": True, "pp": True},
        "bucket_size": 1e6,
        "optimizer": {
            "norm_passes": 0.0,
            "kernels_per_parameter_tensor": 0.0,
            "extra_copies": 0.0,
            "host_synchronisations": 0,
        },
        "memory": {"context": 0.0, "fragmentation": 0.0},
        "step_overhead": 0.0,
        "jitter": 0.0,
    }
    return SoftwareProfile.model_validate({**values, **changes})


GPU = {
    "name": "test-gpu",
    "vendor": "none",
    "architecture": "ampere",
    "sms": 108,
    "clock": 1.41e9,
    "dense_peak": {"fp32": 19.5e12, "tf32": 156e12, "bf16": 312e12, "fp16": 312e12},
    "memory": {"capacity": 80e9, "bandwidth": 2e12},
    "scale_up": {"kind": "nvlink3", "bandwidth": 300e9},
    "host_link": {"kind": "pcie4", "bandwidth": 32e9},
    "launch": 4e-6,
    "calibration": "a100-sxm",
}
NIC = {"name": "test-nic", "vendor": "none", "bandwidth": 25e9, "latency": 1.5e-6}


def node(num_gpus: int, num_nics: int, **gpu: Any) -> dict[str, Any]:
    kind = "nvswitch" if num_gpus > 1 else "none"
    return {
        "name": f"node-{num_gpus}-{num_nics}",
        "gpu": {**GPU, **gpu},
        "num_gpus": num_gpus,
        "nic": NIC,
        "num_nics": num_nics,
        "interconnect": {"kind": kind},
        "cpu": {"cores": 32, "memory": 1e12, "memory_bandwidth": 200e9},
        "storage": {"read_bandwidth": 8e9, "write_bandwidth": 4e9},
    }


def cluster(num_nodes: int, num_gpus: int, num_nics: int, fabric: dict[str, Any] | None = None) -> Cluster:
    fabric = fabric or {"kind": "single_switch", "hop_latency": 5e-7}
    return Cluster.model_validate(
        {"name": "test", "node": node(num_gpus, num_nics), "num_nodes": num_nodes, "fabric": fabric}
    )


def mixed_cluster(num_fast: int, num_slow: int, num_gpus: int, fabric: dict[str, Any]) -> Cluster:
    slow = node(num_gpus, 1, name="slow-gpu", clock=1.0e9, dense_peak={"bf16": 125e12, "fp16": 125e12})
    groups = [
        {"node": node(num_gpus, num_gpus), "num_nodes": num_fast},
        {"node": slow, "num_nodes": num_slow},
    ]
    return Cluster.model_validate({"name": "mixed", "groups": groups, "fabric": fabric})


def workload(sequence_length: int = 256, global_batch: int = 16, **changes: Any) -> Workload:
    plan = {key: value for key, value in changes.items() if key not in MODEL_KEYS}
    shapes = {"layers": 4, "hidden": 256, "heads": 8, "vocab": 1024, "max_sequence": 4096}
    model = {"family": "gpt", **shapes, **{k: v for k, v in changes.items() if k in MODEL_KEYS}}
    if model["family"] == "moe":
        model |= {
            "experts": 8,
            "top_k": 2,
            "expert_ffn": 128,
            "shared_ffn": 128,
            "dense_layers": 1,
            "ffn": 512,
        }
    data = {"data": plan.pop("data")} if "data" in plan else {}
    return Workload.model_validate(
        {
            "name": "test",
            "model": model,
            "global_batch": global_batch,
            "sequence_length": sequence_length,
            "precision": "bf16",
            "plan": plan,
            **data,
        }
    )


MODEL_KEYS = ("layers", "hidden", "heads", "vocab", "family")


@st.composite
def plans(draw: st.DrawFn, world: int, layers: int) -> dict[str, Any]:
    """Degrees that multiply to `world`, and settings that go with them."""
    tp = draw(st.sampled_from([d for d in (1, 2, 4) if world % d == 0]))
    pp = draw(st.sampled_from([d for d in (1, 2, 3, 4) if world // tp % d == 0 and layers % d == 0]))
    vpp = draw(st.sampled_from([v for v in (1, 2) if pp > 1 and layers % (pp * v) == 0] or [1]))
    plan: dict[str, Any] = {"tp": tp, "pp": pp, "vpp": vpp}
    plan["sequence_parallel"] = tp > 1 and draw(st.booleans())
    plan["zero"] = draw(st.sampled_from([0, 1, 2, 3] if pp == 1 else [0, 1]))
    plan["recompute"] = draw(st.sampled_from(["none", "selective", "full"]))
    plan["attention"] = draw(st.sampled_from(["flash", "unfused"]))
    plan["order"] = draw(st.permutations(("tp", "cp", "dp", "pp")))
    plan |= draw(_contexts(plan, world))
    if plan["zero"] == 3:
        plan["zero3"] = draw(_sharings(world // plan["tp"] // plan["pp"]))
    if pp > 1 and vpp == 1:
        plan["schedule"] = draw(st.sampled_from(["gpipe", "1f1b"]))
    if pp % 2 == 0 and vpp == 2 and draw(st.booleans()):
        plan["schedule"] = "dualpipe"
    if draw(st.integers(0, 2)) == 0:
        plan["offload"] = {
            "optimizer": draw(st.sampled_from(["none", "cpu", "swap"])),
            "optimizer_tier": draw(st.sampled_from(["host", "nvme"])),
            "parameters": draw(st.sampled_from(["none", "host", "nvme"] if plan["zero"] == 3 else ["none"])),
            "activations": draw(st.sampled_from([0.0, 0.5, 1.0])),
        }
    if plan["zero"] == 3 and plan["recompute"] == "none" and "offload" not in plan:
        plan["zero3"]["slices"] = draw(st.sampled_from([1, 1, 3]))
    if draw(st.integers(0, 2)) == 0:
        plan |= draw(_mixtures(plan, world))
    return plan


@st.composite
def _contexts(draw: st.DrawFn, plan: dict[str, Any], world: int) -> dict[str, Any]:
    """Context parallelism over some of the ranks that are left, one way or another."""
    cp = draw(st.sampled_from([1, 1, *(d for d in (2, 4) if world // plan["tp"] // plan["pp"] % d == 0)]))
    if cp == 1:
        return {}
    ways = ["all_gather"]
    if plan["attention"] == "flash":
        ways += ["ring", *(["all_to_all", "usp"] if plan["tp"] * cp <= 8 else [])]
    exchange = draw(st.sampled_from(ways))
    context = {
        "cp": cp,
        "context_exchange": exchange,
        "context_layout": draw(st.sampled_from(["zigzag", "contiguous"])),
    }
    return context | ({"ulysses": draw(st.sampled_from([1, 2, cp]))} if exchange == "usp" else {})


@st.composite
def _sharings(draw: st.DrawFn, ranks: int) -> dict[str, Any]:
    """Ways of sharing parameters out over the ranks that hold the same ones."""
    group = draw(st.sampled_from([None, *(d for d in (1, 2, 4, 8) if ranks % d == 0)]))
    second = draw(st.sampled_from([None, *(d for d in (1, 2, 4) if (group or ranks) % d == 0)]))
    return {
        "shard_group": group,
        "secondary_group": second,
        "sum_copies_last": draw(st.booleans()),
        "fraction": draw(st.sampled_from([1.0, 1.0, 0.5, 0.0])),
        "unsharded": draw(st.sampled_from([0.0, 2e6])),
        "prefetch": draw(st.sampled_from([0, 1, 3])),
        "reshard_after_forward": draw(st.booleans()),
    }


@st.composite
def _mixtures(draw: st.DrawFn, plan: dict[str, Any], world: int) -> dict[str, Any]:
    """A model with experts, spread in one of the ways that the plan allows."""
    tp = plan["tp"]
    etp = draw(st.sampled_from([d for d in (1, 2, 4) if tp % d == 0])) if plan["sequence_parallel"] else tp
    plane = world // plan["pp"] // etp
    ep = draw(st.sampled_from([d for d in (1, 2, 4, 8) if plane % d == 0 and _shares(plan, etp * d)]))
    load = draw(st.sampled_from(["balanced", "random", "zipf", "dirichlet"]))
    capacity = draw(st.sampled_from([None, 1.5]))
    experts = {"tp": etp, "load": load, "capacity": capacity, "deduplicated": draw(st.booleans())}
    experts["domain"] = draw(st.sampled_from([None, *(d for d in (1, 2, 4) if ep % d == 0)]))
    beside = plan["pp"] == 1 or plan["vpp"] > 1
    beside = beside and plan["zero"] < 2 and not plan.get("offload", {}).get("activations")
    hidden = draw(st.sampled_from(["", "shared_expert", *(["ep"] if beside else [])]))
    scopes = ["attention", "router", "mlp", *(["all"] if capacity else [])]
    return {
        "family": "moe",
        "ep": ep,
        "experts": experts,
        "overlap": {hidden: True} if hidden else {},
        "cuda_graphs": draw(st.lists(st.sampled_from(scopes), max_size=2)),
    }


def _shares(plan: dict[str, Any], experts: int) -> bool:
    """Whether groups that share one copy hold whole copies of experts on so many ranks, or parts of one."""
    group = plan.get("zero3", {}).get("shard_group")
    wide = plan["tp"] * (group or 0)
    return group is None or wide % experts == 0 or experts % wide == 0


FABRICS = (
    {"kind": "single_switch", "hop_latency": 5e-7},
    {
        "kind": "leaf_spine",
        "nodes_per_leaf": 2,
        "num_spines": 2,
        "oversubscription": 4.0,
        "hop_latency": 5e-7,
    },
    {
        "kind": "leaf_spine",
        "nodes_per_leaf": 2,
        "num_spines": 2,
        "oversubscription": 2.0,
        "hop_latency": 5e-7,
        "ecmp": "hashed",
        "seed": 3,
    },
    {
        "kind": "rail_optimized",
        "nodes_per_unit": 2,
        "num_spines": 2,
        "oversubscription": 2.0,
        "hop_latency": 5e-7,
    },
)


class Timed(Module):
    """A kernel that reads `forward_bytes` forward and `backward_bytes` backward.

    Of those, the kernel of the weight gradient reads `weight_bytes`.
    """

    def __init__(self, forward_bytes: float, backward_bytes: float, weight_bytes: float) -> None:
        self.name, self.source = "timed", "input"
        self.forward_bytes, self.backward_bytes = forward_bytes, backward_bytes
        self.weight_bytes = weight_bytes

    def parameters(self, shard: Shard) -> Parameters:
        return Parameters()

    def forward(self, shard: Shard) -> list[Operation]:
        return [Operation("forward", MemoryBound("elementwise", self.forward_bytes, 0.0))]

    def backward(self, shard: Shard) -> list[Operation]:
        left = self.backward_bytes - self.weight_bytes
        operations = [Operation("input gradient", MemoryBound("elementwise", left, 0.0))]
        if self.weight_bytes:
            weight = MemoryBound("elementwise", self.weight_bytes, 0.0)
            operations.append(Operation("weight gradient", weight, weight_gradient=True))
        return operations


@FAMILIES.register("equal_blocks")
class EqualBlocks(Model):
    """Nothing but equal blocks that send nothing: closed forms of pipelines hold exactly."""

    family: Literal["equal_blocks"] = Field("equal_blocks", description="Always `equal_blocks`.")
    num_layers: int = Field(alias="layers", description="Blocks.")
    forward_bytes: float = Field(2e9, description="Read by a block's forward.")
    backward_bytes: float = Field(4e9, description="Read by a block's backward.")
    weight_bytes: float = Field(0.0, description="Of those, read by its weight gradient.")

    def layers(self) -> tuple[Layer, ...]:
        module = Timed(self.forward_bytes, self.backward_bytes, self.weight_bytes)
        block = Layer("block", "block", (module,), 0, 0)
        return (block,) * self.num_layers


def equal_blocks(layers: int, global_batch: int, weight_bytes: float = 0.0, **plan: Any) -> Workload:
    return Workload.model_validate(
        {
            "name": "equal",
            "model": {"family": "equal_blocks", "layers": layers, "weight_bytes": weight_bytes},
            "global_batch": global_batch,
            "sequence_length": 1,
            "precision": "bf16",
            "plan": {"optimizer": "sgd", **plan},
        }
    )
