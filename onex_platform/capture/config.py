"""The snapshotter's configuration file: 001's keys, and ours beside them.

Every key is honoured or refused by name; nothing is started on a file that contradicts itself.
`${NAME}` in a value, and `access_key_env: NAME` in place of `access_key`, are taken from the
environment.
"""

from __future__ import annotations

import math
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    BeforeValidator,
    Field,
    FilePath,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from onex_platform.base.errors import ConfigurationError
from onex_platform.capture.api.requests import RequestLimits
from onex_platform.capture.budget import Budget
from onex_platform.capture.captured_events import Durability
from onex_platform.capture.codecs import page_codec
from onex_platform.capture.compaction.merge_groups import MergeLimits
from onex_platform.capture.flush.cutting import CutLimits
from onex_platform.capture.flush.keys import KeyTemplate
from onex_platform.capture.slot_config import (
    IndexConfig,
    IndexOptions,
    SchemaRegistryConfig,
    SecondaryIndex,
    Section,
    StorageConfig,
    StorageOptions,
)
from onex_platform.capture.slots import PageCodec
from onex_platform.capture.wal.commit import LogLimits

__all__ = [
    "CaptureConfig",
    "IndexConfig",
    "IndexOptions",
    "SecondaryIndex",
    "StorageConfig",
    "StorageOptions",
    "TokenConfig",
    "load_config",
    "parse_config",
]

MIB = 1024 * 1024

_VARIABLE = re.compile(r"\$\{(\w+)\}")


class BufferConfig(Section):
    """When a writer's buffer becomes a page. The last three keys are ours: a unary writer that is
    idle has ended its session, and the small rests of ended sessions wait for each other."""

    max_events: PositiveInt = 1000
    max_size_bytes: PositiveInt = 10 * MIB
    max_age_seconds: PositiveFloat = 300
    flush_on_disconnect: bool = True
    idle_seconds: PositiveFloat = 60
    linger_seconds: float = Field(default=5, ge=0)
    share_below_bytes: int | None = Field(default=None, ge=0)


class PageConfig(Section):
    """How pages look."""

    format: Literal["protobuf", "ndjson", "parquet"] = "protobuf"
    compression: Literal["none", "gzip", "zstd"] = "gzip"
    target_size_mb: PositiveFloat | None = None
    include_metadata: bool = True
    tags: dict[str, str] = Field(default_factory=dict)


class WalConfig(Section):
    """The write-ahead log. `checkpoint` is 001's cheaper option: answers then say BUFFERED."""

    mode: Literal["sync", "checkpoint"] = "sync"
    folder: Path = Path("snapshotter")
    segment_bytes: int = Field(default=64 * MIB, ge=64 * 1024)
    max_bytes: PositiveInt = 16 * 1024 * MIB
    min_free_bytes: int = Field(default=256 * MIB, ge=0)
    checkpoint_seconds: PositiveFloat = 60


class LimitsConfig(Section):
    """What one event may weigh, and what all together may take in memory."""

    max_event_bytes: PositiveInt = MIB
    max_attributes: PositiveInt = 64
    max_attribute_bytes: PositiveInt = 16 * 1024
    max_batch: PositiveInt = 1000
    memory_bytes: PositiveInt = 256 * MIB


class IdsConfig(Section):
    """How long, and how many, ids are remembered to recognise retries."""

    max_age_seconds: PositiveFloat = 3600
    max_count: PositiveInt = 100_000


class RetryConfig(Section):
    """Storage and index failures: backoff doubles up to `max_seconds`; a page that failed
    `max_attempts` times becomes a dead letter."""

    first_seconds: PositiveFloat = 0.2
    max_seconds: PositiveFloat = 300
    max_attempts: PositiveInt = 20


class CompactionConfig(Section):
    """Small pages become few. Sizes are those of a page's events before compression; 001 proposes
    1 MB. A page is left alone until its youngest event is `settle_seconds` old."""

    small_bytes: PositiveInt = MIB
    target_bytes: PositiveInt = 32 * MIB
    start_at_pages: int = Field(default=100, ge=2)
    settle_seconds: float = Field(default=300, ge=0)
    grace_seconds: float = Field(default=3600, ge=0)

    def merge_limits(self) -> MergeLimits:
        return MergeLimits(self.small_bytes, self.target_bytes)


