"""The building blocks that layers are made of; one file per kind of block.

linear: projections and their collectives. norms: LayerNorm, RMSNorm. elementwise: activation, residual,
rotary. attention: the core between projections. vocabulary: embedding and loss.
"""
