"""The model families; importing this package registers them. Table of contents:

dense_transformer: what gpt (with MPT, BLOOM), llama (with Mistral, Qwen) and bert share;
moe: Mixtral, DeepSeek-V2 and V3, Qwen3-MoE, gpt-oss;
convnet: ResNet and VGG;
graph: a user's own operators.
"""

from simulator.workloads.models import bert, convnet, gpt, graph, llama, moe

__all__ = ["bert", "convnet", "gpt", "graph", "llama", "moe"]
