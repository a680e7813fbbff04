-- +goose Up

-- The ledger's clock: leases and due times are compared with it alone. It is STABLE, not VOLATILE, so that an
-- index can be used for a comparison with it, and plpgsql, so that it is never inlined into the calling
-- statement. A timestamptz has a resolution of one microsecond, like times in every store.
-- +goose StatementBegin
CREATE FUNCTION ledger_now() RETURNS timestamptz
    LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
BEGIN
    RETURN clock_timestamp();
END
$$;
-- +goose StatementEnd

-- The value to write for a ledger.Moment: now plus after_micros where that is given, else at. NULL for both means
-- never.
-- +goose StatementBegin
CREATE FUNCTION ledger_at(at timestamptz, after_micros bigint) RETURNS timestamptz
    LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
BEGIN
    IF after_micros IS NULL THEN
        RETURN at;
    END IF;
    RETURN ledger_now() + after_micros * interval '1 microsecond';
END
$$;
-- +goose StatementEnd

-- The epoch: the system identifier of the database and its timeline. It changes when a standby is promoted or a
-- backup is restored, and commits may be lost then. A role that may not read the system identifier gets the
-- timeline alone.
-- +goose StatementBegin
CREATE FUNCTION ledger_epoch() RETURNS text
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    timeline text := left(pg_walfile_name(pg_current_wal_lsn()), 8);
BEGIN
    IF has_function_privilege('pg_control_system()', 'execute') THEN
        RETURN (SELECT system_identifier FROM pg_control_system()) || '/' || timeline;
    END IF;
    RETURN timeline;
END
$$;
-- +goose StatementEnd

-- One row per identity (reminder_id, type, channel). Keys sort by bytes, as in Go and in SQLite. The fill
-- factor leaves room for the settled row version on the page of the claimed one.
CREATE TABLE entries (
    reminder_id       text COLLATE "C" NOT NULL,
    type              text COLLATE "C" NOT NULL,
    channel           text COLLATE "C" NOT NULL,
    send_key          text NOT NULL,
    content_hash      text NOT NULL DEFAULT '',
    state             text NOT NULL,
    version           bigint NOT NULL,
    class             text NOT NULL DEFAULT '',
    reason            text NOT NULL,
    code              text COLLATE "C" NOT NULL DEFAULT '',
    provider          text COLLATE "C" NOT NULL DEFAULT '',
    fingerprint       text NOT NULL DEFAULT '',
    receipt           text NOT NULL DEFAULT '',
    receipt_missing   text NOT NULL DEFAULT '',
    attempts          bigint NOT NULL DEFAULT 0,
    budget_used       bigint NOT NULL DEFAULT 0,
    lease_expirations bigint NOT NULL DEFAULT 0,
    deliveries        bigint NOT NULL DEFAULT 0,
    redrives          bigint NOT NULL DEFAULT 0,
    holder            text NOT NULL DEFAULT '',
    lease_until       timestamptz,
    claimed_at        timestamptz,
    due               timestamptz,
    wake              timestamptz,
    owner             text NOT NULL DEFAULT '',
    not_before        timestamptz,
    deadline          timestamptz,
    doubt_since       timestamptz,
    next_lookup       timestamptz,
    lookups_not_found bigint NOT NULL DEFAULT 0,
    cancel_requested  boolean NOT NULL DEFAULT false,
    first_seen        timestamptz NOT NULL,
    updated           timestamptz NOT NULL,
    published         timestamptz,
    source            text NOT NULL DEFAULT '',
    correlation_id    text NOT NULL DEFAULT '',
    reservation_id    text NOT NULL DEFAULT '',
    user_id           text NOT NULL DEFAULT '',
    CONSTRAINT entries_pkey PRIMARY KEY (reminder_id, type, channel),
    CONSTRAINT entries_send_key CHECK (length(send_key) = 64),
    CONSTRAINT entries_state CHECK (state IN ('sending', 'waiting', 'unknown', 'sent', 'dead', 'dropped')),
    CONSTRAINT entries_class CHECK (class IN ('', 'permanent', 'recipient', 'exhausted', 'unroutable',
        'malformed', 'broker', 'credentials', 'throttled', 'unreachable', 'unknown')),
    CONSTRAINT entries_owner CHECK (owner IN ('', 'broker', 'ledger')),
    CONSTRAINT entries_receipt_missing CHECK (receipt_missing IN ('', 'assumed', 'unreadable', 'resolved')),
    CONSTRAINT entries_version CHECK (version > 0),
    CONSTRAINT entries_counts CHECK (attempts >= 0 AND budget_used >= 0 AND lease_expirations >= 0
        AND deliveries >= 0 AND redrives >= 0 AND lookups_not_found >= 0),
    CONSTRAINT entries_reason CHECK (reason <> ''),
    CONSTRAINT entries_holder CHECK ((state = 'sending') = (holder <> '')),
    CONSTRAINT entries_lease CHECK ((state = 'sending') = (lease_until IS NOT NULL)),
    CONSTRAINT entries_claim CHECK (state <> 'sending' OR claimed_at IS NOT NULL),
    CONSTRAINT entries_due CHECK ((state = 'waiting') = (due IS NOT NULL)),
    CONSTRAINT entries_wake CHECK (state <> 'waiting' OR (wake IS NOT NULL AND owner <> '')),
    CONSTRAINT entries_lookup CHECK (state = 'unknown' OR next_lookup IS NULL),
    CONSTRAINT entries_receipt CHECK ((state = 'sent') = (receipt <> '' OR receipt_missing <> '')),
    CONSTRAINT entries_one_receipt CHECK (receipt = '' OR receipt_missing = ''),
    CONSTRAINT entries_doubt CHECK (doubt_since IS NULL OR NOT (state = 'dead'
        OR (state = 'dropped' AND reason <> 'abandoned'))),
    CONSTRAINT entries_unknown CHECK (state <> 'unknown' OR doubt_since IS NOT NULL),
    CONSTRAINT entries_dead CHECK (state <> 'dead' OR class IN ('permanent', 'recipient', 'exhausted',
        'unroutable', 'malformed', 'broker'))
) WITH (fillfactor = 80);

