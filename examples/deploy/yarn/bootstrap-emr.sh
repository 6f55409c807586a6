#!/bin/bash
# EMR bootstrap action: installs the sidecar, and a Python with the client, on each node.
#   aws emr create-cluster … --bootstrap-actions \
#     'Path=s3://BUCKET/sidelook/bootstrap-emr.sh,Args=[s3://BUCKET/sidelook,SECRET_ID]'
# The folder s3://BUCKET/sidelook has install-node.sh, sidelook.service and sidelook.yaml. The secret
# of AWS Secrets Manager is the address of the database: postgresql://user:password@host/name.
set -euo pipefail

from=${1:?the folder in S3}
secret=${2:?the id of the secret}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

aws s3 cp --recursive --only-show-errors "$from" "$folder"
umask 077
aws secretsmanager get-secret-value --secret-id "$secret" --query SecretString --output text \
  > "$folder/dsn"
umask 022

sudo dnf install --assumeyes --quiet python3.11
# Containers run as yarn. EMR creates this group after the bootstrap actions; systemd waits for it.
sudo SOCKET_GROUP=yarn bash "$folder/install-node.sh" "$folder/sidelook.yaml" "$folder/dsn"

# The cluster brings PySpark itself, so the extra `spark` is not needed.
sudo python3.11 -m venv /opt/sidelook-client
sudo /opt/sidelook-client/bin/python -m pip install --quiet --disable-pip-version-check \
  sidelook pandas
