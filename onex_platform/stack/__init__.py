"""The embedded servers: PostgreSQL, Kafka and Spark Connect, on loopback, in one folder.

Development, the demo and the tests use them; where the settings name an address, the embedded
server of that kind is not started and the same code talks to the real one.
"""

from onex_platform.stack.jars import spark_jars
from onex_platform.stack.lifecycle import attach, down, running, status, up

__all__ = ["attach", "down", "running", "spark_jars", "status", "up"]
