"""The keys that sign and encrypt: a folder of Tink keysets, each encrypted under one master key.

    master.json               the master key in clear, in development only; else a KMS has it
    tenants/<tenant>.json     encrypts the private fields of a tenant's events
    signing/<actor>.json      signs what an actor publishes
    trusted/<actor>.json      whose signatures are taken, in public keys

A keyset is a list of keys. Rotation adds one and makes it the primary: what is written from then on
uses it, and the others go on reading what they wrote, so nothing is written again. A tenant whose
keyset is destroyed keeps a mark in its place, and is given no other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import tink
from filelock import FileLock
from tink import aead, json_proto_keyset_format, secret_key_access, signature

from onex_platform.base.errors import (
    ConfigurationError,
    MissingTenantKeyError,
    OnexError,
    PrerequisiteError,
)
from onex_platform.base.faults import effect
from onex_platform.base.settings import Settings

MASTER, TENANTS, SIGNING, TRUSTED = "master.json", "tenants", "signing", "trusted"
_DESTROYED = ".destroyed"
_OWN_KEY_FILE = frozenset({"dev", "test"})
_GOOGLE, _AMAZON = "gcp-kms://", "aws-kms://"
_TEMPLATES = {
    TENANTS: aead.aead_key_templates.AES256_GCM,
    SIGNING: signature.signature_key_templates.ED25519,
}

aead.register()
signature.register()


class DestroyedKeyError(OnexError):
    """The key was destroyed: what it encrypted can't be read by anybody any more."""


class KeyInfo(NamedTuple):
    """A keyset, without its secrets; `destroyed_at` if nobody uses it any more.

    `is_left`: the destruction was killed, and the file still lies here.
    """

    kind: str
    name: str
    primary: int | None
    keys: tuple[int, ...]
    destroyed_at: datetime | None = None
    is_left: bool = False


