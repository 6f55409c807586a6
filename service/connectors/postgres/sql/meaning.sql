-- A CTE `meaning` of one row, for the relation $1 and more objects; any role may read it. It needs
-- RECURSIVE.
--
-- Objects of the system have fixed ids below 16384, and change with the server's version only.
-- Columns are listed where a row of the catalog has more: GRANT and ANALYZE change no meaning.
-- All columns of a table below a view count: the view may return whole rows, as to_jsonb(t) does.
-- `LATERAL` leads to index scans by the ids found, however many objects the database has.
object AS (
    SELECT 'pg_catalog.pg_class'::regclass::oid AS class, $1::oid AS id
    /* more objects */
    UNION
    SELECT n.class, n.id FROM object o CROSS JOIN LATERAL (
        SELECT d.refclassid AS class, d.refobjid AS id FROM (
            SELECT o.class, o.id
            UNION ALL
            SELECT 'pg_catalog.pg_rewrite'::regclass, w.oid FROM pg_catalog.pg_rewrite w
            WHERE o.class = 'pg_catalog.pg_class'::regclass AND w.ev_class = o.id
                  AND w.ev_type = '1'
        ) AS c JOIN pg_catalog.pg_depend d ON d.classid = c.class AND d.objid = c.id
        WHERE d.refclassid IN (
            'pg_catalog.pg_class'::regclass, 'pg_catalog.pg_type'::regclass,
            'pg_catalog.pg_proc'::regclass, 'pg_catalog.pg_operator'::regclass,
            'pg_catalog.pg_ts_config'::regclass, 'pg_catalog.pg_ts_dict'::regclass)
        UNION ALL
        -- depends on the type, instead of the reverse
        SELECT 'pg_catalog.pg_class'::regclass, t.typrelid FROM pg_catalog.pg_type t
        WHERE o.class = 'pg_catalog.pg_type'::regclass AND t.oid = o.id AND t.typtype = 'c'
        UNION ALL
        -- foreign partitions
        SELECT 'pg_catalog.pg_class'::regclass, h.inhrelid FROM pg_catalog.pg_inherits h
        JOIN pg_catalog.pg_class c ON c.oid = h.inhrelid AND c.relkind IN ('f', 'p')
        WHERE o.class = 'pg_catalog.pg_class'::regclass AND h.inhparent = o.id
        UNION ALL
        -- to_json, to_jsonb and texts use it
        SELECT 'pg_catalog.pg_proc'::regclass, k.castfunc FROM pg_catalog.pg_cast k
        WHERE o.class = 'pg_catalog.pg_type'::regclass AND k.castsource = o.id
              AND k.casttarget IN ('pg_catalog.json'::regtype, 'pg_catalog.text'::regtype)
    ) AS n
    WHERE n.id >= 16384
), meaning AS MATERIALIZED (
    SELECT pg_catalog.md5(pg_catalog.concat_ws(
        ' ', pg_catalog.string_agg(m.text, ',' ORDER BY o.class, o.id),
        -- of later sessions; fixed ones, and those of plans, change no row
        (SELECT pg_catalog.string_agg(e.setting, ',' ORDER BY v.setrole, v.setdatabase, e.setting)
         FROM pg_catalog.pg_db_role_setting v
         CROSS JOIN pg_catalog.unnest(v.setconfig) AS e (setting)
         LEFT JOIN pg_catalog.pg_roles r ON r.oid = v.setrole
         LEFT JOIN pg_catalog.pg_database d ON d.oid = v.setdatabase
         WHERE (v.setrole = 0 OR r.rolname = session_user)
         AND (v.setdatabase = 0 OR d.datname = pg_catalog.current_database())
         AND (pg_catalog.split_part(e.setting, '=', 1) LIKE '%.%'  -- of SQL of the user
              OR pg_catalog.split_part(e.setting, '=', 1) IN (
                  'role', 'lc_monetary', 'lc_numeric', 'lc_time', 'search_path',
                  'default_text_search_config', 'timezone_abbreviations'))
        ))) AS digest
    FROM object o CROSS JOIN LATERAL (
        SELECT pg_catalog.concat_ws(
            ' ', c.oid, c.relrowsecurity, c.relforcerowsecurity,
            pg_catalog.row_security_active(c.oid),
            -- policies do not concern the owner of a table; a view reads with the rights of its own
            CASE WHEN c.relrowsecurity OR c.relkind = 'v' THEN
                (SELECT pg_catalog.concat_ws(' ', r.oid, r.rolsuper OR r.rolbypassrls)
                 FROM pg_catalog.pg_roles r WHERE r.oid = c.relowner) END,
            CASE WHEN c.relkind = 'f' THEN
                (SELECT pg_catalog.concat_ws(
                     ' ', f.ftoptions, s.oid, s.srvoptions, w.fdwoptions, w.fdwhandler,
                     -- the password is left out: its rotation changes no row
                     ARRAY(SELECT pg_catalog.concat_ws(
                               ' ', u.umid, (SELECT x FROM pg_catalog.unnest(u.umoptions) AS x
                                             WHERE x LIKE 'user=%'))
                           FROM pg_catalog.pg_user_mappings u
                           WHERE u.srvid = s.oid AND (u.umuser = 0 OR u.usename = current_user
                                 OR u.umuser IN (SELECT v.relowner FROM pg_catalog.pg_class v
                                                 JOIN object ON v.oid = object.id))
                           ORDER BY u.umid)::text)
                 FROM pg_catalog.pg_foreign_table f
                 JOIN pg_catalog.pg_foreign_server s ON s.oid = f.ftserver
                 JOIN pg_catalog.pg_foreign_data_wrapper w ON w.oid = s.srvfdw
                 WHERE f.ftrelid = c.oid) END,
            CASE WHEN c.relkind = 'v' THEN c.reloptions END,
            CASE WHEN c.oid = $1::oid THEN pg_catalog.concat_ws(
                ' ', c.relreplident, c.relpersistence,
                ARRAY(SELECT i.indexrelid FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid
                      AND (i.indisprimary OR i.indisreplident) ORDER BY 1)::text,
                ARRAY(SELECT h.inhrelid FROM pg_catalog.pg_inherits h
                      WHERE c.relkind = 'r' AND h.inhparent = c.oid ORDER BY 1)::text,
                ARRAY(SELECT h.inhparent FROM pg_catalog.pg_inherits h
                      WHERE h.inhrelid = c.oid ORDER BY 1)::text) END,
            ARRAY(SELECT p::text FROM pg_catalog.pg_policy p
                  WHERE c.relrowsecurity AND p.polrelid = c.oid ORDER BY 1)::text,
            ARRAY(SELECT w.xmin FROM pg_catalog.pg_rewrite w
                  WHERE w.ev_class = c.oid AND w.ev_type = '1')::text,
            ARRAY(SELECT pg_catalog.concat_ws(
                      ' ', a.attnum, a.attname, a.atttypid, a.atttypmod, a.attcollation,
                      a.attnotnull, a.atthasdef, a.attgenerated, a.attfdwoptions,
                      CASE WHEN a.attgenerated = 'v' THEN f.oid END)
                  FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_attrdef f
                  ON f.adrelid = a.attrelid AND f.adnum = a.attnum
                  WHERE a.attrelid = c.oid AND a.attnum > 0 ORDER BY a.attnum)::text) AS text
        FROM pg_catalog.pg_class c
        WHERE o.class = 'pg_catalog.pg_class'::regclass AND c.oid = o.id
        UNION ALL
        SELECT pg_catalog.concat_ws(
            ' ', t.oid, t.typtype, t.typbasetype, t.typtypmod, t.typcollation,
            ARRAY(SELECT e.enumlabel FROM pg_catalog.pg_enum e
                  WHERE t.typtype = 'e' AND e.enumtypid = t.oid ORDER BY e.enumsortorder)::text)
        FROM pg_catalog.pg_type t
        WHERE o.class = 'pg_catalog.pg_type'::regclass AND t.oid = o.id
        UNION ALL
        SELECT pg_catalog.concat_ws(' ', pg_catalog.to_jsonb(p) - 'proacl', g)
        FROM pg_catalog.pg_proc p LEFT JOIN pg_catalog.pg_aggregate g ON g.aggfnoid = p.oid
        WHERE o.class = 'pg_catalog.pg_proc'::regclass AND p.oid = o.id
        UNION ALL
        SELECT pg_catalog.concat_ws(' ', o.id, r.oprcode) FROM pg_catalog.pg_operator r
        WHERE o.class = 'pg_catalog.pg_operator'::regclass AND r.oid = o.id
        UNION ALL
        SELECT ARRAY(SELECT m::text FROM pg_catalog.pg_ts_config_map m
                     WHERE m.mapcfg = o.id ORDER BY 1)::text
        WHERE o.class = 'pg_catalog.pg_ts_config'::regclass
        UNION ALL
        SELECT pg_catalog.concat_ws(' ', o.id, y.dicttemplate, y.dictinitoption)
        FROM pg_catalog.pg_ts_dict y
        WHERE o.class = 'pg_catalog.pg_ts_dict'::regclass AND y.oid = o.id
    ) AS m
)
