"""Keys are made once, rotated without loss, destroyed for ever, and refused if others read them."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tink
from tink import aead, proto_keyset_format, secret_key_access
from tink.testing import fake_kms

from onex_platform.base.errors import ConfigurationError, PrerequisiteError
from onex_platform.base.settings import RecordsSettings, Settings
from onex_platform.records.key_folder import (
    MASTER,
    SIGNING,
    TENANTS,
    TRUSTED,
    DestroyedKeyError,
    KeyFolder,
    KeyInfo,
)
from onex_platform.records.privacy import FieldCipher
from onex_platform_tests.support.key_folders import filled, with_keys

_DO = """
import sys
from pathlib import Path
from onex_platform.base import faults
from onex_platform.records.key_folder import KeyFolder
from onex_platform_tests.support.key_folders import with_keys

keys = KeyFolder(with_keys(Path(sys.argv[2])))
keys.master
faults.arm(sys.argv[1])
getattr(keys, sys.argv[3])(*sys.argv[4:])
"""


def known(settings: Settings) -> dict[tuple[str, str], KeyInfo]:
    return {(info.kind, info.name): info for info in KeyFolder(settings).list()}


def test_a_missing_key_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=rf"{tmp_path}/keys/{MASTER} is missing"):
        KeyFolder(with_keys(tmp_path)).make(TENANTS, "acme")


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o604])
def test_a_key_file_that_is_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    settings = with_keys(tmp_path)
    filled(settings)
    path = tmp_path / "keys" / MASTER
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match=rf"{path} has mode {mode:04o}"):
        KeyFolder(settings).make(TENANTS, "acme")


@pytest.mark.parametrize("environment", ["stage", "prod", "sand"])
def test_elsewhere_a_kms_has_the_master_key(tmp_path: Path, environment: str) -> None:
    settings = with_keys(tmp_path).model_copy(update={"environment": environment})
    for refused in (KeyFolder(settings).make_master, lambda: KeyFolder(settings).master):
        with pytest.raises(ConfigurationError, match="ONEX_RECORDS_KMS_URI"):
            refused()


def test_keys_under_a_kms_open_with_its_key_alone(tmp_path: Path) -> None:
    fake_kms.register_client()
    uris = []
    for _ in range(2):
        handle = tink.new_keyset_handle(aead.aead_key_templates.AES256_GCM)
        text = proto_keyset_format.serialize(handle, secret_key_access.TOKEN)
        uris.append(f"fake-kms://{base64.urlsafe_b64encode(text).decode()}")
    folders = [
        KeyFolder(
            Settings(
                environment="prod", records=RecordsSettings(keys=tmp_path / "keys", kms_uri=uri)
            )
        )
        for uri in uris
    ]
    assert folders[0].make(TENANTS, "acme")
    folders[0].read(TENANTS, "acme")
    with pytest.raises(ConfigurationError, match="does not open with this master key"):
        folders[1].read(TENANTS, "acme")


class _AwayKms(tink.KmsClient):  # type: ignore[misc]
    """A KMS that knows its keys, and does not answer."""

    def does_support(self, key_uri: str) -> bool:
        return key_uri.startswith("away-kms://")

    def get_aead(self, key_uri: str) -> aead.Aead:
        return _AwayKey()


class _AwayKey(aead.Aead):  # type: ignore[misc]
    def encrypt(self, plaintext: bytes, associated_data: bytes) -> bytes:
        raise ConnectionError("no answer")

    decrypt = encrypt


def test_a_kms_that_does_not_answer_is_named(tmp_path: Path) -> None:
    tink.register_kms_client(_AwayKms())
    filled(with_keys(tmp_path), tenants=("acme",))
    records = RecordsSettings(keys=tmp_path / "keys", kms_uri="away-kms://1")
    keys = KeyFolder(Settings(environment="prod", records=records))
    with pytest.raises(ConfigurationError, match=r"away-kms://1.*no answer"):
        keys.make(TENANTS, "umbrella")
    with pytest.raises(ConfigurationError, match=r"acme.json does not open.*no answer"):
        keys.read(TENANTS, "acme")


@pytest.mark.parametrize(
    ("uri", "extra"),
    [
        ("gcp-kms://projects/p/locations/l/keyRings/r/cryptoKeys/k", "gcpkms"),
        ("aws-kms://arn:aws:kms:eu-central-1:1:key/k", "awskms"),
    ],
)
def test_a_kms_whose_client_is_not_installed_names_the_extra(
    tmp_path: Path, uri: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, f"tink.integration.{extra}", None)
    keys = KeyFolder(Settings(records=RecordsSettings(keys=tmp_path, kms_uri=uri)))
    with pytest.raises(PrerequisiteError, match=uri) as refusal:
        keys.make(TENANTS, "acme")
    assert f"tink[{extra}]" in (refusal.value.hint or "")


def test_a_kms_that_nobody_knows_is_named(tmp_path: Path) -> None:
    records = RecordsSettings(keys=tmp_path, kms_uri="moon-kms://1")
    with pytest.raises(ConfigurationError, match="moon-kms://1"):
        KeyFolder(Settings(records=records)).make(TENANTS, "acme")


def test_many_who_make_a_key_at_once_get_the_same_one(tmp_path: Path) -> None:
    settings = with_keys(tmp_path)
    filled(settings)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: KeyFolder(settings).make(TENANTS, "acme"), range(16)))
    assert made.count(True) == 1
    assert len(known(settings)[TENANTS, "acme"].keys) == 1


def test_rotation_keeps_every_key_and_no_secret_lies_in_clear(tmp_path: Path) -> None:
    settings = with_keys(tmp_path)
    filled(settings, tenants=("acme",), actors=("node/a",))
    before = known(settings)
    KeyFolder(settings).rotate(TENANTS, "acme")
    KeyFolder(settings).rotate(SIGNING, "node/a")
    after = known(settings)
    for place in ((TENANTS, "acme"), (SIGNING, "node/a"), (TRUSTED, "node/a")):
        assert after[place].keys[:-1] == before[place].keys
        assert after[place].primary == after[place].keys[-1]
    for kind in (TENANTS, SIGNING):
        for path in (tmp_path / "keys" / kind).glob("*.json"):
            assert "SYMMETRIC" not in path.read_text()
            assert "keyData" not in path.read_text()


def test_a_destroyed_key_is_never_made_again(tmp_path: Path) -> None:
    settings = with_keys(tmp_path)
    filled(settings, tenants=("acme",))
    keys = known(settings)[TENANTS, "acme"].keys
    gone = KeyFolder(settings).destroy("acme")
    assert gone.keys == keys
    for act in (KeyFolder(settings).make, KeyFolder(settings).rotate, KeyFolder(settings).read):
        with pytest.raises(DestroyedKeyError, match=str(keys[0])):
            act(TENANTS, "acme")


def test_a_public_keyset_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no public Tink keyset"):
        KeyFolder(with_keys(tmp_path)).trust("node/a", "{}")


def _killed(moment: str, folder: Path, *call: str) -> None:
    command = [sys.executable, "-c", _DO, moment, str(folder), *call]
    ended = subprocess.run(command, check=False, env=os.environ, timeout=60)
    assert ended.returncode == -signal.SIGKILL


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_rotation_that_is_killed_happened_or_did_not(tmp_path: Path, when: str) -> None:
    settings = with_keys(tmp_path)
    filled(settings, tenants=("acme",))
    before = known(settings)[TENANTS, "acme"]
    _killed(f"{when}:keys.write", tmp_path, "rotate", TENANTS, "acme")
    after = known(settings)[TENANTS, "acme"]
    assert len(after.keys) == (1 if when == "before" else 2)
    assert after.keys[:1] == before.keys
    assert KeyFolder(settings).rotate(TENANTS, "acme").keys[: len(after.keys)] == after.keys


@pytest.mark.parametrize("moment", ["before:keys.destroy", "after:keys.destroy"])
def test_a_destruction_that_is_killed_is_over_for_readers_and_can_be_ended(
    tmp_path: Path, moment: str
) -> None:
    settings = with_keys(tmp_path)
    filled(settings, tenants=("acme",))
    before = known(settings)[TENANTS, "acme"]
    _killed(moment, tmp_path, "destroy", "acme")
    with pytest.raises(DestroyedKeyError):
        KeyFolder(settings).read(TENANTS, "acme")
    assert KeyFolder(settings).destroy("acme").keys == before.keys
    assert not (tmp_path / "keys" / TENANTS / "acme.json").exists()


@pytest.mark.parametrize(
    "next_step",
    [lambda keys: keys.make(TENANTS, "other"), lambda keys: keys.destroy("acme")],
    ids=["make", "destroy"],
)
def test_a_destruction_that_is_killed_ends_the_key_at_once_and_its_file_with_the_next_command(
    tmp_path: Path, next_step: Callable[[KeyFolder], object]
) -> None:
    settings = with_keys(tmp_path)
    filled(settings, tenants=("acme",))
    running = FieldCipher(KeyFolder(settings))
    event = {"event_id": "e-1", "email": "ada@example.org"}
    sealed = running.protected(event, {"email": "high"}, "topic", "acme")
    _killed("before:keys.destroy", tmp_path, "destroy", "acme")
    path = tmp_path / "keys" / TENANTS / "acme.json"
    # A question says so, and leaves it to the commands that change something.
    assert known(settings)[TENANTS, "acme"].is_left
    assert path.exists()
    document, [reason] = running.revealed(sealed)
    assert document == sealed
    assert "was destroyed" in reason
    next_step(KeyFolder(settings))
    assert not path.exists()
    assert not known(settings)[TENANTS, "acme"].is_left
