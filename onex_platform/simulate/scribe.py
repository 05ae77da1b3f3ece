"""Writes records: what a node or the registry says, on the right topic, with the right key.

The healthy ones and the strange ones alike; when they are sent is the fleet's business.
"""

from __future__ import annotations

from bisect import bisect
from itertools import accumulate
from random import Random
from typing import Any

from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.headers import TENANT
from onex_platform.simulate.event_payloads import REGISTRYS, heartbeat_form, payload_of
from onex_platform.simulate.malformed import MALFORMATIONS
from onex_platform.simulate.nodes import Node
from onex_platform.simulate.plan import FleetPlan
from onex_platform.simulate.profiles import EnumDisturbance
from onex_platform.simulate.records import Record
from onex_platform.simulate.routes import Routes, key_hash
from onex_platform.simulate.scenarios import Manner
from onex_platform.simulate.wire import BeatForm, beat, dump, envelope, event_type_of, uuid_text

Kind = EnumEventKind
Trouble = EnumDisturbance


class Scribe:
    """Records of one history, drawn from its random generator."""

    def __init__(self, plan: FleetPlan, routes: Routes, random: Random) -> None:
        self._routes = routes
        self._windows = plan.windows
        self._tenants = (plan.tenant, *plan.other_tenants)
        self._max_event_bytes = plan.max_event_bytes
        self._random = random
        self._odds = list(accumulate(m.weight for m in MALFORMATIONS))

    def beat_form(self, node: Node) -> BeatForm:
        """The heartbeats of this node for as long as its life and version last."""
        return heartbeat_form(node, old_style=self._is_legacy(node, Kind.NODE_HEARTBEAT))

    def heartbeat(self, node: Node, time_ms: int) -> Record:
        traits = node.traits
        legacy = self._is_legacy(node, Kind.NODE_HEARTBEAT)
        route = self._routes[Kind.NODE_HEARTBEAT, legacy]
        voice = traits.own_voice
        value = beat(
            node.beat_form,
            self._random.getrandbits(128),
            time_ms + traits.skew_ms,
            (time_ms - node.born_ms) // 1000,
        )
        return Record(
            time_ms,
            Kind.NODE_HEARTBEAT,
            legacy,
            route.topic,
            voice.key_hash % route.partitions,
            route.append_time,
            voice.key,
            value,
            traits.headers,
            traits.index,
            node.scenario,
            None,
            None,
            node.epoch if node.names_epoch and traits.epoch_in_beats else None,
        )

    def event(
        self, node: Node, kind: EnumEventKind, time_ms: int, manner: Manner = Manner.PLAIN
    ) -> Record:
        """An event of any kind, as the script asks for it."""
        legacy = self._is_legacy(node, kind)
        document = self._document(node, kind, time_ms, manner, old_style=legacy)
        return self._record(node, kind, time_ms, document, legacy=legacy)

    def twin(self, record: Record) -> Record | None:
        """The same record on the legacy topic, if the kind has one."""
        route = self._routes.get((record.kind, True))
        if route is None:
            return None
        return record._replace(
            topic=route.topic,
            legacy=True,
            partition=key_hash(record.key) % route.partitions,
            append_time=route.append_time,
            disturbance=Trouble.TWIN,
        )

    def echo(self, node: Node, time_ms: int) -> Record | None:
        """An introspection of the life before, if there was one."""
        epoch = node.epoch - 1
        if epoch < 1:
            return None
        document = self._document(node, Kind.NODE_INTROSPECTION, time_ms)
        document["payload"]["epoch"] = epoch
        record = self._record(node, Kind.NODE_INTROSPECTION, time_ms, document)
        return record._replace(disturbance=Trouble.ECHO, epoch=epoch)

    def foreign_claim(self, node: Node, time_ms: int) -> Record | None:
        """Another tenant beats or introspects for a known node; plain ids are each tenant's own."""
        others = [tenant for tenant in self._tenants if tenant != node.traits.tenant]
        if node.traits.plain_id or node.state is None or not others:
            return None
        introspects = self._random.random() < 0.5
        kind = Kind.NODE_INTROSPECTION if introspects else Kind.NODE_HEARTBEAT
        document = self._document(node, kind, time_ms)
        document["payload"]["epoch"] = node.epoch + introspects
        tenant = others[int(self._random.random() * len(others))]
        return self._record(node, kind, time_ms, document)._replace(
            headers=((TENANT, tenant.encode()),),
            disturbance=Trouble.FOREIGN_TENANT,
        )

    def malformed(self, node: Node, time_ms: int) -> Record:
        roll = self._random.random() * self._odds[-1]
        malformation = MALFORMATIONS[bisect(self._odds, roll)]
        document = self._document(node, malformation.kind, time_ms)
        record = self._record(node, malformation.kind, time_ms, document)
        return record._replace(
            value=malformation.spoil(document, self._max_event_bytes),
            headers=record.headers if malformation.headers is None else malformation.headers,
            disturbance=Trouble.MALFORMED,
            malformed=malformation.reason,
        )

    def _is_legacy(self, node: Node, kind: EnumEventKind) -> bool:
        """Whether the node says this on a legacy topic; one that is left is nobody's any more."""
        return node.traits.legacy and (kind, True) in self._routes

    def _document(
        self,
        node: Node,
        kind: EnumEventKind,
        time_ms: int,
        manner: Manner = Manner.PLAIN,
        *,
        old_style: bool = False,
    ) -> dict[str, Any]:
        registrys = kind in REGISTRYS
        voice = node.traits.registry_voice if registrys else node.traits.own_voice
        return envelope(
            event_id=uuid_text(self._random.getrandbits(128)),
            event_type=event_type_of(kind, old_style=old_style),
            source=voice.source,
            correlation_id=node.correlation_id,
            timestamp_ms=time_ms if registrys else time_ms + node.traits.skew_ms,
            payload=payload_of(kind, node, time_ms, self._windows, manner),
        )

    def _record(
        self,
        node: Node,
        kind: EnumEventKind,
        time_ms: int,
        document: dict[str, Any],
        *,
        legacy: bool = False,
    ) -> Record:
        route = self._routes[kind, legacy]
        payload = document["payload"]
        # Requests go to many nodes and are keyed by themselves.
        key = payload.get("node_id", payload.get("request_id")).encode()
        return Record(
            time_ms=time_ms,
            kind=kind,
            legacy=legacy,
            topic=route.topic,
            partition=key_hash(key) % route.partitions,
            append_time=route.append_time,
            key=key,
            value=dump(document),
            headers=node.traits.headers,
            node=node.traits.index,
            scenario=node.scenario,
            disturbance=None,
            malformed=None,
            epoch=payload.get("epoch"),
        )
