"""Rights on a cluster as plain values: who may do what; given, taken away and listed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from kafka import admin as acls
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePatternFilter,
)
from kafka.errors import ClusterAuthorizationFailedError, SecurityDisabledError

from onex_platform.base.errors import InfraError
from onex_platform.engines.kafka.clients import KafkaAdmin, translated
from onex_platform.engines.kafka.python_client import open_python_client

ANY_HOST = "*"
_BROKER = "broker"  # what librdkafka calls the cluster


@dataclass(frozen=True, order=True)
class Right:
    """One principal may do one thing with one resource; denials are not ours to make."""

    principal: str
    resource: str  # topic, group, transactional_id, broker (the cluster)
    pattern: str  # literal, prefixed
    name: str
    operation: str
    denies: bool = False
    host: str = ANY_HOST  # where the principal connects from

    def __str__(self) -> str:
        verb = "may not" if self.denies else "may"
        place = "" if self.host == ANY_HOST else f" from {self.host}"
        return (
            f"{self.principal} {verb} {self.operation} {self.resource} {self.pattern} {self.name}"
            f"{place}"
        )


class RightsHiddenError(InfraError):
    """The account may not list rights: only an administrator may."""


def rights(admin: KafkaAdmin) -> set[Right] | None:
    """Every right that the cluster knows; None if it has no authoriser and lets everybody in."""
    # librdkafka's client answers both refusals, no authoriser and no right, with an empty list.
    everything = ACLFilter(
        None,
        None,
        ACLOperation.ANY,
        ACLPermissionType.ANY,
        ResourcePatternFilter(acls.ResourceType.ANY, None, ACLResourcePatternType.ANY),
    )
    with open_python_client(admin.settings, "list its access rules") as client:
        try:
            found, _ = client.describe_acls(everything)
        except SecurityDisabledError:
            return None
        except ClusterAuthorizationFailedError as error:
            kafka = admin.settings.kafka
            raise RightsHiddenError(
                f"Kafka at {kafka.bootstrap_servers} does not let User:{kafka.sasl_username} list "
                "its access rules.",
                hint="Ask as an administrator, or give the account DESCRIBE on the cluster.",
            ) from error
    return set(map(_right, found))


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
        right.host,
        AclOperation[right.operation.upper()],
        AclPermissionType.DENY if right.denies else AclPermissionType.ALLOW,
    )


def _right(found: ACL) -> Right:
    about = found.resource_pattern
    kind = about.resource_type.name.lower()
    return Right(
        found.principal,
        _BROKER if kind == "cluster" else kind,
        about.pattern_type.name.lower(),
        about.resource_name,
        found.operation.name.lower(),
        found.permission_type is ACLPermissionType.DENY,
        found.host,
    )


def _patience(admin: KafkaAdmin) -> float:
    return 2 * admin.settings.kafka.request_timeout_seconds