class KeyFolder:
    """The keysets that the settings name; a key is read when it is used, and not before."""

    def __init__(self, settings: Settings) -> None:
        chosen = settings.records.keys or settings.stack.folder / "keys"
        self.folder = chosen.expanduser().resolve()
        self._environment = settings.environment
        self._kms_uri = settings.records.kms_uri

    @cached_property
    def master(self) -> aead.Aead:
        """What every other key is encrypted with."""
        if self._kms_uri is not None:
            return _of_kms(self._kms_uri)
        self._require_key_file_is_allowed()
        return _parsed_in_clear(_private_text(self.folder / MASTER)).primitive(aead.Aead)

    def make_master(self) -> bool:
        """Make the master key of a development environment; False if there is one."""
        if self._kms_uri is not None:
            raise ConfigurationError(
                f"ONEX_RECORDS_KMS_URI={self._kms_uri} names the master key.",
                hint="Unset it to use a key file, in dev and test only.",
            )
        self._require_key_file_is_allowed()
        handle = tink.new_keyset_handle(aead.aead_key_templates.AES256_GCM)
        text = json_proto_keyset_format.serialize(handle, secret_key_access.TOKEN)
        return self._create(self.folder / MASTER, text)

    def make(self, kind: str, name: str) -> bool:
        """Make a keyset; False if there is one. A destroyed one is never replaced."""
        with self._changing():
            self._remove_destroyed()
            self._require_not_destroyed(kind, name)
            made = self._create(
                self._path(kind, name), self._encrypted(tink.new_keyset_handle(_TEMPLATES[kind]))
            )
            if kind == SIGNING:
                self._trust_own(name)
            return made

    def rotate(self, kind: str, name: str) -> KeyInfo:
        """Add a key and make it the primary; the others go on reading."""
        with self._changing():
            keys = _document(self.read(kind, name))
            new = _document(tink.new_keyset_handle(_TEMPLATES[kind]))
            keys["key"] += new["key"]
            keys["primaryKeyId"] = new["primaryKeyId"]
            handle = _parsed_in_clear(json.dumps(keys))
            if kind == SIGNING:
                # Trusted before it signs: nobody may read a signature that is not known yet.
                self._write(self._path(TRUSTED, name), _public(handle))
            self._write(self._path(kind, name), self._encrypted(handle))
        return self._info(kind, name)

    def destroy(self, tenant: str) -> KeyInfo:
        """Make what a tenant's key encrypted unreadable, for ever and everywhere."""
        with self._changing():
            info = self._info(TENANTS, tenant)
            mark = {"destroyed_at": datetime.now(UTC).isoformat(), "keys": list(info.keys)}
            # The mark first: a crash in between leaves a key that nobody takes for a living one.
            self._write(self._mark(TENANTS, tenant), json.dumps(mark))
            self._remove_destroyed()
        return self._info(TENANTS, tenant)

    def trust(self, actor: str, public: str) -> None:
        """Take the signatures of an actor, by its public keyset."""
        try:
            json_proto_keyset_format.parse_without_secret(public)
        except tink.TinkError as error:
            raise ConfigurationError(
                f"The keyset of {actor!r} is no public Tink keyset: {error}.",
                hint="`onex keys public ACTOR` prints one.",
            ) from None
        with self._changing():
            self._write(self._path(TRUSTED, actor), public)

    def read(self, kind: str, name: str) -> tink.KeysetHandle:
        """A keyset; names what is missing, destroyed or not readable with this master key."""
        self._require_not_destroyed(kind, name)
        try:
            text = self._path(kind, name).read_text()
        except FileNotFoundError:
            missing = MissingTenantKeyError if kind == TENANTS else ConfigurationError
            whose = "tenant" if kind == TENANTS else "actor"
            raise missing(
                f"There is no key of {whose} {name!r} in {self.folder / kind}.",
                hint=f"`onex keys make --{whose} {name}` makes it.",
            ) from None
        try:
            return json_proto_keyset_format.parse_encrypted(text, self.master, b"")
        except Exception as error:  # Tink's own, or the KMS client's
            raise ConfigurationError(
                f"The key {self._path(kind, name)} does not open with this master key: {error}.",
                hint="It was made under another one, or the KMS does not let this account decrypt.",
            ) from None

    def changed_at(self, kind: str, name: str) -> int | None:
        """When a keyset last changed, in nanoseconds; None if there is none, or not for long."""
        if self._mark(kind, name).exists():
            return None
        try:
            return self._path(kind, name).stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def public(self, actor: str) -> str:
        """The public keyset of an actor that signs here."""
        return _public(self.read(SIGNING, actor))

    def trusted(self) -> dict[str, str]:
        """The public keysets of everybody whose signatures are taken, by actor."""
        return {
            unquote(path.stem): path.read_text()
            for path in sorted((self.folder / TRUSTED).glob("*.json"))
        }

    def list(self) -> Iterator[KeyInfo]:
        """Every keyset, and what was destroyed; asks, and changes nothing."""
        for kind in (TENANTS, SIGNING, TRUSTED):
            names = {
                unquote(path.stem)
                for path in (self.folder / kind).glob("*")
                if path.suffix in (".json", _DESTROYED) and not path.name.startswith(".")
            }
            for name in sorted(names):
                yield self._info(kind, name)

    def _info(self, kind: str, name: str) -> KeyInfo:
        if (mark := self._destruction(kind, name)) is not None:
            moment = datetime.fromisoformat(mark["destroyed_at"])
            is_left = self._path(kind, name).exists()
            return KeyInfo(kind, name, None, tuple(mark["keys"]), moment, is_left)
        handle = (
            json_proto_keyset_format.parse_without_secret(self._path(kind, name).read_text())
            if kind == TRUSTED
            else self.read(kind, name)
        )
        info = handle.keyset_info()
        return KeyInfo(kind, name, info.primary_key_id, tuple(key.key_id for key in info.key_info))

    def _trust_own(self, actor: str) -> None:
        """Whoever signs here is trusted here; also after a crash between the two."""
        self._write(self._path(TRUSTED, actor), self.public(actor))

    def _require_key_file_is_allowed(self) -> None:
        if self._environment not in _OWN_KEY_FILE:
            raise ConfigurationError(
                f"ONEX_ENVIRONMENT={self._environment} takes no key file: its master key belongs "
                "to a KMS.",
                hint="Set ONEX_RECORDS_KMS_URI; docs/privacy.md says how.",
            )

    def _require_not_destroyed(self, kind: str, name: str) -> None:
        if (mark := self._destruction(kind, name)) is not None:
            keys = ", ".join(map(str, mark["keys"]))
            raise DestroyedKeyError(
                f"The key of {name!r} (key id {keys}) was destroyed at {mark['destroyed_at']}.",
                hint="What it encrypted can't be read any more, and it is never made again.",
            )

    def _destruction(self, kind: str, name: str) -> dict[str, Any] | None:
        with suppress(FileNotFoundError):
            mark: dict[str, Any] = json.loads(self._mark(kind, name).read_text())
            return mark
        return None

    def _encrypted(self, handle: tink.KeysetHandle) -> str:
        master = self.master
        try:
            return str(json_proto_keyset_format.serialize_encrypted(handle, master, b""))
        except Exception as error:  # Tink's own, or the KMS client's
            raise ConfigurationError(
                f"ONEX_RECORDS_KMS_URI={self._kms_uri}: the key there does not encrypt: {error}.",
                hint="See whether the KMS answers, and lets this account encrypt and decrypt.",
            ) from None

    def _path(self, kind: str, name: str) -> Path:
        return self.folder / kind / f"{quote(name, safe='')}.json"

    def _mark(self, kind: str, name: str) -> Path:
        return self._path(kind, name).with_suffix(_DESTROYED)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """One process at a time: a key that another one overwrote would take its data along."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(self.folder / ".lock", timeout=30):
            yield

    def _remove_destroyed(self) -> None:
        """Delete every keyset that has a mark, also one that a crash has left behind."""
        for path in self._marked_files():
            with effect("keys.destroy"):
                path.unlink(missing_ok=True)

    def _marked_files(self) -> Sequence[Path]:
        marks = (self.folder / TENANTS).glob(f"*{_DESTROYED}")
        return [path for mark in marks if (path := mark.with_suffix(".json")).exists()]

    def _create(self, path: Path, text: str) -> bool:
        """Write a file unless there is one; False if there is."""
        return self._write(path, text, lambda draft: os.link(draft, path))

    def _write(self, path: Path, text: str, place: Callable[[Path], object] | None = None) -> bool:
        """Put a file in its place in one step, synced and for its owner only."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        try:
            with effect("keys.write"):
                (place or (lambda written: written.replace(path)))(draft)
        except FileExistsError:
            return False
        finally:
            draft.unlink(missing_ok=True)
        return True


