"""001's storage slot: which store a configuration means."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pydantic import SecretStr

from onex_platform.base.errors import ConfigurationError
from onex_platform.capture.config import StorageConfig, StorageOptions
from onex_platform.capture.slots import ObjectStorage
from onex_platform.capture.storage.objects import ObjectStore
from onex_platform.log.store import PageStore, StoreOptions

_HINT = "Check storage.config of the snapshotter: address, bucket and credentials."
_TIMEOUT = timedelta(seconds=60)


def open_storage(storage: StorageConfig) -> ObjectStore:
    """The store that the configuration names; nothing is asked of it yet."""
    options = storage.config
    if storage.backend == "filesystem":
        return ObjectStore(storage.backend, PageStore(str(options.base_path), hint=_HINT))
    scheme, settings_of = _CLOUDS[storage.backend]
    reached = StoreOptions(
        endpoint=_address(options) or None,
        credentials={name: value for name, value in settings_of(options).items() if value},
        # The flusher backs off itself, for longer than a client library would.
        max_retries=0,
        request_timeout=_TIMEOUT,
    )
    store = PageStore(f"{scheme}://{options.bucket}", reached, hint=_HINT)
    return ObjectStore(storage.backend, store, storage_class=options.storage_class)


def require_abilities(store: ObjectStorage, storage: StorageConfig) -> Mapping[str, bool]:
    """What the store was probed to do; raises if the configuration asks for more."""
    abilities = store.probe()
    if storage.config.enable_versioning and not abilities["versioning"]:
        raise ConfigurationError(
            "storage.config.enable_versioning is true, but the store keeps no versions.",
            hint="Switch versioning on for the bucket, or leave the key out.",
        )
    return abilities


def _s3(options: StorageOptions) -> dict[str, Any]:
    return {
        "region": options.region,
        "access_key_id": _secret(options.access_key),
        "secret_access_key": _secret(options.secret_key),
    }


def _minio(options: StorageOptions) -> dict[str, Any]:
    return _s3(options) | {"region": options.region or "us-east-1"}


def _azure(options: StorageOptions) -> dict[str, Any]:
    """An account and its key."""
    return {
        "account_name": _secret(options.access_key),
        "account_key": _secret(options.secret_key),
    }


def _gcs(options: StorageOptions) -> dict[str, Any]:
    """A service account's JSON; without it, the environment's credentials."""
    return {"service_account_key": _secret(options.secret_key)}


_CLOUDS = {
    "s3": ("s3", _s3),
    "minio": ("s3", _minio),
    "azure": ("az", _azure),
    "gcs": ("gs", _gcs),
}


def _address(options: StorageOptions) -> str:
    """001 writes `minio:9000`, which is plain HTTP."""
    endpoint = options.endpoint or ""
    return f"http://{endpoint}" if endpoint and "://" not in endpoint else endpoint


def _secret(value: SecretStr | None) -> str | None:
    return None if value is None else value.get_secret_value()
