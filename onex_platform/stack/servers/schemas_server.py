"""The embedded schema registry: Apicurio's, by its Confluent-compatible interface.

Started only when it is asked for. Subjects are kept in a file of its own database (H2), so that
they survive a restart, as topics do.
"""

from __future__ import annotations

from onex_platform.base.errors import InfraError
from onex_platform.base.settings import Settings
from onex_platform.engines.schema_registry import SchemaRegistry
from onex_platform.stack.folders import ServerFolder, ServerRecord
from onex_platform.stack.jars import SCHEMA_REGISTRY, jar_files
from onex_platform.stack.java import find_java
from onex_platform.stack.ports import LOOPBACK
from onex_platform.stack.progress import Report, silent
from onex_platform.stack.servers.server import Server


class SchemasServer(Server):
    name = "schemas"
    title = "The schema registry"

    def is_external(self, settings: Settings) -> bool:
        return settings.schemas.url is not None

    def prepare(self, folder: ServerFolder, report: Report) -> None:
        find_java(folder.settings)
        jar_files(SCHEMA_REGISTRY, folder.settings, report)
        folder.data.mkdir(exist_ok=True)

    def command(self, folder: ServerFolder, ports: tuple[int, ...]) -> list[str]:
        jars = jar_files(SCHEMA_REGISTRY, folder.settings, silent)
        [program] = [jar for jar in jars if jar.name.endswith("-runner.jar")]
        # Relative to the working folder, because an address of H2 can't hold every path; and
        # written at once, so that a killed server forgets nothing that it answered for.
        database = f"jdbc:h2:./{folder.data.name}/subjects;WRITE_DELAY=0"
        return [
            find_java(folder.settings),
            "-Xmx300m",
            f"-Donex.stack={folder.marker}",
            f"-Dquarkus.http.host={LOOPBACK}",
            f"-Dquarkus.http.port={ports[0]}",
            f"-Dquarkus.datasource.jdbc.url={database}",
            "-jar",
            str(program),
        ]

    def attach(self, settings: Settings, folder: ServerFolder, record: ServerRecord) -> Settings:
        url = f"http://{LOOPBACK}:{record.port}/apis/ccompat/v7"
        schemas = settings.schemas.model_copy(update={"url": url})
        return settings.model_copy(update={"schemas": schemas})

    def answers(self, attached: Settings) -> bool:
        try:
            SchemaRegistry(attached).subjects()
        except InfraError:
            return False
        return True
