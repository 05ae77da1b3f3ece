"""Accounts of a cluster that keeps its own passwords (SCRAM)."""

from __future__ import annotations

import secrets

from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from onex_platform.engines.kafka.clients import KafkaAdmin, translated

_ITERATIONS = 4096


def set_password(admin: KafkaAdmin, account: str, password: str) -> None:
    """Make an account, or give it another password."""
    change = UserScramCredentialUpsertion(
        account,
        ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS),
        password.encode(),
        secrets.token_bytes(16),
    )
    with translated(admin.settings, f"set the password of {account}"):
        for answer in admin.alter_user_scram_credentials([change]).values():
            answer.result(timeout=2 * admin.settings.kafka.request_timeout_seconds)
