-- A key is known to be unique or not in a table without heirs, and in a partitioned one whose
-- unique indexes can have the key's columns only.
SELECT ARRAY(SELECT p FROM pg_catalog.unnest(ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) p
             WHERE pg_catalog.has_table_privilege(c.oid, p)) AS rights,
       ARRAY(SELECT DISTINCT coalesce(pg_catalog.quote_ident(h.rolname), 'PUBLIC')
             FROM pg_catalog.aclexplode(c.relacl) a
             LEFT JOIN pg_catalog.pg_roles h ON h.oid = a.grantee
             WHERE a.privilege_type IN ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE')
             AND (a.grantee = 0 OR pg_catalog.pg_has_role(a.grantee, 'USAGE'))) AS holders,
       pg_catalog.pg_has_role(c.relowner, 'USAGE') AS is_owner,
       CASE WHEN c.relkind IN ('r', 'm') AND NOT c.relhassubclass OR c.relkind = 'p'
                 AND (SELECT p.partattrs::int2[] FROM pg_catalog.pg_partitioned_table p
                      WHERE p.partrelid = c.oid) <@ k.numbers
            THEN EXISTS (SELECT FROM pg_catalog.pg_index i
                         WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid
                         AND i.indpred IS NULL
                         AND (i.indkey::int2[])[0:i.indnkeyatts - 1] <@ k.numbers)
       END AS has_unique_key
FROM pg_catalog.pg_class c
CROSS JOIN LATERAL (SELECT ARRAY(SELECT a.attnum FROM pg_catalog.pg_attribute a
                                 WHERE a.attrelid = c.oid AND a.attname = ANY ($2::text[]))
                           AS numbers) AS k
WHERE c.oid = $1::oid
