"""The embedded Spark Connect server: a warm session that jobs reach without paying for a cold one.

It runs on this machine's cores and has the connector jars of `jars` on its class path.
"""

from __future__ import annotations

import sys

from onex_platform.base.settings import Settings
from onex_platform.engines.health import spark_connect_answers
from onex_platform.engines.spark import worker
from onex_platform.stack.folders import ServerFolder, ServerRecord
from onex_platform.stack.jars import spark_jars
from onex_platform.stack.java import find_java, java_environment, pyspark_folder
from onex_platform.stack.ports import LOOPBACK
from onex_platform.stack.progress import Report
from onex_platform.stack.servers.server import Server

_MAIN_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


class SparkConnectServer(Server):
    name = "spark"
    title = "Spark Connect"

    def is_external(self, settings: Settings) -> bool:
        return settings.spark.remote is not None or settings.spark.master is not None

    def prepare(self, folder: ServerFolder, report: Report) -> None:
        find_java(folder.settings)
        spark_jars(folder.settings, report)
        folder.data.mkdir(exist_ok=True)

    def command(self, folder: ServerFolder, ports: tuple[int, ...]) -> list[str]:
        spark = folder.settings.spark
        properties = {
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": ports[0],
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.local.dir": folder.data,
            "spark.sql.warehouse.dir": folder.data / "warehouse",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": spark.shuffle_partitions,
            "spark.python.daemon.module": worker.MODULE,
            "spark.ui.enabled": "false",
        }
        flags = [
            word for name, value in properties.items() for word in ("--conf", f"{name}={value}")
        ]
        return [
            str(pyspark_folder() / "bin" / "spark-submit"),
            f"--class={_MAIN_CLASS}",
            f"--name={folder.marker}",
            "--master=local[*]",
            f"--driver-memory={spark.driver_memory}",
            f"--jars={','.join(map(str, spark_jars(folder.settings)))}",
            *flags,
            "spark-internal",
        ]

    def environment(self, settings: Settings) -> dict[str, str]:
        return java_environment(
            settings, SPARK_HOME=str(pyspark_folder()), PYSPARK_PYTHON=sys.executable
        )

    def attach(self, settings: Settings, folder: ServerFolder, record: ServerRecord) -> Settings:
        spark = settings.spark.model_copy(update={"remote": f"sc://{LOOPBACK}:{record.port}"})
        return settings.model_copy(update={"spark": spark})

    def answers(self, attached: Settings) -> bool:
        remote = attached.spark.remote
        return remote is not None and spark_connect_answers(remote)
