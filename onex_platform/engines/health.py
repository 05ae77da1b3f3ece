"""Whether a server is ready to work: asked by a real request, answered by yes or no.

No breaker is involved: a server that is being started is expected to refuse for a while.
"""

from __future__ import annotations

from urllib.parse import urlsplit
from uuid import uuid4

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from sqlalchemy.exc import DBAPIError

from onex_platform.base.settings import Settings
from onex_platform.engines.postgres.database import open_engine


def postgres_answers(settings: Settings) -> bool:
    """Whether the platform's database runs a query."""
    engine = open_engine(settings)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("SELECT 1")
    except DBAPIError:
        return False
    finally:
        engine.dispose()
    return True


def kafka_answers(settings: Settings, *, timeout_seconds: float = 2) -> bool:
    """Whether a broker describes its cluster and counts itself in."""
    quietly = {"log_level": 0, "reconnect.backoff.max.ms": 250}
    admin = AdminClient({**settings.kafka.client_config(), **quietly})
    try:
        return bool(admin.list_topics(timeout=timeout_seconds).brokers)
    except KafkaException:
        return False


def spark_connect_answers(remote: str, *, timeout_seconds: float = 60) -> bool:
    """Whether a Spark Connect server runs a query; the first one also warms it up.

    Asked on its own wire: pyspark's client would retry for ten minutes, and would become the
    session of this process.
    """
    # Imported late: they take a second, and most stacks run without this server.
    import grpc
    from pyspark.sql.connect import proto

    session, user = str(uuid4()), proto.UserContext(user_id="onex-platform")
    one_row = proto.Plan(root=proto.Relation(range=proto.Range(end=1, step=1)))
    query = proto.ExecutePlanRequest(session_id=session, user_context=user, plan=one_row)
    farewell = proto.ReleaseSessionRequest(session_id=session, user_context=user)
    with grpc.insecure_channel(urlsplit(remote).netloc) as channel:
        server = proto.SparkConnectServiceStub(channel)  # type: ignore[no-untyped-call]
        try:
            list(server.ExecutePlan(query, timeout=timeout_seconds))
            server.ReleaseSession(farewell, timeout=timeout_seconds)
        except grpc.RpcError:
            return False
    return True
