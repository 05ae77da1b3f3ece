"""The stations run as one: drain, fold, publish, and watch the clock."""

from onex_platform.pipeline.loop import DrainAccount, drain
from onex_platform.pipeline.service import ServiceAccount, serve

__all__ = ["DrainAccount", "ServiceAccount", "drain", "serve"]
