#!/bin/sh
# Submits a job whose executors have Sidelook as a sidecar; run it in the root of a checkout:
#   KUBERNETES_API=https://… NAMESPACE=spark IMAGE=registry.example/jobs/enrich:1.0.0 \
#     k8s/examples/spark-submit.sh local:///opt/spark/work-dir/enrich.py INPUT OUTPUT
# POD_TEMPLATE is another template, such as k8s/overlays/production/executor-pod-template.yaml.
set -eu
cd "$(dirname "$0")/../.."
exec spark-submit \
  --master "k8s://${KUBERNETES_API:?the address of the Kubernetes API, https://…}" \
  --deploy-mode cluster \
  --name enrich \
  --properties-file k8s/spark.conf \
  --conf "spark.kubernetes.namespace=${NAMESPACE:?the namespace of the job}" \
  --conf "spark.kubernetes.container.image=${IMAGE:?the image of driver and executors}" \
  --conf "spark.kubernetes.authenticate.driver.serviceAccountName=${SERVICE_ACCOUNT:-spark}" \
  --conf "spark.kubernetes.executor.podTemplateFile=${POD_TEMPLATE:-k8s/base/executor-pod/executor-pod-template.yaml}" \
  "$@"
