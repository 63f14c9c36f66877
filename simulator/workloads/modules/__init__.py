"""The building blocks that layers are made of; one file per kind of block.

linear: projections and their collectives. norms: LayerNorm, RMSNorm. elementwise: activation, residual,
rotary. attention: the core between projections; context_parallel: what it sends. latent_attention: the narrow
projections of MLA. experts, dispatch: mixtures of experts. vocabulary: embedding and loss. gemms: what surrounds a
GEMM.
"""
