"""Checks of the doctor: what each inspects, and the usual remedy. The reference lists them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckText:
    """A check: the faults that it finds, and the usual remedy of its findings."""

    inspects: str
    remedy: str


CHECK_TEXTS = {  # {check of a finding: texts}
    "configuration": CheckText(
        "All faults of the file. Warnings: caches that exceed half of `limits.memory`, `ttl`"
        " shorter than `timeout`, `negative_ttl` longer than `ttl`, mode `full` without a refresh,"
        " a password in the file, and a closed health listener.",
        "Correct the key that the finding names.",
    ),
    "secrets": CheckText(
        "Files with tokens, addresses and passwords: the sidecar can read them, other users cannot,"
        " the group cannot write them, a token is one line, and no mount uses `subPath`.",
        "Run `chmod`, set `defaultMode: 0440`, or mount the folder.",
    ),
    "tls": CheckText(
        "Validity of `listen.tls.cert_file`: a warning in its last 7 days, an error in its last"
        " day and after it.",
        "Renew the certificate and replace both files.",
    ),
    "socket": CheckText(
        "Folder, mode, owner and group of the Unix socket, and the process that serves it.",
        "Start the sidecar; use the same user or `fsGroup` in both containers.",
    ),
    "sidecar": CheckText(
        "Liveness, readiness, version and dimensions of the running sidecar; unavailable"
        " dimensions, lookups that fail, open breakers, stalled or incomplete feeds, failed"
        " loads, and caches that are not shared. Each fact of the health is a warning, or an error"
        " that keeps the sidecar from being ready.",
        "Follow the finding of the backend, find slow queries and locks, restart the sidecar, or"
        " mount its folder.",
    ),
    "shared memory": CheckText(
        "A tmpfs for the caches, in the folder of the socket or in `/dev/shm`, and its size.",
        "Raise the size, such as `sizeLimit` of the volume.",
    ),
    "limits": CheckText(
        "Memory of the container (1.5 times `limits.memory`), a CPU limit below one processor, and"
        " the number of threads.",
        "Change the limits of the container.",
    ),
    "database": CheckText(
        "Connection and version (13 or newer); a role that is superuser or has `BYPASSRLS`; a"
        " standby with `refresh.listen`.",
        "Use a role with SELECT only, and the address of the primary.",
    ),
    "connections": CheckText(
        "Connections of all executors, compared with `max_connections`, reserved connections,"
        " other clients, and the limits of role and database. Without `--executors`, the finding"
        " has the number of executors that fit.",
        "Lower `limits.database_connections`, use PgBouncer, or raise the named limit.",
    ),
    "pgbouncer": CheckText(
        "Whether the address is that of a PgBouncer, the key `source.pgbouncer`, and"
        " `statement_timeout` of the role behind it.",
        "Set `source.pgbouncer`, or run `ALTER ROLE … SET statement_timeout`.",
    ),
    "table": CheckText(
        "Existence, key types, readable columns, row-level security, the SQL of `query` and"
        " `where`, types of `default`, a change feed that the kind of the table allows, a"
        " materialized view without data, publications of which none is complete, and in mode"
        " `full` the size compared with the cache.",
        "Run the statement of the finding, such as the missing GRANT, or correct the name.",
    ),
    "index": CheckText(
        "Use of an index, by the plan of the sidecar's own query. Foreign servers do not show it.",
        "Run the `CREATE INDEX` statement of the finding.",
    ),
    "key": CheckText(
        "A unique index or primary key that ensures one row for each key, unless `match` or"
        " `versions` is set.",
        "Create a unique index, or set `match` or `versions`.",
    ),
    "publication": CheckText(
        "Publications of the table, if Debezium follows it: one without all operations, rows and"
        " key columns is a warning next to a complete one. If none is complete, the finding"
        " `table` is an error.",
        "Run the `ALTER PUBLICATION` of the finding, or name the connector's publication in"
        " `refresh.changelog.publication`.",
    ),
    "privileges": CheckText(
        "Rights that a sidecar does not need: owner, INSERT, UPDATE, DELETE, TRUNCATE.",
        "Run the REVOKE statement of the finding.",
    ),
    "listen": CheckText(
        "The four triggers and their function, also of each partition, the arrival of a test"
        " notification, and a subscription, which fires no triggers of statements.",
        "Run the output of `sidelook gen-triggers`, or use `refresh.changelog`.",
    ),
    "kafka": CheckText(
        "Brokers, topic and heartbeat topic. A retention below ten minutes is a warning, below one"
        " minute an error.",
        "Correct the topic, its ACL, or `retention.ms`.",
    ),
    "clock": CheckText(
        "Difference between the clocks of database, sidecar and this machine: a warning above 1 s,"
        " an error above 10 s. Times to live do not depend on it.",
        "Synchronize the clocks by NTP.",
    ),
    "kubernetes": CheckText(
        "Version 1.29 or newer, from the API server or from `--kubernetes`.",
        "Update the cluster.",
    ),
    "pod template": CheckText(
        "A native sidecar; the volume of the socket in both containers; its medium and size; users,"
        " groups, probes, memory, CPU and `preStop`.",
        "Copy the part from the shipped template.",
    ),
    "spark": CheckText(
        "Pod template, `checkAllContainers` and grace period of the properties file; from Spark 4.2"
        " on, a NetworkPolicy that admits Prometheus.",
        "Set the named property, or give `--network-policy FILE`.",
    ),
}