-- No index names a column that the update from 'sending' to 'sent' changes (state, version, holder, lease,
-- updated, receipt), not even in its predicate. That update is then heap-only (HOT): it stays on its page and
-- touches no index.
CREATE INDEX entries_wake_idx ON entries (provider, wake) WHERE wake IS NOT NULL;
CREATE INDEX entries_lookup_idx ON entries (provider, next_lookup) WHERE next_lookup IS NOT NULL;
CREATE INDEX entries_class_idx ON entries (class, first_seen) WHERE class <> '';
CREATE INDEX entries_doubt_idx ON entries (doubt_since) WHERE doubt_since IS NOT NULL;
CREATE INDEX entries_first_seen_idx ON entries (first_seen, reminder_id, type, channel);
CREATE INDEX entries_reservation_idx ON entries (reservation_id, first_seen) WHERE reservation_id <> '';
CREATE INDEX entries_user_idx ON entries (user_id, first_seen) WHERE user_id <> '';
CREATE INDEX entries_claimed_idx ON entries USING brin (claimed_at) WITH (autosummarize = on);

-- The payload of an entry, in a table of its own: it is large, and is purged before the entry is.
CREATE TABLE payloads (
    reminder_id text COLLATE "C" NOT NULL,
    type        text COLLATE "C" NOT NULL,
    channel     text COLLATE "C" NOT NULL,
    recipient   text NOT NULL,
    content     bytea,
    metadata    bytea,
    raw         bytea,
    CONSTRAINT payloads_pkey PRIMARY KEY (reminder_id, type, channel),
    CONSTRAINT payloads_entry FOREIGN KEY (reminder_id, type, channel)
        REFERENCES entries (reminder_id, type, channel) ON DELETE CASCADE
);

-- Timeline events: attempts, expired leases, decisions, lookups and status events. The version is the one that
-- the write of the event gave to the entry.
CREATE TABLE timeline (
    reminder_id        text COLLATE "C" NOT NULL,
    type               text COLLATE "C" NOT NULL,
    channel            text COLLATE "C" NOT NULL,
    version            bigint NOT NULL,
    kind               text NOT NULL,
    state              text NOT NULL,
    reason             text NOT NULL,
    origin             text NOT NULL,
    source             text NOT NULL,
    message_id         text NOT NULL,
    delivery_count     bigint NOT NULL,
    holder             text NOT NULL,
    attempt            bigint NOT NULL,
    provider           text NOT NULL,
    started_at         timestamptz,
    finished_at        timestamptz,
    outcome            text NOT NULL,
    receipt            text NOT NULL,
    status             bigint NOT NULL,
    code               text NOT NULL,
    request_id         text NOT NULL,
    retry_after_micros bigint NOT NULL,
    cause              text NOT NULL,
    at                 timestamptz NOT NULL,
    CONSTRAINT timeline_pkey PRIMARY KEY (reminder_id, type, channel, version),
    CONSTRAINT timeline_kind CHECK (kind IN ('attempt', 'lease_expired', 'late', 'decision', 'lookup', 'status')),
    CONSTRAINT timeline_entry FOREIGN KEY (reminder_id, type, channel)
        REFERENCES entries (reminder_id, type, channel) ON DELETE CASCADE
);