class RetentionConfig(Section):
    """Captured pages stay for ever, unless `days` says after how many the sweep deletes them."""

    days: PositiveFloat | None = None


class TokenConfig(Section):
    """Who may write: a token stands for a tenant, and may be bound to writers by prefix."""

    token: SecretStr = Field(min_length=1)
    tenant: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,62}$")
    writers: tuple[str, ...] = ("",)


class RelayConfig(Section):
    """Captured events that name one of these topics in `x-onex-topic` go on to Kafka. Without a
    list, the topics are those that the platform reads."""

    enabled: bool = False
    topics: tuple[str, ...] = ()


class ListenConfig(Section):
    """Where the service listens."""

    host: str = "127.0.0.1"
    port: int = Field(default=50051, ge=0, le=65535)
    http_port: int = Field(default=9464, ge=0, le=65535)
    tls_certificate: FilePath | None = None
    tls_key: FilePath | None = None
    tls_client_ca: FilePath | None = None
    keepalive_seconds: PositiveFloat = 30


def _wal_by_name(value: Any) -> Any:
    return {"mode": value} if isinstance(value, str) else value


class CaptureConfig(Section):
    """The whole file."""

    plugin: Literal["snapshotter"]
    version: str = Field(default="v1.0.0", pattern=r"^v1(\.|$)")
    instance: str = Field(default_factory=socket.gethostname, min_length=1, max_length=128)
    buffer: BufferConfig = BufferConfig()
    page: PageConfig = PageConfig()
    storage: StorageConfig
    index: IndexConfig = IndexConfig()
    wal: Annotated[WalConfig, BeforeValidator(_wal_by_name)] = WalConfig()
    limits: LimitsConfig = LimitsConfig()
    ids: IdsConfig = IdsConfig()
    retry: RetryConfig = RetryConfig()
    tokens: tuple[TokenConfig, ...] = ()
    compaction: CompactionConfig = CompactionConfig()
    retention: RetentionConfig = RetentionConfig()
    listen: ListenConfig = ListenConfig()
    relay: RelayConfig = RelayConfig()
    schema_registry: SchemaRegistryConfig | None = None
    durability: Literal["BUFFERED", "WAL", "STORED", "INDEXED"] | None = None

    @field_validator("tokens")
    @classmethod
    def _tokens_differ(cls, tokens: tuple[TokenConfig, ...]) -> tuple[TokenConfig, ...]:
        if len({token.token.get_secret_value() for token in tokens}) < len(tokens):
            raise ValueError("the same token stands there twice")
        return tokens

    @model_validator(mode="after")
    def _limits_agree(self) -> Self:
        page, buffer = self.page_bytes, self.buffer.max_size_bytes
        largest = self.limits.max_event_bytes + self.limits.max_attribute_bytes + 4096
        for small, what_small, large, what_large in (
            (page, "page.target_size_mb", buffer, "buffer.max_size_bytes"),
            (self.share_below_bytes, "buffer.share_below_bytes", page, "the size of a page"),
            (buffer, "buffer.max_size_bytes", self.limits.memory_bytes, "limits.memory_bytes"),
            (largest, "the largest event (limits)", self.wal.segment_bytes, "wal.segment_bytes"),
            (2 * self.wal.segment_bytes, "two segments", self.wal.max_bytes, "wal.max_bytes"),
            (
                2 * self.compaction.small_bytes,
                "twice compaction.small_bytes",
                self.compaction.target_bytes,
                "compaction.target_bytes",
            ),
            (
                self.retry.first_seconds,
                "retry.first_seconds",
                self.retry.max_seconds,
                "retry.max_seconds",
            ),
            (
                self.retention.days or 0,
                "retention.days",
                # An entry that expires first would leave its object behind for ever.
                self.index.config.ttl_days or math.inf,
                "index.config.ttl_days",
            ),
        ):
            if small > large:
                raise ValueError(f"{what_small} ({small:g}) is above {what_large} ({large:g})")
        if (self.listen.tls_certificate is None) != (self.listen.tls_key is None):
            raise ValueError("listen.tls_certificate and listen.tls_key go together")
        if self.listen.tls_client_ca is not None and self.listen.tls_certificate is None:
            raise ValueError("listen.tls_client_ca asks for listen.tls_certificate as well")
        if self.wal.mode == "checkpoint" and self.durability == "WAL":
            raise ValueError("durability WAL is not to be had with wal: checkpoint")
        return self

    @property
    def default_durability(self) -> Durability:
        """What a request gets that asks for nothing."""
        if self.durability is not None:
            return Durability[self.durability]
        return Durability.BUFFERED if self.wal.mode == "checkpoint" else Durability.WAL

    @property
    def page_bytes(self) -> int:
        """The size at which a page is cut."""
        target = self.page.target_size_mb
        return int(target * MIB) if target else self.buffer.max_size_bytes

    @property
    def share_below_bytes(self) -> int:
        chosen = self.buffer.share_below_bytes
        return self.page_bytes // 10 if chosen is None else chosen

    def codec(self) -> PageCodec:
        """What this instance's pages are written with."""
        page = self.page
        return page_codec(page.format, page.compression, include_metadata=page.include_metadata)

    def keys(self) -> KeyTemplate:
        """Where this instance's pages lie."""
        return KeyTemplate(self.storage.config.key_template, self.codec().extension)

    def cut_limits(self) -> CutLimits:
        return CutLimits(
            max_events=self.buffer.max_events,
            max_bytes=self.page_bytes,
            max_age_seconds=self.buffer.max_age_seconds,
            idle_seconds=self.buffer.idle_seconds,
            linger_seconds=self.buffer.linger_seconds,
            share_below_bytes=self.share_below_bytes,
        )

    def request_limits(self) -> RequestLimits:
        limits = self.limits
        return RequestLimits(
            limits.max_event_bytes, limits.max_attributes, limits.max_attribute_bytes
        )

    def log_limits(self) -> LogLimits:
        wal = self.wal
        return LogLimits(
            segment_bytes=wal.segment_bytes,
            max_bytes=wal.max_bytes,
            min_free_bytes=wal.min_free_bytes,
            sync_seconds=wal.checkpoint_seconds if wal.mode == "checkpoint" else 0.0,
        )

    def budget(self) -> Budget:
        return Budget(self.limits.memory_bytes)


