"""Executor pod and NetworkPolicy as Spark's own code builds them, in a JVM without a cluster."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.java_gateway import launch_gateway

from tools.k8s.manifests import Manifest

# Objects of the JVM have no types here.
JavaObject = Any

# Settings of spark-submit or the driver.
DRIVER_SETTINGS = {
    "spark.kubernetes.container.image": "spark:4.3.0",
    "spark.kubernetes.executor.podNamePrefix": "flights",
    "spark.driver.host": "driver",
    "spark.driver.port": "7078",
}


def executor_pod(settings: Mapping[str, str]) -> Manifest:
    """The pod of executor 1, as Spark sends it to the Kubernetes API."""
    with _java() as java:
        spark = java.org.apache.spark
        conf = spark.SparkConf(False)  # noqa: FBT003  # Scala takes it by position
        for key, value in {**DRIVER_SETTINGS, **settings}.items():
            conf.set(key, value)
        built = spark.scheduler.cluster.k8s.KubernetesExecutorBuilder().buildFromFeatures(
            spark.deploy.k8s.KubernetesExecutorConf(conf, "app-1", "1", _none(java), 0),
            _security(java, conf),
            java.io.fabric8.kubernetes.client.KubernetesClientBuilder().build(),
            _module(spark.resource, "ResourceProfile").getOrCreateDefaultProfile(conf),
        )
        return _joined(java, built.pod())


def application_policy() -> Manifest:
    """The NetworkPolicy that spark-submit creates for an application in cluster mode."""
    with _java() as java:
        kubernetes = java.org.apache.spark.deploy.k8s
        conf = kubernetes.KubernetesDriverConf(
            java.org.apache.spark.SparkConf(False),  # noqa: FBT003  # Scala takes it by position
            "app-1",
            kubernetes.submit.JavaMainAppResource(_none(java)),
            "Main",
            java.java.util.regex.Pattern.compile(" ").split(""),  # an array of text
            _none(java),
            java.org.apache.spark.util.SystemClock(),
        )
        step = kubernetes.features.NetworkPolicyFeatureStep(conf)
        (policy,) = _listed(step.getAdditionalKubernetesResources())
        return _as_manifest(java, policy)


@contextmanager
def _java() -> Iterator[JavaObject]:
    gateway: JavaObject = launch_gateway()  # type: ignore[no-untyped-call]  # as of PySpark 4.3
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends with its standard input
        gateway.proc.wait(timeout=30)


def _joined(java: JavaObject, pod: JavaObject) -> Manifest:
    # Spark keeps its container next to the pod, and joins the two when it sends them.
    joined, container = _as_manifest(java, pod.pod()), _as_manifest(java, pod.container())
    joined["spec"]["containers"] = [container, *joined["spec"].get("containers", [])]
    return joined


def _as_manifest(java: JavaObject, model: JavaObject) -> Manifest:
    serialization = java.io.fabric8.kubernetes.client.utils.Serialization
    manifest: Manifest = json.loads(serialization.asJson(model))
    return manifest


def _listed(sequence: JavaObject) -> list[JavaObject]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _security(java: JavaObject, conf: JavaObject) -> JavaObject:
    secret_file = _module(java.org.apache.spark.internal.config, "package")
    return java.org.apache.spark.SecurityManager(
        conf, _none(java), secret_file.AUTH_SECRET_FILE_EXECUTOR()
    )


def _none(java: JavaObject) -> JavaObject:
    return _module(java.scala, "None")


def _module(package: JavaObject, name: str) -> JavaObject:
    # A Scala object: the only instance of a class whose name ends with a dollar sign.
    return getattr(getattr(package, f"{name}$"), "MODULE$")
