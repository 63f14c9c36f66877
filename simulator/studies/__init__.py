"""Studies: a published system's what-if, described in YAML alone; our numbers beside those published."""
