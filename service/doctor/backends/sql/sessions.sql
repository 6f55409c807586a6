-- Any role sees the sessions of others, though perhaps not their backend_type.
SELECT count(*) AS used,
       count(*) FILTER (WHERE application_name LIKE 'sidelook%') AS used_by_sidecars,
       count(*) FILTER (WHERE usename = current_user) AS used_by_role,
       count(*) FILTER (WHERE datname = pg_catalog.current_database()) AS used_by_database
FROM pg_catalog.pg_stat_activity
WHERE datid IS NOT NULL AND pid <> pg_catalog.pg_backend_pid()
AND coalesce(backend_type, 'client backend') = 'client backend'
