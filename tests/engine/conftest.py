"""Hypothesis without a deadline (what is slow on a busy machine is not wrong), and fewer examples than its default."""

from hypothesis import settings

settings.register_profile("engine", deadline=None, max_examples=50)
settings.load_profile("engine")
