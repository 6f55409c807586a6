"""Kubernetes on the machine of the cluster: its processes, and `kubectl`."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.cluster.certificates import API_SERVER, NODE_IP, make_certificates
from tools.cluster.images import PAUSE, Archive
from tools.cluster.machine import DNS_IP, PODS, run
from tools.cluster.programs import locked_cache
from tools.processes.until import until

NAMESPACE = "spark"  # of the jobs
IN_NAMESPACE = ("--namespace", NAMESPACE)
EXECUTORS, DRIVERS = "--selector=spark-role=executor", "--selector=spark-role=driver"
START_TIMEOUT_S = 120.0
_SERVICES = "10.96.0.0/16"
_ETCD = "http://127.0.0.1:2379"
_CONTAINERD = "/run/containerd/containerd.sock"
_IMAGES = "containerd"  # containerd's folder
_KEPT = "images-"  # such a folder in the cache


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
        make_certificates(self.folder / "certificates")
        (self.folder / "logs").mkdir()
        peers = "http://127.0.0.1:2380"
        self._run(
            *("etcd", f"--data-dir={self.folder}/etcd", "--unsafe-no-fsync"),
            *(f"--listen-client-urls={_ETCD}", f"--advertise-client-urls={_ETCD}"),
            *(f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}"),
            f"--initial-cluster=default={peers}",
        )
        own, client = self._certificate("apiserver"), self._certificate("apiserver-client")
        authority = self._certificate("ca.crt")
        accounts = self._certificate("accounts")
        self._run(
            *("kube-apiserver", f"--etcd-servers={_ETCD}", f"--advertise-address={NODE_IP}"),
            *(f"--service-cluster-ip-range={_SERVICES}", "--authorization-mode=Node,RBAC"),
            *("--enable-admission-plugins=NodeRestriction", f"--client-ca-file={authority}"),
            *(f"--tls-cert-file={own}.crt", f"--tls-private-key-file={own}.key"),
            *(f"--kubelet-client-certificate={client}.crt", f"--kubelet-client-key={client}.key"),
            f"--kubelet-certificate-authority={authority}",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={accounts}.pub",
            f"--service-account-signing-key-file={accounts}.key",
        )
        self._wait("kube-apiserver", lambda: self._is_ok("/readyz"))

    def start_node(self, images: Iterable[Archive]) -> None:
        """Start everything else, with the images, and wait for the node."""
        self._provide([*images])
        self._controller("kube-controller-manager", "controllers", *self._controller_options())
        self._controller("kube-scheduler", "scheduler")
        self._run("coredns", f"-conf={self._dns()}")
        self._run(
            *("kubelet", f"--config={self._kubelet()}", "--hostname-override=node"),
            *(f"--kubeconfig={self._certificate('node.conf')}", f"--node-ip={NODE_IP}"),
            f"--root-dir={self.folder}/kubelet",
        )
        self._run("kube-proxy", f"--config={self._proxy()}")
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

    def log(self, program: str) -> str:
        """What a program of the cluster has printed."""
        return (self.folder / "logs" / program).read_text(errors="replace")

    def ctr(self, *arguments: str) -> str:
        """The output of containerd's client; raises OSError."""
        return run("ctr", "--namespace=k8s.io", *arguments, environ=self.environ)

    def restart(self, program: str) -> None:
        """Kill a program and start it again; raises AssertionError if it is not ready in time."""
        self._processes[program].kill()
        self._processes.pop(program).wait()
        self._run(*self._commands[program])
        self._wait("kube-apiserver", lambda: self._is_ok("/readyz"))
        if program == "kubelet":
            self._wait(program, lambda: self._is_ok("/api/v1/nodes/node/proxy/healthz"))
        if program == "containerd":
            self._wait(program, self._has_containers)

    @contextmanager
    def recording(self, *command: str) -> Iterator[Path]:
        """The file with what a command prints during the block."""
        file = self.folder / "logs" / f"recorded-{command[0]}"
        with file.open("wb") as log:
            process = subprocess.Popen([*command], env=self.environ, stdout=log, stderr=log)
        try:
            yield file
        finally:
            process.kill()
            process.wait()

    def stop(self) -> None:
        """End all programs of the cluster, the last one first."""
        for process in reversed(self._processes.values()):
            process.terminate()
        for program in reversed([*self._processes]):
            self._end(program)

    def _end(self, program: str) -> None:
        process = self._processes.pop(program)
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _run(self, *command: str) -> None:
        self._commands[command[0]] = command
        with (self.folder / "logs" / command[0]).open("ab") as log:
            self._processes[command[0]] = subprocess.Popen(
                [*command],
                env=self.environ,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _controller(self, program: str, name: str, *options: str) -> None:
        kubeconfig = self._certificate(f"{name}.conf")
        roles = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        self._run(
            program, *(f"--{role}={kubeconfig}" for role in roles), "--leader-elect=false", *options
        )

    def _controller_options(self) -> tuple[str, ...]:
        return (
            "--use-service-account-credentials",
            f"--root-ca-file={self._certificate('ca.crt')}",
            f"--service-account-private-key-file={self._certificate('accounts.key')}",
        )

    def _wait(self, program: str, is_so: Callable[[], bool]) -> None:
        def is_over() -> bool:
            ended = self._processes[program].poll()
            if ended is not None:
                raise AssertionError(f"{program} ended with {ended}: {self.log(program)[-1000:]}")
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

    def _provide(self, images: Sequence[Archive]) -> None:
        """Start containerd with the images, which the cache keeps as containerd unpacks them."""
        config = self._containerd()
        with locked_cache() as cache:
            kept = cache / f"{_KEPT}{_digest(self.programs, images)}"
            if not kept.exists():
                self._start_containerd(config)
                for image in images:
                    self._import(image)
                self._end("containerd")
                for former in cache.glob(f"{_KEPT}*"):
                    shutil.rmtree(former)
                unfinished = cache / f"unfinished-{kept.name}"  # the folders may be on two devices
                shutil.rmtree(unfinished, ignore_errors=True)
                shutil.move(self.folder / _IMAGES, unfinished)
                unfinished.rename(kept)
            _link_tree(kept, self.folder / _IMAGES)
        self._start_containerd(config)

    def _start_containerd(self, config: Path) -> None:
        self._run("containerd", f"--config={config}")
        self._wait("containerd", Path(_CONTAINERD).exists)

    def _import(self, image: Archive) -> None:
        self.ctr("images", "import", str(image.file))

    def _certificate(self, name: str) -> Path:
        return self.folder / "certificates" / name

    def _written(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.write_text(text)
        return file

    def _containerd(self) -> Path:
        return self._written(
            "containerd.toml",
            f"""
            version = 3
            root = "{self.folder / _IMAGES}"
            state = "/run/containerd"
            [grpc]
            address = "{_CONTAINERD}"
            [plugins."io.containerd.cri.v1.images".pinned_images]
            sandbox = "{PAUSE}"
            [plugins."io.containerd.cri.v1.runtime"]
            restrict_oom_score_adj = true
            [plugins."io.containerd.cri.v1.runtime".cni]
            bin_dirs = ["/usr/lib/cni"]
            conf_dir = "{self._network()}"
            """,
        )

    def _network(self) -> Path:
        folder = self.folder / "cni"
        folder.mkdir()
        bridge = {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipMasq": False,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "dataDir": "/run/cni",
                "ranges": [[{"subnet": PODS}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
        network = {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}
        (folder / "pods.conflist").write_text(json.dumps(network))
        return folder

    def _kubelet(self) -> Path:
        settings = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "oomScoreAdj": 0,
            "containerRuntimeEndpoint": f"unix://{_CONTAINERD}",
            "authentication": {
                "anonymous": {"enabled": False},
                "x509": {"clientCAFile": str(self._certificate("ca.crt"))},
            },
            "tlsCertFile": str(self._certificate("kubelet.crt")),
            "tlsPrivateKeyFile": str(self._certificate("kubelet.key")),
            "address": NODE_IP,
            "healthzBindAddress": "127.0.0.1",
            "clusterDNS": [DNS_IP],
            "clusterDomain": "cluster.local",
            "resolvConf": str(self._written("no-resolver", "")),
            # A fault in a minute must not make the next one wait for five.
            "crashLoopBackOff": {"maxContainerRestartPeriod": "3s"},
            "syncFrequency": "10s",  # of mounted secrets
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
            },
        }
        return self._written("kubelet.json", json.dumps(settings))

    def _proxy(self) -> Path:
        settings = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(self._certificate("proxy.conf"))},
            "mode": "iptables",
            "clusterCIDR": PODS,
            "hostnameOverride": "node",
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
            "oomScoreAdj": 0,
        }
        return self._written("proxy.json", json.dumps(settings))

    def _dns(self) -> Path:
        zones = "cluster.local:53 in-addr.arpa:53"
        return self._written(
            "Corefile",
            f"""{zones} {{
                bind {DNS_IP}
                errors
                kubernetes cluster.local in-addr.arpa {{
                    endpoint {API_SERVER}
                    kubeconfig {self._certificate("dns.conf")} cluster
                }}
            }}
            """,
        )


def _digest(programs: Sequence[Path], images: Sequence[Archive]) -> str:
    # Of the programs, only containerd decides what its folder has.
    unpackers = [each.name for each in programs if (each / "containerd").exists()]
    names = unpackers + [each.file.name for each in images]
    return hashlib.sha256("\0".join(names).encode()).hexdigest()[:16]


def _link_tree(kept: Path, target: Path) -> None:
    # Unpacked layers and archives are never written again; the databases are.
    is_near = kept.stat().st_dev == target.parent.stat().st_dev
    link = ("--link",) if is_near else ()
    run("cp", "--archive", *link, str(kept), str(target))
    for database in target.rglob("*.db") if is_near else ():
        content = database.read_bytes()
        database.unlink()
        database.write_bytes(content)
