"""Kubernetes on the machine of the cluster: its processes, and `kubectl`."""

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tools.cluster.machine import DNS_IP, NODE_IP, PODS, SERVICE_IP, run
from tools.processes.until import until

API_SERVER = f"https://{NODE_IP}:6443"
NAMESPACE = "spark"  # of the jobs
IN_NAMESPACE = ("--namespace", NAMESPACE)
EXECUTORS, DRIVERS = "--selector=spark-role=executor", "--selector=spark-role=driver"
START_TIMEOUT_S = 120.0
_SERVICES = "10.96.0.0/16"
_ETCD, _PEERS = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
_CONTAINERD = Path("/run/containerd/containerd.sock")
_SETTINGS = Path(__file__).parent / "node"  # files with $folder, $node, $pods and $dns
_KUBERNETES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")


class KubectlFailed(OSError):
    """A command of kubectl failed; the text is its error."""


@dataclass(slots=True)
class Cluster:
    """The control plane and one node; `folder` has certificates, configurations and logs."""

    folder: Path
    programs: Sequence[Path]  # folders with them
    _processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    _commands: dict[str, tuple[str, ...]] = field(default_factory=dict)  # {program: its command}

    @property
    def environ(self) -> dict[str, str]:
        """Variables with which its programs and kubectl are called."""
        path = os.pathsep.join([*map(str, self.programs), os.environ["PATH"]])
        return os.environ | {
            "PATH": path,
            "KUBECONFIG": str(self._certificate("admin.conf")),
            "KUBECACHEDIR": str(self.folder / "kubectl"),
        }

    def start_api_server(self) -> None:
        """Start etcd and the API server, and wait for it; raises AssertionError if it is late."""
        _make_certificates(self.folder / "certificates")
        (self.folder / "logs").mkdir()
        self._start(
            *("etcd", f"--data-dir={self.folder}/etcd", "--unsafe-no-fsync"),
            *(f"--listen-client-urls={_ETCD}", f"--advertise-client-urls={_ETCD}"),
            *(f"--listen-peer-urls={_PEERS}", f"--initial-advertise-peer-urls={_PEERS}"),
            f"--initial-cluster=default={_PEERS}",
        )
        server, client = self._certificate("server"), self._certificate("admin")
        authority, accounts = self._certificate("ca.crt"), self._certificate("accounts")
        self._start(
            *("kube-apiserver", f"--etcd-servers={_ETCD}", f"--advertise-address={NODE_IP}"),
            *(f"--service-cluster-ip-range={_SERVICES}", "--authorization-mode=Node,RBAC"),
            *("--enable-admission-plugins=NodeRestriction", f"--client-ca-file={authority}"),
            *(f"--tls-cert-file={server}.crt", f"--tls-private-key-file={server}.key"),
            *(f"--kubelet-client-certificate={client}.crt", f"--kubelet-client-key={client}.key"),
            f"--kubelet-certificate-authority={authority}",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={accounts}.pub",
            f"--service-account-signing-key-file={accounts}.key",
        )
        self._wait("kube-apiserver", lambda: self._is_ok("/readyz"))

    def start_node(self, images: Iterable[Path]) -> None:
        """Start everything else, with the archives of images, and wait for the node."""
        self._written("cni/pods.conflist")
        self._start("containerd", f"--config={self._written('containerd.toml')}")
        self._wait("containerd", _CONTAINERD.exists)
        for image in images:
            self.ctr("images", "import", str(image))
        admin = self._certificate("admin.conf")
        roles = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        controller = (*(f"--{role}={admin}" for role in roles), "--leader-elect=false")
        self._start(
            *("kube-controller-manager", *controller, "--use-service-account-credentials"),
            f"--root-ca-file={self._certificate('ca.crt')}",
            f"--service-account-private-key-file={self._certificate('accounts.key')}",
        )
        self._start("kube-scheduler", *controller)
        self._start("coredns", f"-conf={self._written('Corefile')}")
        self._start(
            *("kubelet", f"--config={self._written('kubelet.yaml')}", "--hostname-override=node"),
            *(f"--kubeconfig={admin}", f"--node-ip={NODE_IP}", f"--root-dir={self.folder}/kubelet"),
        )
        self._start("kube-proxy", f"--config={self._written('proxy.yaml')}")
        self.kubectl("wait", "--for=create", "node/node", "--timeout=60s")
        self.kubectl("wait", "--for=condition=Ready", "node/node", "--timeout=60s")
        self.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s")

    def kubectl(self, *arguments: str, timeout_s: float = 90.0) -> str:
        """The output of kubectl; raises KubectlFailed."""
        done = subprocess.run(
            ["kubectl", *arguments],
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        if done.returncode:
            raise KubectlFailed(done.stderr.strip())
        return done.stdout

    def get(self, *arguments: str) -> Any:  # noqa: ANN401  # any object
        """Objects, as `kubectl get -o json` prints them."""
        return json.loads(self.kubectl("get", "-o", "json", *arguments))

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """Pods of the jobs that stay."""
        pods = self.get("pods", *IN_NAMESPACE, selector)["items"]
        return [each for each in pods if "deletionTimestamp" not in each["metadata"]]

    def ctr(self, *arguments: str) -> str:
        """The output of containerd's client; raises OSError."""
        return run("ctr", "--namespace=k8s.io", *arguments, environ=self.environ)

    def restart(self, program: str) -> None:
        """Kill a program and start it again; raises AssertionError if it is not ready in time."""
        self._processes[program].kill()
        self._processes.pop(program).wait()
        self._start(*self._commands[program])
        self._wait("kube-apiserver", lambda: self._is_ok("/readyz"))
        if program == "kubelet":
            self._wait(program, lambda: self._is_ok("/api/v1/nodes/node/proxy/healthz"))
        if program == "containerd":
            self._wait(program, self._has_containers)

    def stop(self) -> None:
        """End all programs of the cluster, the last one first."""
        for process in reversed(self._processes.values()):
            process.terminate()
        while self._processes:
            _, process = self._processes.popitem()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, *command: str) -> None:
        self._commands[command[0]] = command
        with self._log(command[0]).open("ab") as log:
            self._processes[command[0]] = subprocess.Popen(
                [*command],
                env=self.environ,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _log(self, program: str) -> Path:
        return self.folder / "logs" / program

    def _wait(self, program: str, is_so: Callable[[], bool]) -> None:
        def is_over() -> bool:
            ended = self._processes[program].poll()
            if ended is not None:
                log = self._log(program).read_text(errors="replace")
                raise AssertionError(f"{program} ended with {ended}: {log[-1000:]}")
            return is_so()

        until(is_over, within_s=START_TIMEOUT_S)

    def _is_ok(self, path: str) -> bool:
        try:
            return self.kubectl("get", "--raw", path) == "ok"
        except KubectlFailed:
            return False

    def _has_containers(self) -> bool:
        try:
            self.ctr("containers", "list")
        except OSError:
            return False
        return True

    def _certificate(self, name: str) -> Path:
        return self.folder / "certificates" / name

    def _written(self, name: str) -> Path:
        """The settings of this name in the folder of the cluster."""
        addresses = {"folder": self.folder, "node": NODE_IP, "pods": PODS, "dns": DNS_IP}
        file = self.folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(Template((_SETTINGS / name).read_text()).substitute(addresses))
        return file


def _make_certificates(folder: Path) -> None:
    """One authority; certificates of all servers and of all clients; keys of service accounts."""
    folder.mkdir(mode=0o700)
    # RSA: Spark's client for Kubernetes needs another library for elliptic curves.
    authority = trustme.CA(key_type=trustme.KeyType.RSA)
    authority.cert_pem.write_to_path(str(folder / "ca.crt"))
    hosts = (*_KUBERNETES, "node", SERVICE_IP, NODE_IP, "127.0.0.1")
    issued = {
        "server": authority.issue_cert(*hosts, key_type=trustme.KeyType.RSA),
        # Go refuses a certificate with an empty list of names.
        "admin": authority.issue_cert(
            "admin.cluster.local",
            common_name="admin",
            organization_name="system:masters",
            key_type=trustme.KeyType.RSA,
        ),
    }
    for name, each in issued.items():
        each.private_key_pem.write_to_path(str(folder / f"{name}.key"))
        chain = b"".join(part.bytes() for part in each.cert_chain_pems)
        (folder / f"{name}.crt").write_bytes(chain)
    (folder / "admin.conf").write_text(json.dumps(_kubeconfig(folder)))
    key, pem = rsa.generate_private_key(65537, 2048), serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    (folder / "accounts.key").write_bytes(private)
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    (folder / "accounts.pub").write_bytes(public)


def _kubeconfig(folder: Path) -> dict[str, object]:
    cluster = {"server": API_SERVER, "certificate-authority": str(folder / "ca.crt")}
    files = {"client-certificate": "admin.crt", "client-key": "admin.key"}
    user = {name: str(folder / file) for name, file in files.items()}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "cluster",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "admin", "user": user}],
        "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": "admin"}}],
    }
