-- What only PostgreSQL can: an entry with all that belongs to it in one statement. That is one round trip
-- and one commit without BEGIN, and nothing is written beside an entry that was not.

-- name: CreateEntry :one
WITH born AS (
    INSERT INTO entries (
        reminder_id, type, channel, send_key, content_hash, state, version, class, reason, code, provider,
        fingerprint, receipt, missing, attempts, spent, lapses, deliveries, redrives, holder, lease_until,
        claimed_at, due, wake, owner, not_before, deadline, doubt_since, ask_at, asked, cancel_asked,
    published, source, correlation_id, reservation_id, user_id, first_seen, updated
    )
    VALUES (
        @reminder_id, @type, @channel, @send_key, @content_hash, @state, 1, @class, @reason, @entry_code, @provider,
        @fingerprint, @receipt, @missing, @attempts, @spent, @lapses, @deliveries, @redrives, @holder,
        ledger_at(sqlc.narg('lease_at'), sqlc.narg('lease_after')),
        ledger_at(sqlc.narg('claimed_at'), sqlc.narg('claimed_after')),
        ledger_at(sqlc.narg('due_at'), sqlc.narg('due_after')),
        ledger_at(sqlc.narg('wake_at'), sqlc.narg('wake_after')), @owner, sqlc.narg('not_before'), sqlc.narg('deadline'),
        sqlc.narg('doubt_since'), ledger_at(sqlc.narg('ask_at'), sqlc.narg('ask_after')), @asked, @cancel_asked,
        sqlc.narg('published'), @source, @correlation_id,
        @reservation_id, @user_id, ledger_now(), ledger_now()
    )
    ON CONFLICT DO NOTHING
    RETURNING *
), carried AS (
    INSERT INTO payloads (reminder_id, type, channel, recipient, content, metadata, raw)
    SELECT born.reminder_id, born.type, born.channel, @recipient::text, sqlc.narg('content')::bytea,
        sqlc.narg('metadata')::bytea, sqlc.narg('raw')::bytea
    FROM born WHERE @with_payload::boolean
), told AS (
    INSERT INTO timeline (
        reminder_id, type, channel, version, kind, state, reason, origin, source, message_id,
        delivery_count, holder, attempt, provider, started_at, finished_at, outcome, receipt, status,
        code, request_id, retry_after_micros, cause, at
    )
    SELECT
        born.reminder_id, born.type, born.channel, born.version, @kind::text, @event_state::text,
        @event_reason::text, @origin::text, @event_source::text, @message_id::text,
        @delivery_count::bigint, @event_holder::text, @attempt::bigint, @event_provider::text,
        sqlc.narg('started_at')::timestamptz, sqlc.narg('finished_at')::timestamptz, @outcome::text,
        @event_receipt::text, @status::bigint, @code::text, @request_id::text,
        @retry_after_micros::bigint, @cause::text, born.updated
    FROM born WHERE @with_event::boolean
)
SELECT * FROM born;

-- name: SwapEntry :one
WITH moved AS (
    UPDATE entries
    SET
        state = @state, class = @class, reason = @reason, code = @entry_code, provider = @provider,
        fingerprint = @fingerprint, receipt = @receipt, missing = @missing, attempts = @attempts,
        spent = @spent, lapses = @lapses, deliveries = @deliveries, redrives = @redrives, holder = @holder,
        lease_until = ledger_at(sqlc.narg('lease_at'), sqlc.narg('lease_after')),
        claimed_at = ledger_at(sqlc.narg('claimed_at'), sqlc.narg('claimed_after')),
        due = ledger_at(sqlc.narg('due_at'), sqlc.narg('due_after')),
        wake = ledger_at(sqlc.narg('wake_at'), sqlc.narg('wake_after')), owner = @owner,
        deadline = sqlc.narg('deadline'), doubt_since = sqlc.narg('doubt_since'),
        ask_at = ledger_at(sqlc.narg('ask_at'), sqlc.narg('ask_after')), asked = @asked,
        cancel_asked = @cancel_asked, published = sqlc.narg('published'), source = @source,
        correlation_id = @correlation_id, reservation_id = @reservation_id, user_id = @user_id,
        version = entries.version + 1, updated = ledger_now()
    WHERE entries.reminder_id = @reminder_id AND entries.type = @type AND entries.channel = @channel
        AND entries.version = @version
        AND (sqlc.narg('read_at')::timestamptz IS NULL OR entries.updated = sqlc.narg('read_at')::timestamptz)
    RETURNING *
), told AS (
    INSERT INTO timeline (
        reminder_id, type, channel, version, kind, state, reason, origin, source, message_id,
        delivery_count, holder, attempt, provider, started_at, finished_at, outcome, receipt, status,
        code, request_id, retry_after_micros, cause, at
    )
    SELECT
        moved.reminder_id, moved.type, moved.channel, moved.version, @kind::text, @event_state::text,
        @event_reason::text, @origin::text, @event_source::text, @message_id::text,
        @delivery_count::bigint, @event_holder::text, @attempt::bigint, @event_provider::text,
        sqlc.narg('started_at')::timestamptz, sqlc.narg('finished_at')::timestamptz, @outcome::text,
        @event_receipt::text, @status::bigint, @code::text, @request_id::text,
        @retry_after_micros::bigint, @cause::text, moved.updated
    FROM moved WHERE @with_event::boolean
)
SELECT * FROM moved;

-- Alone and first in its batch, so that the node that judges the writes tells the time.
-- name: Now :one
SELECT ledger_now()::timestamptz AS now;

-- The same, with the name of the system and timeline that tells it.
-- name: NowAndEpoch :one
SELECT ledger_now()::timestamptz AS now, ledger_epoch()::text AS epoch;

-- name: AddRedriveItems :exec
INSERT INTO redrive_items (redrive_id, place, reminder_id, type, channel, version)
SELECT @redrive_id::text, unnest(@places::bigint[]), unnest(@reminder_ids::text[]), unnest(@types::text[]),
    unnest(@channels::text[]), unnest(@versions::bigint[]);
