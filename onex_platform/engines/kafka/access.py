"""Rights on a cluster as plain values: who may do what; given, taken away and listed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from onex_platform.engines.kafka.clients import KafkaAdmin, translated

_ANY_HOST = "*"


@dataclass(frozen=True, order=True)
class Right:
    """One principal may do one thing with one resource; denials are not ours to make."""

    principal: str
    resource: str  # topic, group, transactional_id, broker (the cluster)
    pattern: str  # literal, prefixed
    name: str
    operation: str
    denies: bool = False

    def __str__(self) -> str:
        verb = "may not" if self.denies else "may"
        return (
            f"{self.principal} {verb} {self.operation} {self.resource} {self.pattern} {self.name}"
        )


def rights(admin: KafkaAdmin) -> set[Right] | None:
    """Every right that the cluster knows; None if it has no authoriser and lets everybody in."""
    everything = AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]
        ResourcePatternType.ANY,
        None,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    with translated(admin.settings, "list its access rules"):
        try:
            found = admin.describe_acls(everything).result(timeout=_patience(admin))
        except KafkaException as error:
            if error.args[0].code() == KafkaError.SECURITY_DISABLED:
                return None
            raise
    return {_right(binding) for binding in found}


def grant(admin: KafkaAdmin, wanted: Collection[Right]) -> None:
    """Give these rights; one that exists stays as it is."""
    with translated(admin.settings, "grant rights"):
        for answer in admin.create_acls([_binding(right) for right in wanted]).values():
            answer.result(timeout=_patience(admin))


def revoke(admin: KafkaAdmin, unwanted: Collection[Right]) -> None:
    """Take exactly these rights away; one that is gone already is no error."""
    filters = [
        AclBindingFilter(
            found.restype,
            found.name,
            found.resource_pattern_type,
            found.principal,
            found.host,
            found.operation,
            found.permission_type,
        )
        for found in map(_binding, unwanted)
    ]
    with translated(admin.settings, "take rights away"):
        for answer in admin.delete_acls(filters).values():
            answer.result(timeout=_patience(admin))


def _binding(right: Right) -> AclBinding:
    return AclBinding(
        ResourceType[right.resource.upper()],
        right.name,
        ResourcePatternType[right.pattern.upper()],
        right.principal,
        _ANY_HOST,
        AclOperation[right.operation.upper()],
        AclPermissionType.DENY if right.denies else AclPermissionType.ALLOW,
    )


def _right(binding: AclBinding) -> Right:
    return Right(
        binding.principal,
        binding.restype.name.lower(),  # type: ignore[union-attr]
        binding.resource_pattern_type.name.lower(),  # type: ignore[union-attr]
        binding.name,
        binding.operation.name.lower(),  # type: ignore[union-attr]
        binding.permission_type is AclPermissionType.DENY,
    )


def _patience(admin: KafkaAdmin) -> float:
    return 2 * admin.settings.kafka.request_timeout_seconds
