"""What Kafka's errors mean to the platform: too slow, not there or else; and the way out.

A right that is refused is no outage: the broker has answered. It must not count in the breaker,
which would refuse what others may do.
"""

from __future__ import annotations

from confluent_kafka import KafkaError

from onex_platform.base.errors import InfraConnectionError, InfraError, InfraTimeoutError

_TOO_SLOW = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
_NOT_THERE = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._SSL,
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_ENOUGH_REPLICAS,
    }
)
_NOT_LET_IN = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED})
_NOT_ALLOWED = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
CHECK_ADDRESS = (
    "Check ONEX_KAFKA_BOOTSTRAP_SERVERS, or the embedded broker with `onex stack status`."
)
_CREATE_TOPICS = "Create the catalogue's topics with `onex topics create`."
_CHECK_LOGIN = "Check ONEX_KAFKA_SASL_USERNAME and ONEX_KAFKA_SASL_PASSWORD."
_ASK_FOR_RIGHTS = (
    "contracts/policy/access.yaml says what accounts may do; `onex topics plan` and `onex topics "
    "apply` grant it."
)
_HINTS = {
    KafkaError._TRANSPORT: CHECK_ADDRESS,
    KafkaError._ALL_BROKERS_DOWN: CHECK_ADDRESS,
    KafkaError._RESOLVE: CHECK_ADDRESS,
    KafkaError._AUTHENTICATION: _CHECK_LOGIN,
    KafkaError._SSL: "Check ONEX_KAFKA_SECURITY_PROTOCOL and the ONEX_KAFKA_SSL_ files.",
    KafkaError._UNKNOWN_TOPIC: _CREATE_TOPICS,
    KafkaError.UNKNOWN_TOPIC_OR_PART: _CREATE_TOPICS,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: _ASK_FOR_RIGHTS,
    KafkaError.GROUP_AUTHORIZATION_FAILED: _ASK_FOR_RIGHTS,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: _ASK_FOR_RIGHTS,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _ASK_FOR_RIGHTS,
    KafkaError.SASL_AUTHENTICATION_FAILED: _CHECK_LOGIN,
    KafkaError.INVALID_REPLICATION_FACTOR: (
        "Add brokers, lower `replication` in the topic's contract, or set ONEX_ENVIRONMENT to dev "
        "or test, where one copy is enough."
    ),
}


def naming_the_right(error: KafkaError, operation: str, topic: str | None) -> KafkaError:
    """A refused right with what it is about: brokers name neither operation nor topic."""
    if topic is None or error.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return error
    return KafkaError(error.code(), f"it needs the right to {operation} the topic {topic}")


def translate(error: KafkaError, service: str, action: str, user: str | None = None) -> InfraError:
    """The platform's error; `action` completes the sentence "Kafka could not …"."""
    reason = error.str().rstrip(".")
    hint = _HINTS.get(error.code())
    if user is not None and error.code() in _NOT_LET_IN:
        return InfraConnectionError(f"{service} refused user {user!r}: {reason}.", hint=hint)
    if user is not None and error.code() in _NOT_ALLOWED:
        return InfraError(f"{service} does not let User:{user} {action}: {reason}.", hint=hint)
    if error.code() in _TOO_SLOW:
        return InfraTimeoutError(f"{service} did not {action} in time: {reason}.", hint=hint)
    if error.code() in _NOT_THERE:
        return InfraConnectionError(
            f"{service} can't be reached or refused us: {reason}.", hint=hint
        )
    return InfraError(f"{service} could not {action}: {reason}.", hint=hint)
