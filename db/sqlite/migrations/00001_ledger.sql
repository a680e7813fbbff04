-- +goose Up

-- Times are microseconds since 1970-01-01 UTC. The ledger's clock is a pair of functions that the store registers
-- with its connections: ledger_now() and ledger_at(at, after_micros).

-- One row per identity (reminder_id, type, channel).
CREATE TABLE entries (
    reminder_id       text NOT NULL,
    type              text NOT NULL,
    channel           text NOT NULL,
    send_key          text NOT NULL,
    content_hash      text NOT NULL DEFAULT '',
    state             text NOT NULL,
    version           integer NOT NULL,
    class             text NOT NULL DEFAULT '',
    reason            text NOT NULL,
    code              text NOT NULL DEFAULT '',
    provider          text NOT NULL DEFAULT '',
    fingerprint       text NOT NULL DEFAULT '',
    receipt           text NOT NULL DEFAULT '',
    receipt_missing   text NOT NULL DEFAULT '',
    attempts          integer NOT NULL DEFAULT 0,
    budget_used       integer NOT NULL DEFAULT 0,
    lease_expirations integer NOT NULL DEFAULT 0,
    deliveries        integer NOT NULL DEFAULT 0,
    redrives          integer NOT NULL DEFAULT 0,
    holder            text NOT NULL DEFAULT '',
    lease_until       integer,
    claimed_at        integer,
    due               integer,
    wake              integer,
    owner             text NOT NULL DEFAULT '',
    not_before        integer,
    deadline          integer,
    doubt_since       integer,
    next_lookup       integer,
    lookups_not_found integer NOT NULL DEFAULT 0,
    cancel_requested  boolean NOT NULL DEFAULT FALSE,
    first_seen        integer NOT NULL,
    updated           integer NOT NULL,
    published         integer,
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
);

CREATE INDEX entries_wake_idx ON entries (provider, wake) WHERE wake IS NOT NULL;
CREATE INDEX entries_lookup_idx ON entries (provider, next_lookup) WHERE next_lookup IS NOT NULL;
CREATE INDEX entries_class_idx ON entries (class, first_seen) WHERE class <> '';
CREATE INDEX entries_doubt_idx ON entries (doubt_since) WHERE doubt_since IS NOT NULL;
CREATE INDEX entries_first_seen_idx ON entries (first_seen, reminder_id, type, channel);
CREATE INDEX entries_reservation_idx ON entries (reservation_id, first_seen) WHERE reservation_id <> '';
CREATE INDEX entries_user_idx ON entries (user_id, first_seen) WHERE user_id <> '';
-- Only entries in the state 'sending' have a lease. They are few, so this index costs next to nothing.
CREATE INDEX entries_lease_idx ON entries (lease_until) WHERE lease_until IS NOT NULL;

-- The payload of an entry, in a table of its own: it is large, and is purged before the entry is.
CREATE TABLE payloads (
    reminder_id text NOT NULL,
    type        text NOT NULL,
    channel     text NOT NULL,
    recipient   text NOT NULL,
    content     blob,
    metadata    blob,
    raw         blob,
    CONSTRAINT payloads_pkey PRIMARY KEY (reminder_id, type, channel),
    CONSTRAINT payloads_entry FOREIGN KEY (reminder_id, type, channel)
        REFERENCES entries (reminder_id, type, channel) ON DELETE CASCADE
);

-- Timeline events: attempts, expired leases, decisions, lookups and status events. The version is the one that
-- the write of the event gave to the entry.
CREATE TABLE timeline (
    reminder_id        text NOT NULL,
    type               text NOT NULL,
    channel            text NOT NULL,
    version            integer NOT NULL,
    kind               text NOT NULL,
    state              text NOT NULL,
    reason             text NOT NULL,
    origin             text NOT NULL,
    source             text NOT NULL,
    message_id         text NOT NULL,
    delivery_count     integer NOT NULL,
    holder             text NOT NULL,
    attempt            integer NOT NULL,
    provider           text NOT NULL,
    started_at         integer,
    finished_at        integer,
    outcome            text NOT NULL,
    receipt            text NOT NULL,
    status             integer NOT NULL,
    code               text NOT NULL,
    request_id         text NOT NULL,
    retry_after_micros integer NOT NULL,
    cause              text NOT NULL,
    at                 integer NOT NULL,
    CONSTRAINT timeline_pkey PRIMARY KEY (reminder_id, type, channel, version),
    CONSTRAINT timeline_kind CHECK (kind IN ('attempt', 'lease_expired', 'late', 'decision', 'lookup', 'status')),
    CONSTRAINT timeline_entry FOREIGN KEY (reminder_id, type, channel)
        REFERENCES entries (reminder_id, type, channel) ON DELETE CASCADE
);

