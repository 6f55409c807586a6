#!/bin/bash
# Installs the sidecar on a node of a cluster; run it as root, also again after a change:
#   SOCKET_GROUP=spark ./install-node.sh sidelook.yaml dsn.txt
#
# SOCKET_GROUP  the group of the user that runs the executors; it may be created later
# PACKAGE       what pip installs: a version, or the path of a wheel (default: sidelook-service)
# PYTHON        Python 3.11 or newer (default: python3.11)
set -euo pipefail
umask 022

config=${1:?the configuration file}
dsn=${2:?the file with the address of the database}
group=${SOCKET_GROUP:?the group of the user that runs the executors}
package=${PACKAGE:-sidelook-service}
python=${PYTHON:-python3.11}
here=$(cd "$(dirname "$0")" && pwd)

getent passwd sidelook > /dev/null ||
  useradd --system --user-group --no-create-home --home-dir /nonexistent \
    --shell /usr/sbin/nologin sidelook

test -x /opt/sidelook/bin/python || "$python" -m venv /opt/sidelook
case $(readlink -f /opt/sidelook/bin/python) in
  /home/* | /root/*)
    echo "$python is in a home folder, which the sidecar may not read; set PYTHON to another" >&2
    rm -rf /opt/sidelook
    exit 1
    ;;
esac
/opt/sidelook/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "$package"

install -d -m 0755 /etc/sidelook
install -m 0644 "$config" /etc/sidelook/sidelook.yaml
install -m 0400 -o sidelook -g sidelook "$dsn" /etc/sidelook/dsn
# Ends with 78, and a list, if the configuration has faults.
runuser -u sidelook -- /opt/sidelook/bin/sidelook check-config /etc/sidelook/sidelook.yaml

sed "s/^Group=.*/Group=$group/" "$here/sidelook.service" > /etc/systemd/system/sidelook.service
chmod 0644 /etc/systemd/system/sidelook.service
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl enable sidelook.service
  # Does not wait: until the group exists, systemd tries again every 2 s.
  systemctl restart --no-block sidelook.service
else
  echo "systemd does not run here (an image?): enable sidelook.service where it does" >&2
fi
