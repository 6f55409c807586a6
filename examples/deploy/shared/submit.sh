#!/bin/sh
# Submits enrich.py with a sidecar service over TLS; `--files` brings token and CA to the executors:
#   MASTER=yarn SIDECAR=https://sidelook.example:8815 TOKEN_FILE=./token CA_FILE=./ca.crt \
#     ./submit.sh hdfs:///events hdfs:///enriched
# CLIENT_PYTHON is the Python of driver and executors that has the package sidelook.
set -eu
here=$(dirname "$0")
python=${CLIENT_PYTHON:-python3}
export PYSPARK_PYTHON="$python"
# In the executors' working directories the files have their names alone.
exec spark-submit \
  --master "${MASTER:?the master: yarn, spark://host:7077}" \
  --conf "spark.pyspark.python=$python" \
  --files "${TOKEN_FILE:?the file with the token},${CA_FILE:?the CA of the sidecar, PEM}" \
  "$here/../enrich.py" "$@" \
  --sidecar "${SIDECAR:?https://host:port}" \
  --token-file "$(basename "$TOKEN_FILE")" \
  --ca-file "$(basename "$CA_FILE")"
