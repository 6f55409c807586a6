"""Faults of the cluster under a running stream; each waits until its effect is over."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from tools.cluster.cluster import EXECUTORS, IN_NAMESPACE, NAMESPACE, Cluster, KubectlFailed
from tools.cluster.database import Database
from tools.cluster.machine import run
from tools.processes.until import until

_RECOVERY_S = 90.0
_FILLED = "/run/sidelook/filled"
# Eight processes with a part each: the kernel kills the largest one.
_HOG = f"""
import os, time
with open("{_FILLED}", "wb") as file:
    for _ in range(400):
        file.write(b"x" * 2**20)
for _ in range(3):
    os.fork()
kept = [b"x" * 2**20 for _ in range(60)]
time.sleep(60)
"""
_REMOVE = ("python", "-c", f"import os; os.remove('{_FILLED}')")
_PAUSE_S = 5.0  # of a stopped process, and of a database that is down

Fault = tuple[str, Callable[[], None]]
Pod = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Faults:
    """What strikes the executors, their sidecars, the node and the database."""

    cluster: Cluster
    database: Database

    def all(self) -> Iterator[Fault]:
        """Every fault with its name, in an order in which each sidecar lives for a while."""
        for number in range(3):
            yield "the sidecar is killed", partial(self.kill_sidecar, "KILL", number)
            yield "all sessions of the database end", self.database.end_sessions
            yield "the sidecar stands still for 5 s", partial(self.pause_sidecar, number)
            yield "an executor is deleted", partial(self.remove_executor, self.delete)
            yield "the sidecar gets SIGTERM", partial(self.kill_sidecar, "TERM", number)
            yield "the table is locked for 5 s", self.lock_table
            yield "an executor is evicted", partial(self.remove_executor, self.evict)
            yield "the database is down for 5 s", self.restart_database
            yield "the sidecar has no memory left", partial(self.exhaust_sidecar, number)
        yield "the kubelet restarts", partial(self.cluster.restart, "kubelet")
        yield "the secret has a new role and password", self.rotate_role
        yield "containerd restarts", partial(self.cluster.restart, "containerd")
        yield "the API server restarts", partial(self.cluster.restart, "kube-apiserver")
        yield "the ConfigMap changes, and executors are replaced", self.change_configuration
        yield "the kubelet restarts once more", partial(self.cluster.restart, "kubelet")
        yield (
            "a sidecar hangs until its liveness probe ends it",
            partial(self.kill_sidecar, "STOP", 0),
        )

    def executors(self) -> list[Pod]:
        """Executor pods that are ready and stay."""
        return [each for each in self.cluster.pods(EXECUTORS) if _is_ready(each)]

    def kill_sidecar(self, sent: str, number: int) -> None:
        """Send a signal to the sidecar of one executor, which restarts alone.

        A stopped one (STOP) is ended by its liveness probe.
        """
        self._restart(self._executor(number), sent)

    def exhaust_sidecar(self, number: int) -> None:
        """The kernel kills the sidecar because its container has no memory left."""
        pod = self._executor(number)
        former = sidecar_status(pod)
        for process in self._processes(former):
            run("sh", "-c", f"echo 1000 > /proc/{process}/oom_score_adj")
        name = pod["metadata"]["name"]
        with suppress(KubectlFailed):  # it ends with its container
            self._exec(name, "python", "-c", _HOG)
        self._await_restart(pod, former)
        ended = sidecar_status(self._pod(pod))["lastState"]["terminated"]["reason"]
        assert ended == "OOMKilled", ended
        self._exec(name, *_REMOVE)

    def pause_sidecar(self, number: int) -> None:
        """Stop the sidecar's process for less than its liveness allows."""
        container = sidecar_status(self._executor(number))
        self._signal(container, "STOP")
        time.sleep(_PAUSE_S)
        self._signal(container, "CONT")

    def remove_executor(self, remove: Callable[[str], None], name: str = "") -> None:
        """Remove an executor, and wait for its end; another one replaces it."""
        name = name or self._executor(0)["metadata"]["name"]
        remove(name)
        self._await_end(name)

    def delete(self, name: str) -> None:
        """Delete a pod."""
        self.cluster.kubectl("delete", "pod", name, *IN_NAMESPACE, "--wait=false")

    def evict(self, name: str) -> None:
        """Evict a pod by the API, as a drain of its node does."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": NAMESPACE},
        }
        file = self.cluster.folder / "eviction.json"
        file.write_text(json.dumps(eviction))
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction"
        self.cluster.kubectl("create", "--raw", path, f"--filename={file}")

    def restart_database(self) -> None:
        """Stop the database, and start it again."""
        self.database.stop()
        time.sleep(_PAUSE_S)
        self.database.start()

    def lock_table(self) -> None:
        """Make all queries of the table wait."""
        self.database.execute(
            f"BEGIN; LOCK TABLE customers IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep({_PAUSE_S})"
        )

    def rotate_role(self) -> None:
        """Another role and password: create it, change the secret, and disable the former."""
        former = self.database.role
        self.database.role, self.database.password = "sidelook_next", "0123456789abcdef"
        self.database.create_role()
        self._change_address(self.database.dsn)
        self.database.execute(f"ALTER ROLE {former} NOLOGIN")
        self.database.end_sessions()

    def change_configuration(self) -> None:
        """Another time to live, which new executors have: replace each one."""
        self.configure("negative_ttl: 5s", "negative_ttl: 4s")
        for name in self._names():
            self.delete(name)
            self._await_end(name)
        (found, *_) = self._until_executors()
        shown = self._read(found["metadata"]["name"], "/etc/sidelook/sidelook.yaml")
        assert "negative_ttl: 4s" in shown, shown

    def configure(self, former: str, text: str) -> None:
        """Change the sidecar's configuration, which new executors have."""
        config = self.cluster.get("configmap", "sidelook", *IN_NAMESPACE)["data"]["sidelook.yaml"]
        assert former in config, config
        patch = json.dumps({"data": {"sidelook.yaml": config.replace(former, text)}})
        self.cluster.kubectl("patch", "configmap", "sidelook", *IN_NAMESPACE, f"--patch={patch}")

    def _change_address(self, dsn: str) -> None:
        patch = json.dumps({"stringData": {"dsn": dsn}})
        self.cluster.kubectl("patch", "secret", "sidelook", *IN_NAMESPACE, f"--patch={patch}")
        for pod in self.executors():
            name = pod["metadata"]["name"]
            until(partial(self._has_mounted, name, dsn), within_s=_RECOVERY_S)

    def _has_mounted(self, name: str, dsn: str) -> bool:
        return self._read(name, "/etc/sidelook-secret/dsn") == dsn

    def _await_end(self, name: str) -> None:
        until(lambda: name not in self._names(), within_s=_RECOVERY_S)

    def _read(self, name: str, file: str) -> str:
        # The image has no cat.
        return self._exec(name, "python", "-c", f"print(open('{file}').read(), end='')")

    def _exec(self, name: str, *command: str) -> str:
        container = ("exec", *IN_NAMESPACE, name, "--container=sidelook", "--")
        return self.cluster.kubectl(*container, *command)

    def _names(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.cluster.pods(EXECUTORS)]

    def _executor(self, number: int) -> Pod:
        found = self._until_executors()
        return found[number % len(found)]

    def _until_executors(self) -> list[Pod]:
        until(self.executors, within_s=_RECOVERY_S)
        return self.executors()

    def _pod(self, pod: Pod) -> Pod:
        found: Pod = self.cluster.get("pod", pod["metadata"]["name"], *IN_NAMESPACE)
        return found

    def _restart(self, pod: Pod, sent: str) -> None:
        former = sidecar_status(self._pod(pod))
        self._signal(former, sent)
        self._await_restart(pod, former)

    def _await_restart(self, pod: Pod, former: Pod) -> None:
        """Until the sidecar runs again; the executor has not restarted."""

        def is_back() -> bool:
            now = sidecar_status(self._pod(pod))
            return bool(now["restartCount"] > former["restartCount"] and now["ready"])

        until(is_back, within_s=_RECOVERY_S)
        assert self._pod(pod)["status"]["containerStatuses"][0]["restartCount"] == 0

    def _signal(self, container: Pod, sent: str) -> None:
        for process in self._processes(container)[:1]:
            run("kill", f"-{sent}", process)

    def _processes(self, container: Pod) -> list[str]:
        """The processes of a container, its first one first."""
        name = container["containerID"].removeprefix("containerd://")
        listed = self.cluster.ctr("task", "ps", name).splitlines()[1:]
        return [line.split()[0] for line in listed]


def sidecar_status(pod: Pod) -> Pod:
    """The status of the sidecar's container."""
    (status,) = pod["status"]["initContainerStatuses"]
    found: Pod = status
    return found


def _is_ready(pod: Pod) -> bool:
    conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", [])}
    return conditions.get("Ready") == "True"
