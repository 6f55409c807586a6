"""Certificates and kubeconfigs of a cluster, from one authority of its own."""

import json
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

SERVICE_IP, NODE_IP = "10.96.0.1", "10.245.0.1"  # of the API server, and of the node
API_SERVER = f"https://{NODE_IP}:6443"
_KUBERNETES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")
_SERVERS = {  # {file: names and addresses}
    "apiserver": (*_KUBERNETES, SERVICE_IP, NODE_IP, "127.0.0.1"),
    "kubelet": ("node", NODE_IP),
}
_CLIENTS = {  # {file: (user, group)}
    "admin": ("admin", "system:masters"),
    "apiserver-client": ("apiserver", "system:masters"),
    "node": ("system:node:node", "system:nodes"),
    "scheduler": ("system:kube-scheduler", None),
    "controllers": ("system:kube-controller-manager", None),
    "proxy": ("system:kube-proxy", None),
    "dns": ("dns", "system:masters"),
}


def make_certificates(folder: Path) -> None:
    """Write `NAME.crt` and `NAME.key` for each server and client, and `NAME.conf` for clients.

    `ca.crt` is the authority; `accounts.key` and `accounts.pub` sign service accounts.
    """
    folder.mkdir(mode=0o700)
    # RSA: Spark's client for Kubernetes needs another library for elliptic curves.
    authority = trustme.CA(key_type=trustme.KeyType.RSA)
    authority.cert_pem.write_to_path(str(folder / "ca.crt"))
    for name, hosts in _SERVERS.items():
        _write(folder / name, authority.issue_cert(*hosts, key_type=trustme.KeyType.RSA))
    for name, (user, group) in _CLIENTS.items():
        issued = authority.issue_cert(
            f"{name}.cluster.local",  # Go refuses a certificate with an empty list of names
            common_name=user,
            organization_name=group,
            key_type=trustme.KeyType.RSA,
        )
        _write(folder / name, issued)
        (folder / f"{name}.conf").write_text(json.dumps(_kubeconfig(folder, name)))
    _write_account_keys(folder)


def _write(path: Path, issued: trustme.LeafCert) -> None:
    issued.private_key_pem.write_to_path(str(path.with_suffix(".key")))
    certificates = b"".join(each.bytes() for each in issued.cert_chain_pems)
    path.with_suffix(".crt").write_bytes(certificates)


def _write_account_keys(folder: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    (folder / "accounts.key").write_bytes(private)
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    (folder / "accounts.pub").write_bytes(public)


def _kubeconfig(folder: Path, name: str) -> dict[str, object]:
    cluster = {"server": API_SERVER, "certificate-authority": str(folder / "ca.crt")}
    user = {
        "client-certificate": str(folder / f"{name}.crt"),
        "client-key": str(folder / f"{name}.key"),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "cluster",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": name}}],
    }
