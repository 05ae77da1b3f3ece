"""How workers share the tests: whole files, and together those that need a server few others do."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

# By these words a file asks for a server whose start costs as much as many tests: Spark Connect, a
# broker that asks for rights, OpenSearch, a schema registry.
RARE = ("remote_spark", "secured", "EVERY_INDEX", "schemas: SchemasSettings")


class ServersOnce(LoadScopeScheduling):
    """Files that ask for the same rare server are one worker's, so that it is started once."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return _rare_server(self.config.rootpath / file) or file


@cache
def _rare_server(file: Path) -> str | None:
    text = file.read_text(encoding="utf-8")
    return next((word for word in RARE if word in text), None)