-- Different content that arrived for an existing identity: one row per content hash, append-only.
CREATE TABLE conflicts (
    reminder_id  text COLLATE "C" NOT NULL,
    type         text COLLATE "C" NOT NULL,
    channel      text COLLATE "C" NOT NULL,
    content_hash text COLLATE "C" NOT NULL,
    source       text NOT NULL,
    message_id   text NOT NULL,
    first_seen   timestamptz NOT NULL,
    CONSTRAINT conflicts_pkey PRIMARY KEY (reminder_id, type, channel, content_hash),
    CONSTRAINT conflicts_entry FOREIGN KEY (reminder_id, type, channel)
        REFERENCES entries (reminder_id, type, channel) ON DELETE CASCADE
);

-- The state of each provider: cooldown, consecutive failures, operator pause.
CREATE TABLE gates (
    provider     text COLLATE "C" NOT NULL,
    closed_until timestamptz,
    class        text NOT NULL DEFAULT '',
    actor        text NOT NULL DEFAULT '',
    failures     bigint NOT NULL DEFAULT 0,
    paused       boolean NOT NULL DEFAULT false,
    version      bigint NOT NULL,
    updated      timestamptz NOT NULL,
    CONSTRAINT gates_pkey PRIMARY KEY (provider),
    CONSTRAINT gates_failures CHECK (failures >= 0),
    CONSTRAINT gates_version CHECK (version > 0)
);

-- Audit events of operators: append-only, one row per action, written in the transaction of the change that it
-- describes. The identity is empty where the action concerns no single entry.
CREATE TABLE audit (
    reminder_id text COLLATE "C" NOT NULL,
    type        text COLLATE "C" NOT NULL,
    channel     text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    actor       text NOT NULL,
    role        text NOT NULL,
    action      text NOT NULL,
    reason      text NOT NULL,
    before      text NOT NULL,
    after       text NOT NULL,
    at          timestamptz NOT NULL,
    CONSTRAINT audit_pkey PRIMARY KEY (reminder_id, type, channel, id)
);
CREATE INDEX audit_at_idx ON audit (at, id);

-- Redrives: batches of dead letters that an operator sends again. They are few and small, so the rules for
-- indexes of the large tables do not apply.
CREATE TABLE redrives (
    id              text COLLATE "C" NOT NULL,
    actor           text COLLATE "C" NOT NULL,
    request_key     text COLLATE "C" NOT NULL,
    request_hash    text NOT NULL,
    role            text NOT NULL,
    reason          text NOT NULL,
    request         text NOT NULL,
    state           text NOT NULL,
    size            bigint NOT NULL,
    interval_micros bigint NOT NULL,
    deadline        timestamptz,
    permanent       boolean NOT NULL,
    holder          text NOT NULL DEFAULT '',
    lease_until     timestamptz,
    version         bigint NOT NULL,
    created         timestamptz NOT NULL,
    updated         timestamptz NOT NULL,
    finished        timestamptz,
    CONSTRAINT redrives_pkey PRIMARY KEY (id),
    CONSTRAINT redrives_request UNIQUE (actor, request_key),
    CONSTRAINT redrives_state CHECK (state IN ('running', 'cancelled', 'done')),
    CONSTRAINT redrives_finished CHECK ((state = 'running') = (finished IS NULL))
);
CREATE INDEX redrives_created_idx ON redrives (created, id);

-- The items of a redrive, fixed when it is created, and the result of each. An empty result means that the item
-- has not been processed yet.
CREATE TABLE redrive_items (
    redrive_id  text COLLATE "C" NOT NULL,
    position    bigint NOT NULL,
    reminder_id text COLLATE "C" NOT NULL,
    type        text COLLATE "C" NOT NULL,
    channel     text COLLATE "C" NOT NULL,
    version     bigint NOT NULL,
    result      text NOT NULL DEFAULT '',
    reparsed_as text NOT NULL DEFAULT '',
    at          timestamptz,
    CONSTRAINT redrive_items_pkey PRIMARY KEY (redrive_id, position),
    CONSTRAINT redrive_items_redrive FOREIGN KEY (redrive_id) REFERENCES redrives (id) ON DELETE CASCADE
);

-- The epochs (database system and timeline) that this ledger has been stored on, and when each was first
-- noticed. It is NULL for the epoch on which the ledger was created.
CREATE TABLE epochs (
    epoch   text COLLATE "C" NOT NULL,
    noticed timestamptz,
    CONSTRAINT epochs_pkey PRIMARY KEY (epoch)
);

-- +goose Down
DROP TABLE epochs;
DROP TABLE redrive_items;
DROP TABLE redrives;
DROP TABLE audit;
DROP TABLE gates;
DROP TABLE conflicts;
DROP TABLE timeline;
DROP TABLE payloads;
DROP TABLE entries;
DROP FUNCTION ledger_epoch();
DROP FUNCTION ledger_at(timestamptz, bigint);
DROP FUNCTION ledger_now();
