"""The clock: silence becomes a fact, once, and never by our own fault."""

from onex_platform.deadlines.scan import ScanAccount, scan, scan_when_due

__all__ = ["ScanAccount", "scan", "scan_when_due"]