def load_config(path: Path, environment: Mapping[str, str] = os.environ) -> CaptureConfig:
    """The file's configuration; a fault is one sentence that names the key."""
    try:
        with path.open(encoding="utf-8") as file:
            values = yaml.load(file, Loader=_StrictLoader)  # noqa: S506 - a safe loader
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror}.") from None
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} is not valid YAML: {error}.") from None
    return parse_config(values, environment, source=str(path))


def parse_config(
    values: Any, environment: Mapping[str, str] = os.environ, source: str = "The configuration"
) -> CaptureConfig:
    """A configuration from plain values."""
    if not isinstance(values, dict):
        raise ConfigurationError(f"{source} is not a mapping of sections.")
    try:
        config = CaptureConfig.model_validate(_resolved(values, environment, ""))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            message = "this key is not known"
        raise ConfigurationError(
            f"{source}: {place}: {message}.", hint="docs/snapshotter.md lists every key."
        ) from None
    config.keys()  # a template that escapes or contradicts the format is refused here
    return config


def _resolved(value: Any, environment: Mapping[str, str], place: str) -> Any:
    """The value with everything that it takes from the environment."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _variable(match[1], environment, place), value)
    if isinstance(value, list):
        return [_resolved(item, environment, place) for item in value]
    if not isinstance(value, dict):
        return value
    resolved = {}
    for name, item in value.items():
        key = str(name)
        inner = f"{place}.{key}" if place else key
        if key.endswith("_env") and isinstance(item, str):
            key, item = key.removesuffix("_env"), _variable(item, environment, inner)
            if key in value:
                raise ConfigurationError(f"{place}: {key} and {key}_env are both set.")
        elif key == "path" and place == "storage.config":
            key = "base_path"  # 001 uses both words
        resolved[key] = _resolved(item, environment, inner)
    return resolved


def _variable(name: str, environment: Mapping[str, str], place: str) -> str:
    if name not in environment:
        raise ConfigurationError(
            f"{place} names the environment variable {name}, which is not set.",
            hint=f"Set {name}, or write the value into the file.",
        )
    return environment[name]


class _StrictLoader(yaml.SafeLoader):
    """PyYAML takes the last of two equal keys; here the second one is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise yaml.YAMLError(f"{repeated[0]!r} stands twice, line {node.start_mark.line + 1}")
        return super().construct_mapping(node, deep)
