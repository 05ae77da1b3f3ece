"""A policy with tenants beside the platform's own."""

from __future__ import annotations

import pytest

from onex_platform.topics.policy import Access, Policy, load_policy


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
