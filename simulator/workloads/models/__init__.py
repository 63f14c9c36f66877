"""The model families; importing this package registers them. Table of contents:

dense_transformer: what gpt (with MPT, BLOOM), llama (with Mistral, Qwen) and bert share;
moe: Mixtral, DeepSeek-V2 and V3, Qwen3-MoE, gpt-oss;
convnet: ResNet and VGG;
stack: what vit and encoder_decoder (Whisper) share;
dlrm: recommendation models;
graph: a user's own operators.
"""

from simulator.workloads.models import bert, convnet, dlrm, encoder_decoder, gpt, graph, llama, moe, vit

__all__ = ["bert", "convnet", "dlrm", "encoder_decoder", "gpt", "graph", "llama", "moe", "vit"]
