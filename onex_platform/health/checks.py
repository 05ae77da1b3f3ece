"""Verdicts on the numbers and on the alerts they raised."""

from __future__ import annotations

from collections.abc import Sequence

from onex_platform.base.telemetry import shortened
from onex_platform.checks import Number, Verdict
from onex_platform.health.alert_rules import Measurement
from onex_platform.health.alerting import Alert, silenced_among
from onex_platform.health.silences import Silence
from onex_platform.health.thresholds import METRICS, EnumGroup, EnumLevel


def numbers_are_fine(measurement: Measurement | None, group: EnumGroup) -> Verdict:
    """Whether no number of the group is beyond a threshold that alerts."""
    if measurement is None:
        return Verdict(True, "Nothing was measured lately.", {})
    ours = [item for item in measurement.readings if METRICS[item.metric].group is group]
    bad = [item for item in ours if item.level.rank >= EnumLevel.WARNING.rank]
    worst: dict[str, Number] = {}
    for item in sorted(ours, key=lambda item: item.level.rank, reverse=True):
        worst.setdefault(item.metric, f"{item.value:g} {METRICS[item.metric].unit} ({item.scope})")
    told = [f"{item.metric} of {item.scope} is {item.value:g}: {item.level}" for item in bad]
    return Verdict(
        not bad,
        f"{shortened(told)}." if bad else f"{len(ours)} numbers are within their thresholds.",
        {"numbers": len(ours), "beyond": len(bad), **worst},
    )


def no_alert_is_raised(found: Sequence[Alert], silences: Sequence[Silence]) -> Verdict:
    """Whether nothing is wrong that an operator has not silenced."""
    silenced = silenced_among(found, silences)
    heard = [alert for alert in found if alert.alert_id not in silenced]
    told = [f"{alert.tier}: {alert.rule} of {alert.scope}: {alert.says}" for alert in heard]
    return Verdict(
        not heard,
        " ".join(told[:10]) if heard else "No alert is raised that is not silenced.",
        {
            "raised": len(found),
            "silenced": len(silenced),
            "told": sum(a.told is not None for a in found),
        },
    )
