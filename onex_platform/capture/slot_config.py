"""What a snapshotter leans on: 001's two slots, which store and which index, with what each
understands; and a schema registry, if one is to know the pages."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, SecretStr, model_validator

from onex_platform.base.settings import SchemasSettings
from onex_platform.capture.flush.keys import DEFAULT_TEMPLATE

# Which options a backend understands; the others are refused by name.
_STORAGE_OPTIONS = {
    "filesystem": {"base_path"},
    "s3": {"bucket", "endpoint", "region", "access_key", "secret_key", "storage_class"},
    "minio": {"bucket", "endpoint", "region", "access_key", "secret_key", "storage_class"},
    "azure": {"bucket", "endpoint", "access_key", "secret_key"},
    "gcs": {"bucket", "secret_key"},
}
_COMMON_OPTIONS = {"key_template", "enable_versioning"}
_STORAGE_NEEDS = {"filesystem": "base_path", "minio": "endpoint"}
_INDEX_OPTIONS = {
    "postgres": {"connection", "ttl_days"},
    "memstore": {"connection", "ttl_days"},
    "redis": {"connection", "key_prefix", "ttl_days", "cluster_mode"},
    "clickhouse": {"connection", "table", "partitioning", "ttl_days"},
    "elasticsearch": {"connection", "index", "ttl_days"},
}
_INTERFACES = {
    "postgres": "timeseries_basic",
    "memstore": "keyvalue_basic",
    "redis": "keyvalue_basic",
    "clickhouse": "timeseries_basic",
    "elasticsearch": "document_query",
}


def _bucket_of(backend: str) -> str | None:
    return None if backend == "filesystem" else "bucket"


def _check_interface(backend: str, interface: str | None) -> None:
    if interface not in {None, _INTERFACES[backend]}:
        raise ValueError(f"{backend} has the interface {_INTERFACES[backend]}, not {interface}")


def _refuse_others(section: str, backend: str, options: BaseModel, allowed: set[str]) -> None:
    if others := sorted(options.model_fields_set - allowed):
        raise ValueError(f"{section}.config.{others[0]} means nothing to {backend}")


class Section(BaseModel):
    """A part of the file; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class StorageOptions(Section):
    """Where pages lie; `_STORAGE_OPTIONS` says which backend takes what."""

    key_template: str = DEFAULT_TEMPLATE
    enable_versioning: bool = False
    base_path: str | None = None
    bucket: str | None = None
    endpoint: str | None = None
    region: str | None = None
    access_key: SecretStr | None = None
    secret_key: SecretStr | None = None
    storage_class: str | None = None


class StorageConfig(Section):
    """001's storage slot."""

    backend: Literal["filesystem", "s3", "minio", "azure", "gcs"]
    interface: Literal["storage_object"] = "storage_object"
    config: StorageOptions

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        _refuse_others(
            "storage", self.backend, self.config, _STORAGE_OPTIONS[self.backend] | _COMMON_OPTIONS
        )
        for option in (_STORAGE_NEEDS.get(self.backend), _bucket_of(self.backend)):
            if option and getattr(self.config, option) is None:
                raise ValueError(f"storage.config.{option} is needed by {self.backend}")
        return self


class SecondaryIndex(Section):
    """A further index, written like 001 does: its options stand beside its backend."""

    backend: Literal["postgres", "memstore", "redis", "clickhouse", "elasticsearch"]
    interface: str | None = None
    connection: SecretStr | None = None
    key_prefix: str = "snapshot:"
    ttl_days: PositiveFloat | None = None
    cluster_mode: bool = False
    table: str = "event_snapshots"
    partitioning: str = "toYYYYMM(start_time)"
    index: str = "event-snapshots"

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        _check_interface(self.backend, self.interface)
        allowed = _INDEX_OPTIONS[self.backend] | {"backend", "interface"}
        _refuse_others("index.config.secondary", self.backend, self, allowed)
        return self


class IndexOptions(Section):
    """How the index is reached; `_INDEX_OPTIONS` says which backend takes what."""

    connection: SecretStr | None = None
    key_prefix: str = "snapshot:"
    ttl_days: PositiveFloat | None = None
    cluster_mode: bool = False
    table: str = "event_snapshots"
    partitioning: str = "toYYYYMM(start_time)"
    index: str = "event-snapshots"
    secondary: tuple[SecondaryIndex, ...] = ()


class IndexConfig(Section):
    """001's index slot. `mode: sync` lets a page count as stored only when it is indexed too."""

    backend: Literal["postgres", "memstore", "redis", "clickhouse", "elasticsearch"] = "postgres"
    interface: str | None = None
    mode: Literal["async", "sync"] = "async"
    config: IndexOptions = IndexOptions()

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        _check_interface(self.backend, self.interface)
        _refuse_others(
            "index", self.backend, self.config, _INDEX_OPTIONS[self.backend] | {"secondary"}
        )
        return self


class SchemaRegistryConfig(Section):
    """A Confluent-compatible registry that is told what pages look like. Archives whose pages may
    come from different releases have different subjects."""

    url: str = Field(pattern=r"^https?://[^\s/@]+(/\S*)?$")
    subject: str = Field(default="prism.snapshotter.EventPage", pattern=r"^[\w.\-]{1,200}$")
    username: str | None = None
    password: SecretStr | None = None
    timeout_seconds: PositiveFloat = 10

    @model_validator(mode="after")
    def _login_is_whole(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("schema_registry.username and schema_registry.password go together")
        return self

    def schemas_settings(self) -> SchemasSettings:
        """The same in the words of the registry's client."""
        return SchemasSettings.model_validate(self.model_dump(exclude={"subject"}))
