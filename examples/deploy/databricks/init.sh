#!/bin/bash
# Cluster-scoped init script for dedicated compute, Databricks Runtime 15.4 or newer: installs and
# starts a sidecar on the driver and on each worker. Environment variables of the cluster:
#   LOOKUP_DSN={{secrets/sidelook/dsn}}       the address of the database
#   LOOKUP_FOLDER=/Volumes/main/jobs/sidelook  the folder with sidelook.yaml
set -euo pipefail

folder=${LOOKUP_FOLDER:?the folder with sidelook.yaml}
: "${LOOKUP_DSN:?the address of the database}"
package=${PACKAGE:-sidelook-service}

python3 -m venv /opt/sidelook
/opt/sidelook/bin/python -m pip install --quiet --disable-pip-version-check "$package"
# For the notebooks and their tasks; the runtime brings PySpark and pandas.
/databricks/python/bin/pip install --quiet --disable-pip-version-check sidelook

getent passwd sidelook > /dev/null ||
  useradd --system --user-group --no-create-home --home-dir /nonexistent \
    --shell /usr/sbin/nologin sidelook
install -d -m 0755 /etc/sidelook
install -m 0644 "$folder/sidelook.yaml" /etc/sidelook/sidelook.yaml
install -m 0400 -o sidelook -g sidelook <(printf '%s\n' "$LOOKUP_DSN") /etc/sidelook/dsn
unset LOOKUP_DSN

cd /
# Database libraries read files of the home folder; that of root is closed to the sidecar.
export HOME=/nonexistent
runuser -u sidelook -- /opt/sidelook/bin/sidelook check-config /etc/sidelook/sidelook.yaml
install -d -m 0755 -o sidelook -g sidelook /var/log/sidelook
# A supervisor in a session of its own, which outlasts this script. The sidecar has no other file
# descriptors, or the init script would not end.
supervisor='until /opt/sidelook/bin/sidelook serve --config /etc/sidelook/sidelook.yaml
  do sleep 2; done'
setsid runuser -u sidelook -- bash -c "$supervisor" \
  < /dev/null >> /var/log/sidelook/sidecar.log 2>&1 &
