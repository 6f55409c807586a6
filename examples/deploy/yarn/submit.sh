#!/bin/sh
# Submits enrich.py to YARN; each NodeManager's machine was prepared by install-node.sh:
#   ./submit.sh hdfs:///events hdfs:///enriched
# CLIENT_PYTHON is the Python of the nodes that has the package sidelook.
set -eu
here=$(dirname "$0")
python=${CLIENT_PYTHON:-/opt/sidelook-client/bin/python}
exec spark-submit \
  --master yarn \
  --deploy-mode cluster \
  --conf "spark.pyspark.python=$python" \
  --conf "spark.yarn.appMasterEnv.PYSPARK_PYTHON=$python" \
  "$here/../enrich.py" "$@"
