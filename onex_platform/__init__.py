"""onex_platform: events become pages, pages become projections, projections become snapshots."""

__version__ = "0.1.0"
