"""A real broker with an authoriser, shared by the tests of this station."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onex_platform import stack
from onex_platform.base.settings import Settings
from onex_platform.topics.policy import Access, Policy, load_policy
from onex_platform_tests.support.stacks import embedded_settings


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """The administrator's settings of a broker that asks everybody for a name and for rights."""
    folder = tmp_path_factory.mktemp("secured")
    settings = embedded_settings(folder, kafka_security="sasl")
    with stack.running(settings, services=["kafka"]) as attached:
        yield attached


@pytest.fixture(scope="session")
def policy() -> Policy:
    """The platform's policy with three tenants more, two of whom are called alike."""
    own = load_policy()
    tenants = {
        name: own.tenants["omnibase"].model_copy(update={"home": False})
        for name in ("a", "ab", "b")
    }
    accounts = [
        {"name": f"service-{tenant}", "tenant": tenant, "roles": ["node", "registry"]}
        for tenant in tenants
    ]
    fields = own.access.model_dump() | {
        "accounts": [*own.access.model_dump()["accounts"], *accounts]
    }
    access = Access.model_validate(
        {
            **fields,
            "roles": {
                name: {
                    part: [pattern.text for pattern in getattr(role, part)]
                    for part in ("publishes", "reads", "creates")
                }
                | {"transactions": role.transactions, "groups": role.groups}
                for name, role in own.access.roles.items()
            },
        }
    )
    return own.model_copy(update={"tenants": {**own.tenants, **tenants}, "access": access})
