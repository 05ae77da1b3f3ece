"""The embedded schema registry answers, keeps what it was told, and is started on demand."""

from __future__ import annotations

import signal

import pytest

from onex_platform import stack
from onex_platform.base.settings import SchemasSettings, Settings
from onex_platform.engines.schema_registry import RefusedSchemaError, SchemaRegistry
from onex_platform.stack.lifecycle import DEFAULT_SERVICES
from onex_platform.stack.ports import LOOPBACK
from onex_platform.topics.schemas.formats import JsonSchema
from onex_platform_tests.support.own_stacks import NewStack
from onex_platform_tests.support.stacks import listening_addresses, processes_of

pytestmark = pytest.mark.servers

_TEXT, _NUMBER = (JsonSchema(f'{{"type":"{kind}"}}').canonical() for kind in ("string", "integer"))


def test_the_registry_judges_by_the_mode_of_the_subject(
    schemas: SchemasSettings, stack_settings: Settings
) -> None:
    registry = SchemaRegistry(stack_settings.model_copy(update={"schemas": schemas}))
    registry.set_mode("judged-value", "FULL")
    registry.register("judged-value", _TEXT, "JSON")
    assert not registry.is_compatible("judged-value", _NUMBER, "JSON")
    with pytest.raises(RefusedSchemaError, match="judged-value"):
        registry.register("judged-value", _NUMBER, "JSON")
    newest = registry.newest("judged-value")
    assert newest is not None
    assert (newest.schema, newest.format, newest.version) == (_TEXT, "JSON", 1)


def test_a_killed_registry_keeps_subjects_and_modes(new_stack: NewStack) -> None:
    settings = new_stack()
    with stack.running(settings, services=("schemas",)) as attached:
        assert listening_addresses(settings) == {LOOPBACK}
        registry = SchemaRegistry(attached)
        registry.set_mode("kept-value", "FULL")
        registry.register("kept-value", _TEXT, "JSON")
        for process in processes_of(settings):
            process.send_signal(signal.SIGKILL)
            process.wait(10)
    with stack.running(settings, services=("schemas",)) as attached:
        registry = SchemaRegistry(attached)
        assert registry.mode("kept-value") == "FULL"
        assert registry.subjects() == {"kept-value"}
    assert processes_of(settings) == []


def test_nobody_gets_a_registry_without_asking_for_one() -> None:
    assert "schemas" not in DEFAULT_SERVICES
