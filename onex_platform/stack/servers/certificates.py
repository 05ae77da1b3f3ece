"""A certificate for an embedded server, and the authority that clients trust for it.

The authority signs this one certificate and is forgotten: its key is written nowhere.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from onex_platform.stack.ports import LOOPBACK

_LIFETIME = timedelta(days=3650)  # of a laptop's broker; nobody renews it
_CLOCKS_DIFFER = timedelta(minutes=5)


def write_certificate(key_and_certificate: Path, authority: Path) -> None:
    """Write both files as PEM; the first holds the server's key and is its owner's alone."""
    signing, serving = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    root = _name("onex embedded authority")
    ca = (
        _certificate(root, root, signing)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(signing, hashes.SHA256())
    )
    names = x509.SubjectAlternativeName(
        [x509.IPAddress(ip_address(LOOPBACK)), x509.DNSName("localhost")]
    )
    server = (
        _certificate(_name("onex embedded broker"), root, serving)
        .add_extension(names, critical=False)
        .sign(signing, hashes.SHA256())
    )
    key = serving.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    pem = serialization.Encoding.PEM
    key_and_certificate.touch(mode=0o600)
    key_and_certificate.write_bytes(key + server.public_bytes(pem) + ca.public_bytes(pem))
    authority.write_bytes(ca.public_bytes(pem))


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + _LIFETIME)
    )
