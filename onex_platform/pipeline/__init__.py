"""The stations run as one: what waits is drained into the log and folded onto the rows."""

from onex_platform.pipeline.loop import DrainAccount, drain

__all__ = ["DrainAccount", "drain"]
