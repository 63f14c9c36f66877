"""The model families; importing this package registers them. Table of contents:

dense_transformer: gpt, llama, bert.
"""

from simulator.workloads.models import dense_transformer

__all__ = ["dense_transformer"]
