#!/bin/bash
# Starts driver and executors as Spark's official image does: the first word is the role, and Spark
# passes Java options in the variables SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, …
set -eu
if [ "$1" = driver ]; then
  shift
  exec "$SPARK_HOME/bin/spark-submit" --deploy-mode client \
    --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "$@"
elif [ "$1" = executor ]; then
  options=()
  for ((number = 0; ; number++)); do
    name=SPARK_JAVA_OPT_$number
    [ -n "${!name-}" ] || break
    options+=("${!name}")
  done
  exec "$JAVA_HOME/bin/java" "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "$SPARK_HOME/jars/*:${SPARK_CLASSPATH-}" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
fi
exec "$@"
