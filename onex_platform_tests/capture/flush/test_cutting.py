"""Where pages are cut: every event in exactly one page, in order, within the limits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onex_platform.capture.flush.cutting import CutLimits, full_runs, plan, runs

_SIZES = st.lists(st.integers(1, 120), max_size=60)
_LIMITS = st.builds(
    CutLimits,
    max_events=st.integers(1, 12),
    max_bytes=st.integers(1, 100),
    share_below_bytes=st.integers(0, 60),
)
_KEYS = st.tuples(st.sampled_from("ab"), st.sampled_from("uvwxyz"))
_BUFFERS = st.dictionaries(_KEYS, st.lists(st.integers(1, 120), min_size=1, max_size=30))


@given(_SIZES, _LIMITS)
def test_runs_take_every_event_and_stay_within_the_limits(
    sizes: list[int], limits: CutLimits
) -> None:
    place = 0
    for count in runs(sizes, limits):
        page = sizes[place : place + count]
        assert count == 1 or (count <= limits.max_events and sum(page) <= limits.max_bytes)
        place += count
    assert place == len(sizes)


@given(_SIZES, _LIMITS)
def test_full_runs_leave_only_what_may_still_grow(sizes: list[int], limits: CutLimits) -> None:
    rest = sizes[sum(full_runs(sizes, limits)) :]
    assert len(rest) < limits.max_events
    assert sum(rest) < limits.max_bytes


@given(_BUFFERS, _LIMITS)
def test_a_plan_takes_each_buffer_once_and_never_mixes_tenants(
    buffers: dict[tuple[str, str], list[int]], limits: CutLimits
) -> None:
    pages = plan(list(buffers.items()), limits)
    taken = dict.fromkeys(buffers, 0)
    for page in pages:
        assert len({part.key[0] for part in page}) == 1
        sizes = [
            size
            for part in page
            for size in buffers[part.key][taken[part.key] : taken[part.key] + part.events]
        ]
        fits = len(sizes) <= limits.max_events and sum(sizes) <= limits.max_bytes
        assert fits or len(sizes) == 1
        for part in page:
            taken[part.key] += part.events
    assert taken == {key: len(sizes) for key, sizes in buffers.items()}


def test_ten_thousand_quiet_writers_share_a_few_pages() -> None:
    buffers = [(("t", f"w{number}"), [1100]) for number in range(10_000)]
    assert len(plan(buffers, CutLimits())) == 10
