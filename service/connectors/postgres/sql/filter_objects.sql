UNION ALL SELECT 'pg_catalog.pg_proc'::regclass, p.oid FROM pg_catalog.pg_proc p
WHERE p.oid >= 16384 AND p.proname = ANY ($2::text[])
UNION ALL SELECT 'pg_catalog.pg_type'::regclass, t.oid FROM pg_catalog.pg_type t
WHERE t.oid >= 16384 AND t.typname = ANY ($2::text[])
UNION ALL SELECT 'pg_catalog.pg_operator'::regclass, r.oid FROM pg_catalog.pg_operator r
WHERE r.oid >= 16384 AND pg_catalog.strpos($3, r.oprname) > 0 AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_operator own WHERE own.oid < 16384 AND own.oprname = r.oprname)
