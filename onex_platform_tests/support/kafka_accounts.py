"""Accounts of a broker that asks for passwords."""

from __future__ import annotations

from typing import Any

from pydantic import SecretStr

from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.accounts import set_password
from onex_platform.engines.kafka.clients import open_admin

_PASSWORD = "a-password-for-tests"


def as_account(settings: Settings, name: str, **changes: Any) -> Settings:
    """The settings of an account, which is made if it does not exist."""
    with open_admin(settings) as admin:
        set_password(admin, name, _PASSWORD)
    kafka = settings.kafka.model_copy(
        update={"sasl_username": name, "sasl_password": SecretStr(_PASSWORD), **changes}
    )
    return settings.model_copy(update={"kafka": kafka})