def _private_text(path: Path) -> str:
    """A secret file's text; refused if it is missing or if others can read it."""
    try:
        mode = path.stat().st_mode & 0o777
        text = path.read_text()
    except FileNotFoundError:
        raise ConfigurationError(
            f"The key file {path} is missing.", hint="`onex keys make` makes it."
        ) from None
    except PermissionError:
        raise ConfigurationError(
            f"The key file {path} (mode {mode:04o}) can't be read by this user.",
            hint="Run the command as its owner.",
        ) from None
    if mode & 0o077:
        raise ConfigurationError(
            f"The key file {path} has mode {mode:04o}: others have access to it.",
            hint=f"Run `chmod 600 {path}`, and make a new one if somebody may have read it.",
        )
    return text


def _of_kms(uri: str) -> aead.Aead:
    """The key in a KMS; who may use it is decided by the credentials that its client finds."""
    try:
        client = _kms_client(uri)
        return client.get_aead(uri)
    except ImportError as error:
        raise PrerequisiteError(
            f"ONEX_RECORDS_KMS_URI={uri} needs a client that is not installed: {error}.",
            hint="Install tink[gcpkms] or tink[awskms].",
        ) from None
    except Exception as error:  # each client has errors of its own, for credentials and addresses
        raise ConfigurationError(
            f"ONEX_RECORDS_KMS_URI={uri} can't be used: {error}.",
            hint="gcp-kms:// and aws-kms:// are built in; docs/privacy.md says what they need.",
        ) from None


def _kms_client(uri: str) -> tink.KmsClient:
    if uri.startswith(_GOOGLE):
        from tink.integration import gcpkms

        return gcpkms.GcpKmsClient(uri)
    if uri.startswith(_AMAZON):
        from tink.integration import awskms

        return awskms.AwsKmsClient(uri, None)
    return tink.kms_client_from_uri(uri)


def _parsed_in_clear(text: str) -> tink.KeysetHandle:
    return json_proto_keyset_format.parse(text, secret_key_access.TOKEN)


def _document(handle: tink.KeysetHandle) -> dict[str, Any]:
    text = json_proto_keyset_format.serialize(handle, secret_key_access.TOKEN)
    document: dict[str, Any] = json.loads(text)
    return document


def _public(handle: tink.KeysetHandle) -> str:
    return str(json_proto_keyset_format.serialize_without_secret(handle.public_keyset_handle()))
