"""The vocabulary of a registration: states, node types, outcomes."""

from __future__ import annotations

from enum import StrEnum


class EnumRegistrationState(StrEnum):
    """Where a node stands in its registration; the values are those of the SQL enum."""

    PENDING_REGISTRATION = "pending_registration"
    ACCEPTED = "accepted"
    AWAITING_ACK = "awaiting_ack"
    REJECTED = "rejected"
    ACK_TIMED_OUT = "ack_timed_out"
    ACK_RECEIVED = "ack_received"
    ACTIVE = "active"
    LIVENESS_EXPIRED = "liveness_expired"

    def is_terminal(self) -> bool:
        """No event of this life leads out; only a higher epoch does."""
        return self in (self.REJECTED, self.LIVENESS_EXPIRED)

    def is_active(self) -> bool:
        return self is self.ACTIVE

    def awaits_ack(self) -> bool:
        """An acknowledgement deadline is armed in these states and in no other."""
        return self in (self.ACCEPTED, self.AWAITING_ACK)

    def requires_liveness(self) -> bool:
        """A liveness deadline is armed in this state and in no other."""
        return self is self.ACTIVE


class EnumNodeType(StrEnum):
    """The four kinds of ONEX node; spelled in any case on the wire."""

    EFFECT = "effect"
    COMPUTE = "compute"
    REDUCER = "reducer"
    ORCHESTRATOR = "orchestrator"

    @classmethod
    def _missing_(cls, value: object) -> EnumNodeType | None:
        spelled = value.lower() if isinstance(value, str) else None
        return next((member for member in cls if member.value == spelled), None)


class EnumOutcome(StrEnum):
    """How a record that was read ended; each ends in exactly one of these."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    STALE = "stale"
    ILLEGAL = "illegal"
    PARKED = "parked"
