"""What everything stands on: settings, errors, telemetry, the breaker, named effects, paths."""
