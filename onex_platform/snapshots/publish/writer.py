"""The one door to the snapshot topic: publishers take turns, and nobody returns from the dead.

What holds, however many publishers there are and wherever one of them stops:
- Turns are a lock in PostgreSQL. They keep live publishers out of each other's way, no more.
- Each publisher sends in transactions under the one name of its domain and topic. It takes that
  name before it reads a row. If its send succeeds, nobody else has taken the name since, so nobody
  has published since: what it sends is not older than what the topic has.
- Who wakes up after somebody else took over is refused by the broker, and reads everything anew.
- While the topic moves to its next version, each turn sends the same rows to both.
- A row that is too large for the topic holds nobody up. It is named in the log and in the result,
  and stays a fault of the comparison until a smaller version, or a higher limit, lets it through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.faults import effect
from onex_platform.base.settings import Settings
from onex_platform.base.telemetry import get_logger, shortened
from onex_platform.domain.headers import PiiLevel, PublishRules
from onex_platform.engines.kafka.transactions import (
    LowerLimitError,
    Outgoing,
    Sent,
    TakenOverError,
    TransactionalProducer,
)
from onex_platform.engines.postgres.database import Cursor, Database
from onex_platform.migration.phase_table import phases, phases_to_publish_by
from onex_platform.projections.snapshot_rows import RowState
from onex_platform.records.wrapping import Wrapper
from onex_platform.snapshots.publish.publisher_lock import publication_lock
from onex_platform.snapshots.snapshot_records import to_messages
from onex_platform.snapshots.topic_config import ModelSnapshotTopicConfig
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.migration_intent import EnumMigrationPhase

_ATTEMPTS = 5
_USUAL_MAX_BYTES = 1024 * 1024

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Publication:
    """What a publisher may use while it is its turn: one transaction here, one there."""

    cursor: Cursor
    topics: tuple[str, ...]
    send: Callable[[Iterable[RowState]], Sent]


def _level_of_plain_records(rules: PublishRules) -> PiiLevel:
    """How private the topic's records are; refused if they would have to be encrypted or signed."""
    asked = [
        what
        for what, is_asked in (
            ("signatures (signed: true)", rules.signed),
            ("encryption (pii: high in its schema)", rules.pii_level == "high"),
        )
        if is_asked
    ]
    if asked:
        raise ConfigurationError(
            f"The contract of {rules.topic} asks for {' and '.join(asked)}, and snapshots are "
            "published as their rows are: sealed fields as they came, everything else in clear.",
            hint="Ask it of the events instead; what was sealed there stays sealed in snapshots.",
        )
    return rules.pii_level


class SnapshotWriter:
    """Sends rows to one domain's snapshot topic; keeps its producer open between turns."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        catalogue: Catalogue,
        config: ModelSnapshotTopicConfig,
    ) -> None:
        self.config = config
        self.catalogue = catalogue
        self._settings = settings
        self._database = database
        self._wrapper = Wrapper(settings)
        contract = catalogue.oldest_snapshot(config.domain)
        self._pii = _level_of_plain_records(contract.publish_rules)
        # A version that is not in the catalogue is of the deployment's own naming, and stays.
        self._moves = config.topic in catalogue
        name = contract.topic if self._moves else config.topic
        self._producer = TransactionalProducer(
            settings,
            f"onex-snapshots.{config.domain}.{name}",
            settings.snapshots.transaction_seconds,
            contract.max_message or _USUAL_MAX_BYTES,
        )

    def topics(self) -> tuple[str, ...]:
        """The topics that are written by now; two while the snapshot topic moves."""
        with self._database.transaction() as cursor:
            return self._written(phases(cursor))

    def exclusively(self, work: Callable[[Publication], T]) -> T:
        """Do the work as the domain's only publisher.

        Its transaction in PostgreSQL is committed when it ends, and rolled back when it raises. It
        is done again from the start if somebody else took over, or if the topic turns out to take
        smaller records only, so it must read what it sends.
        """
        for _ in range(_ATTEMPTS - 1):
            try:
                return self.attempt(work)
            except TakenOverError:
                get_logger(__name__).info("snapshots.taken_over", topic=self.config.topic)
            except LowerLimitError as error:
                get_logger(__name__).warning("snapshots.lower_limit", error=error.message)
        return self.attempt(work)

    def attempt(self, work: Callable[[Publication], T]) -> T:
        """Do the work once as the domain's only publisher; raises if somebody else took over."""
        domain = self.config.domain
        with publication_lock(self._settings, self._database, domain, "snapshots.mark") as cursor:
            self._producer.open()
            # Asked for each turn, and kept until it ends: a change of phase waits for us.
            topics = self._written(phases_to_publish_by(cursor))
            return work(Publication(cursor, topics, partial(self._send, topics)))

    def close(self) -> None:
        self._producer.close()

    def _written(self, moved: Mapping[str, EnumMigrationPhase]) -> tuple[str, ...]:
        if not self._moves:
            return (self.config.topic,)
        return tuple(c.topic for c in self.catalogue.at(moved).snapshots(self.config.domain))

    def _send(self, topics: Sequence[str], rows: Iterable[RowState]) -> Sent:
        """Send rows to each topic; what one of them can't take is too large for all."""
        messages: Iterable[Outgoing] = to_messages(rows, self._wrapper, self._pii)
        if len(topics) > 1:
            messages = list(messages)
        done = Sent(0)
        for topic in topics:
            with effect("snapshots.send"):
                sent = self._producer.send(topic, messages)
            if sent.too_large:
                get_logger(__name__).warning(
                    "snapshots.too_large",
                    topic=topic,
                    count=len(sent.too_large),
                    nodes=shortened(sent.too_large),
                )
            refused = tuple(dict.fromkeys((*done.too_large, *sent.too_large)))
            count = sent.acknowledged + len(sent.too_large)
            done = Sent(count - len(refused), refused)
        return done
