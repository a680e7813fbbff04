-- +goose Up

-- Times are microseconds since 1970 in UTC. The ledger's clock, ledger_now() and ledger_at(at,
-- after_micros), is a pair of functions that the store registers with its connections.

-- One row for an identity.
CREATE TABLE entries (
    reminder_id    text NOT NULL,
    type           text NOT NULL,
    channel        text NOT NULL,
    send_key       text NOT NULL,
    content_hash   text NOT NULL DEFAULT '',
    state          text NOT NULL,
    version        integer NOT NULL,
    class          text NOT NULL DEFAULT '',
    reason         text NOT NULL,
    code           text NOT NULL DEFAULT '',
    provider       text NOT NULL DEFAULT '',
    fingerprint    text NOT NULL DEFAULT '',
    receipt        text NOT NULL DEFAULT '',
    missing        text NOT NULL DEFAULT '',
    attempts       integer NOT NULL DEFAULT 0,
    spent          integer NOT NULL DEFAULT 0,
    lapses         integer NOT NULL DEFAULT 0,
    deliveries     integer NOT NULL DEFAULT 0,
    redrives       integer NOT NULL DEFAULT 0,
    holder         text NOT NULL DEFAULT '',
    lease_until    integer,
    claimed_at     integer,
    due            integer,
    wake           integer,
    owner          text NOT NULL DEFAULT '',
    not_before     integer,
    deadline       integer,
    doubt_since    integer,
    ask_at         integer,
    asked          integer NOT NULL DEFAULT 0,
    cancel_asked   boolean NOT NULL DEFAULT FALSE,
    first_seen     integer NOT NULL,
    updated        integer NOT NULL,
    published      integer,
    source         text NOT NULL DEFAULT '',
    correlation_id text NOT NULL DEFAULT '',
    reservation_id text NOT NULL DEFAULT '',
    user_id        text NOT NULL DEFAULT '',
    CONSTRAINT entries_pkey PRIMARY KEY (reminder_id, type, channel),
    CONSTRAINT entries_send_key CHECK (length(send_key) = 64),
    CONSTRAINT entries_state CHECK (state IN ('sending', 'waiting', 'unknown', 'sent', 'dead', 'dropped')),
    CONSTRAINT entries_class CHECK (class IN ('', 'permanent', 'recipient', 'exhausted', 'unroutable',
        'malformed', 'broker', 'credentials', 'throttled', 'unreachable', 'unknown')),
    CONSTRAINT entries_owner CHECK (owner IN ('', 'broker', 'ledger')),
    CONSTRAINT entries_missing CHECK (missing IN ('', 'assumed', 'unread', 'resolved')),
    CONSTRAINT entries_version CHECK (version > 0),
    CONSTRAINT entries_counts CHECK (attempts >= 0 AND spent >= 0 AND lapses >= 0 AND deliveries >= 0
        AND redrives >= 0 AND asked >= 0),
    CONSTRAINT entries_reason CHECK (reason <> ''),
    CONSTRAINT entries_holder CHECK ((state = 'sending') = (holder <> '')),
    CONSTRAINT entries_lease CHECK ((state = 'sending') = (lease_until IS NOT NULL)),
    CONSTRAINT entries_claim CHECK (state <> 'sending' OR claimed_at IS NOT NULL),
    CONSTRAINT entries_due CHECK ((state = 'waiting') = (due IS NOT NULL)),
    CONSTRAINT entries_wake CHECK (state <> 'waiting' OR (wake IS NOT NULL AND owner <> '')),
    CONSTRAINT entries_ask CHECK (state = 'unknown' OR ask_at IS NULL),
    CONSTRAINT entries_receipt CHECK ((state = 'sent') = (receipt <> '' OR missing <> '')),
    CONSTRAINT entries_one_receipt CHECK (receipt = '' OR missing = ''),
    CONSTRAINT entries_doubt CHECK (doubt_since IS NULL OR NOT (state = 'dead'
        OR (state = 'dropped' AND reason <> 'abandoned'))),
    CONSTRAINT entries_unknown CHECK (state <> 'unknown' OR doubt_since IS NOT NULL),
    CONSTRAINT entries_dead CHECK (state <> 'dead' OR class IN ('permanent', 'recipient', 'exhausted',
        'unroutable', 'malformed', 'broker'))
);

