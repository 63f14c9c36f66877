"""The model families; importing this package registers them. Table of contents:

dense_transformer: what gpt (with MPT, BLOOM), llama (with Mistral, Qwen) and bert share.
"""

from simulator.workloads.models import bert, gpt, llama

__all__ = ["bert", "gpt", "llama"]
