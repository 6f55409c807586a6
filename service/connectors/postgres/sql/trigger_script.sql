-- Publishes the changed keys of the table
--   $table
-- on the channel
--   $channel
-- by NOTIFY at commit; it never publishes other columns. The script may run again at any time. It
-- needs PostgreSQL 13 or newer, the owner of the table, and CREATE on its schema. To remove it:
--   DROP FUNCTION $function() CASCADE;
-- Limits:
-- * Commits with notifications are serialized, and cannot be prepared (PREPARE TRANSACTION).
${limits}-- * Sidecars notice within seconds when triggers are dropped, disabled or recreated,
--   and stop using rows that were cached before.
BEGIN;
SET LOCAL lock_timeout = '5s';  -- a waiting lock would block all later users of the table
SET LOCAL client_min_messages = warning;  -- no notice for a missing trigger

DO 'BEGIN PERFORM pg_catalog.pg_current_xact_id(); END';  -- old servers fail here, not at writes
DO $$check$$ BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_class WHERE oid = $literal::regclass AND $is_other) THEN
        RAISE 'the table $mismatch';
    END IF;
END $$check$$;

CREATE OR REPLACE FUNCTION $function() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET bytea_output = 'hex'
SET timezone = 'UTC'
AS $body;

$triggers
COMMIT;
