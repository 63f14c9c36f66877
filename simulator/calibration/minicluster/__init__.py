"""A real cluster on one Linux machine: network namespaces as nodes, shaped links between them.

wiring       cluster description → namespaces, links, paths
shaping      a port of a given rate as `tc` lines
commands     `ip` and `tc` in batches
privileges   may we, and what is missing
state        which miniclusters are up
namespaces   acting inside a namespace
lifecycle    up, down
launch       one process per rank
flows        raw TCP flows between hosts
"""