-- Different content that arrived for an existing identity: one row per content hash, append-only.
CREATE TABLE conflicts (
    reminder_id  text NOT NULL,
    type         text NOT NULL,
    channel      text NOT NULL,
    content_hash text NOT NULL,
    source       text NOT NULL,
    message_id   text NOT NULL,
    first_seen   integer NOT NULL,
    CONSTRAINT conflicts_pkey PRIMARY KEY (reminder_id, type, channel, content_hash),
    CONSTRAINT conflicts_entry FOREIGN KEY (reminder_id, type, channel)
        REFERENCES entries (reminder_id, type, channel) ON DELETE CASCADE
);

-- The state of each provider: cooldown, consecutive failures, operator pause.
CREATE TABLE gates (
    provider     text NOT NULL,
    closed_until integer,
    class        text NOT NULL DEFAULT '',
    actor        text NOT NULL DEFAULT '',
    failures     integer NOT NULL DEFAULT 0,
    paused       boolean NOT NULL DEFAULT FALSE,
    version      integer NOT NULL,
    updated      integer NOT NULL,
    CONSTRAINT gates_pkey PRIMARY KEY (provider),
    CONSTRAINT gates_failures CHECK (failures >= 0),
    CONSTRAINT gates_version CHECK (version > 0)
);

-- Audit events of operators: append-only, one row per action, written in the transaction of the change that it
-- describes. The identity is empty where the action concerns no single entry.
CREATE TABLE audit (
    reminder_id text NOT NULL,
    type        text NOT NULL,
    channel     text NOT NULL,
    id          text NOT NULL,
    actor       text NOT NULL,
    role        text NOT NULL,
    action      text NOT NULL,
    reason      text NOT NULL,
    before      text NOT NULL,
    after       text NOT NULL,
    at          integer NOT NULL,
    CONSTRAINT audit_pkey PRIMARY KEY (reminder_id, type, channel, id)
);
CREATE INDEX audit_at_idx ON audit (at, id);

-- Redrives: batches of dead letters that an operator sends again.
CREATE TABLE redrives (
    id              text NOT NULL,
    actor           text NOT NULL,
    request_key     text NOT NULL,
    request_hash    text NOT NULL,
    role            text NOT NULL,
    reason          text NOT NULL,
    request         text NOT NULL,
    state           text NOT NULL,
    size            integer NOT NULL,
    interval_micros integer NOT NULL,
    deadline        integer,
    permanent       boolean NOT NULL,
    holder          text NOT NULL DEFAULT '',
    lease_until     integer,
    version         integer NOT NULL,
    created         integer NOT NULL,
    updated         integer NOT NULL,
    finished        integer,
    CONSTRAINT redrives_pkey PRIMARY KEY (id),
    CONSTRAINT redrives_request UNIQUE (actor, request_key),
    CONSTRAINT redrives_state CHECK (state IN ('running', 'cancelled', 'done')),
    CONSTRAINT redrives_finished CHECK ((state = 'running') = (finished IS NULL))
);
CREATE INDEX redrives_created_idx ON redrives (created, id);

-- The items of a redrive, fixed when it is created, and the result of each. An empty result means that the item
-- has not been processed yet.
CREATE TABLE redrive_items (
    redrive_id  text NOT NULL,
    position    integer NOT NULL,
    reminder_id text NOT NULL,
    type        text NOT NULL,
    channel     text NOT NULL,
    version     integer NOT NULL,
    result      text NOT NULL DEFAULT '',
    reparsed_as text NOT NULL DEFAULT '',
    at          integer,
    CONSTRAINT redrive_items_pkey PRIMARY KEY (redrive_id, position),
    CONSTRAINT redrive_items_redrive FOREIGN KEY (redrive_id) REFERENCES redrives (id) ON DELETE CASCADE
);

-- The epochs (database system and timeline) that this ledger has been stored on, and when each was first
-- noticed. It is NULL for the epoch on which the ledger was created.
CREATE TABLE epochs (
    epoch   text NOT NULL,
    noticed integer,
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
