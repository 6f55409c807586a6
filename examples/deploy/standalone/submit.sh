#!/bin/sh
# Submits enrich.py to a standalone cluster whose workers were prepared by install-node.sh:
#   MASTER=spark://master.example:7077 ./submit.sh hdfs:///events hdfs:///enriched
# CLIENT_PYTHON is the Python of driver and executors that has the package sidelook[spark].
set -eu
here=$(dirname "$0")
python=${CLIENT_PYTHON:-/opt/sidelook-client/bin/python}
export PYSPARK_PYTHON="$python"
exec spark-submit \
  --master "${MASTER:?the master, spark://host:7077}" \
  --conf "spark.pyspark.python=$python" \
  ${PROPERTIES:+--properties-file "$PROPERTIES"} \
  "$here/../enrich.py" "$@"