CREATE INDEX entries_wake_idx ON entries (provider, wake) WHERE wake IS NOT NULL;
CREATE INDEX entries_ask_idx ON entries (provider, ask_at) WHERE ask_at IS NOT NULL;
CREATE INDEX entries_class_idx ON entries (class, first_seen) WHERE class <> '';
CREATE INDEX entries_doubt_idx ON entries (doubt_since) WHERE doubt_since IS NOT NULL;
CREATE INDEX entries_first_seen_idx ON entries (first_seen, reminder_id, type, channel);
CREATE INDEX entries_reservation_idx ON entries (reservation_id, first_seen) WHERE reservation_id <> '';
CREATE INDEX entries_user_idx ON entries (user_id, first_seen) WHERE user_id <> '';
-- Holders at work are few, and an index over them alone costs SQLite next to nothing.
CREATE INDEX entries_lease_idx ON entries (lease_until) WHERE lease_until IS NOT NULL;

-- What an entry carries: large, and purged apart from it.
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

-- Attempts, lapses and decisions, each numbered by the version of the write that brought it.
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
    CONSTRAINT timeline_kind CHECK (kind IN ('attempt', 'lapse', 'late', 'decision', 'lookup', 'report')),
    CONSTRAINT timeline_entry FOREIGN KEY (reminder_id, type, channel)
        REFERENCES entries (reminder_id, type, channel) ON DELETE CASCADE
);

-- Other content that came under an identity: one row per content hash, only ever added.
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

CREATE TABLE gates (
    provider     text NOT NULL,
    closed_until integer,
    class        text NOT NULL DEFAULT '',
    closed_by    text NOT NULL DEFAULT '',
    strikes      integer NOT NULL DEFAULT 0,
    paused       boolean NOT NULL DEFAULT FALSE,
    version      integer NOT NULL,
    updated      integer NOT NULL,
    CONSTRAINT gates_pkey PRIMARY KEY (provider),
    CONSTRAINT gates_strikes CHECK (strikes >= 0),
    CONSTRAINT gates_version CHECK (version > 0)
);

-- What people did: one row an act, only ever added, in the commit of what it tells of. An act on no entry
-- has an empty identity.
CREATE TABLE audit (
    reminder_id text NOT NULL,
    type        text NOT NULL,
    channel     text NOT NULL,
    id          text NOT NULL,
    actor       text NOT NULL,
    role        text NOT NULL,
    verb        text NOT NULL,
    why         text NOT NULL,
    before      text NOT NULL,
    after       text NOT NULL,
    at          integer NOT NULL,
    CONSTRAINT audit_pkey PRIMARY KEY (reminder_id, type, channel, id)
);
CREATE INDEX audit_at_idx ON audit (at, id);

-- An operator's batches of dead letters.
CREATE TABLE redrives (
    id           text NOT NULL,
    actor        text NOT NULL,
    request_key  text NOT NULL,
    request_hash text NOT NULL,
    role         text NOT NULL,
    why          text NOT NULL,
    asked        text NOT NULL,
    state        text NOT NULL,
    size         integer NOT NULL,
    pace_micros  integer NOT NULL,
    deadline     integer,
    permanent    boolean NOT NULL,
    holder       text NOT NULL DEFAULT '',
    lease_until  integer,
    version      integer NOT NULL,
    created      integer NOT NULL,
    updated      integer NOT NULL,
    finished     integer,
    CONSTRAINT redrives_pkey PRIMARY KEY (id),
    CONSTRAINT redrives_request UNIQUE (actor, request_key),
    CONSTRAINT redrives_state CHECK (state IN ('running', 'cancelled', 'done')),
    CONSTRAINT redrives_finished CHECK ((state = 'running') = (finished IS NULL))
);
CREATE INDEX redrives_created_idx ON redrives (created, id);

-- What a redrive is to do, as it was laid out, and what became of each item; result is empty until its turn.
CREATE TABLE redrive_items (
    redrive_id  text NOT NULL,
    place       integer NOT NULL,
    reminder_id text NOT NULL,
    type        text NOT NULL,
    channel     text NOT NULL,
    version     integer NOT NULL,
    result      text NOT NULL DEFAULT '',
    became      text NOT NULL DEFAULT '',
    at          integer,
    CONSTRAINT redrive_items_pkey PRIMARY KEY (redrive_id, place),
    CONSTRAINT redrive_items_redrive FOREIGN KEY (redrive_id) REFERENCES redrives (id) ON DELETE CASCADE
);

-- The systems and timelines that this ledger has lived on, and when each was noticed; the first has always
-- been there.
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
