"""What the tests of this station ask of the secured broker and of the registry."""

from __future__ import annotations

import pytest

from onex_platform.base.settings import SchemasSettings, Settings
from onex_platform.governance.governed import Governed
from onex_platform.topics.catalogue import Catalogue, load_whole_catalogue
from onex_platform.topics.policy import Access, Policy, load_policy
from onex_platform_tests.support.governed_clusters import FEW_TOPICS


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    """Few topics: a test of steps needs one of each kind, and not every contract."""
    whole = load_whole_catalogue()
    return Catalogue(whole[name] for name in FEW_TOPICS)


@pytest.fixture(scope="session")
def governed(secured: Settings, schemas: SchemasSettings, catalogue: Catalogue) -> Governed:
    """The administrator's view of the secured broker and of a registry."""
    return Governed.of(secured.model_copy(update={"schemas": schemas}), catalogue)


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
