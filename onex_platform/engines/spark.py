"""Spark Connect servers: whether one is ready to work."""

from __future__ import annotations

from urllib.parse import urlsplit
from uuid import uuid4

import grpc
from pyspark.sql.connect.proto import (
    ExecutePlanRequest,
    Plan,
    Range,
    Relation,
    ReleaseSessionRequest,
    SparkConnectServiceStub,
    UserContext,
)


def connect_server_answers(remote: str, *, timeout_seconds: float = 60) -> bool:
    """Whether the server runs a query; the first one also warms it up.

    Asked on its own wire: pyspark's client would retry for ten minutes, and would become the
    session of this process.
    """
    session, user = str(uuid4()), UserContext(user_id="onex-platform")
    one_row = Plan(root=Relation(range=Range(end=1, step=1)))
    with grpc.insecure_channel(urlsplit(remote).netloc) as channel:
        server = SparkConnectServiceStub(channel)  # type: ignore[no-untyped-call]
        query = ExecutePlanRequest(session_id=session, user_context=user, plan=one_row)
        farewell = ReleaseSessionRequest(session_id=session, user_context=user)
        try:
            list(server.ExecutePlan(query, timeout=timeout_seconds))
            server.ReleaseSession(farewell, timeout=timeout_seconds)
        except grpc.RpcError:
            return False
    return True
