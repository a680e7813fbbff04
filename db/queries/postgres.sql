-- The queries that only PostgreSQL can run: an entry is written together with its payload and timeline event in one
-- statement. That takes one round trip and commits without BEGIN, and payload and event are written only if the
-- entry is.

-- name: InsertEntry :one
WITH inserted AS (
    INSERT INTO entries (
        reminder_id, type, channel, send_key, content_hash, state, version, class, reason, code, provider,
        fingerprint, receipt, receipt_missing, attempts, budget_used, lease_expirations, deliveries, redrives,
        holder, lease_until, claimed_at, due, wake, owner, not_before, deadline, doubt_since,
        next_lookup, lookups_not_found, cancel_requested,
        published, source, correlation_id, reservation_id, user_id, first_seen, updated
    )
    VALUES (
        @reminder_id, @type, @channel, @send_key, @content_hash, @state, 1, @class, @reason, @entry_code, @provider,
        @fingerprint, @receipt, @receipt_missing, @attempts, @budget_used, @lease_expirations, @deliveries, @redrives,
        @holder, ledger_at(sqlc.narg('lease_at'), sqlc.narg('lease_after')),
        ledger_at(sqlc.narg('claimed_at'), sqlc.narg('claimed_after')),
        ledger_at(sqlc.narg('due_at'), sqlc.narg('due_after')),
        ledger_at(sqlc.narg('wake_at'), sqlc.narg('wake_after')),
        @owner, sqlc.narg('not_before'), sqlc.narg('deadline'), sqlc.narg('doubt_since'),
        ledger_at(sqlc.narg('lookup_at'), sqlc.narg('lookup_after')), @lookups_not_found, @cancel_requested,
        sqlc.narg('published'), @source, @correlation_id, @reservation_id, @user_id, ledger_now(), ledger_now()
    )
    ON CONFLICT DO NOTHING
    RETURNING *
), payload AS (
    INSERT INTO payloads (reminder_id, type, channel, recipient, content, metadata, raw)
    SELECT inserted.reminder_id, inserted.type, inserted.channel, @recipient::text, sqlc.narg('content')::bytea,
        sqlc.narg('metadata')::bytea, sqlc.narg('raw')::bytea
    FROM inserted WHERE @has_payload::boolean
), event AS (
    INSERT INTO timeline (
        reminder_id, type, channel, version, kind, state, reason, origin, source, message_id,
        delivery_count, holder, attempt, provider, started_at, finished_at, outcome, receipt, status,
        code, request_id, retry_after_micros, cause, at
    )
    SELECT
        inserted.reminder_id, inserted.type, inserted.channel, inserted.version, @kind::text, @event_state::text,
        @event_reason::text, @origin::text, @event_source::text, @message_id::text,
        @delivery_count::bigint, @event_holder::text, @attempt::bigint, @event_provider::text,
        sqlc.narg('started_at')::timestamptz, sqlc.narg('finished_at')::timestamptz, @outcome::text,
        @event_receipt::text, @status::bigint, @code::text, @request_id::text,
        @retry_after_micros::bigint, @cause::text, inserted.updated
    FROM inserted WHERE @with_event::boolean
)
SELECT * FROM inserted;

-- name: UpdateEntry :one
WITH written AS (
    UPDATE entries
    SET
        state = @state, class = @class, reason = @reason, code = @entry_code, provider = @provider,
        fingerprint = @fingerprint, receipt = @receipt, receipt_missing = @receipt_missing, attempts = @attempts,
        budget_used = @budget_used, lease_expirations = @lease_expirations, deliveries = @deliveries,
        redrives = @redrives, holder = @holder,
        lease_until = ledger_at(sqlc.narg('lease_at'), sqlc.narg('lease_after')),
        claimed_at = ledger_at(sqlc.narg('claimed_at'), sqlc.narg('claimed_after')),
        due = ledger_at(sqlc.narg('due_at'), sqlc.narg('due_after')),
        wake = ledger_at(sqlc.narg('wake_at'), sqlc.narg('wake_after')), owner = @owner,
        deadline = sqlc.narg('deadline'), doubt_since = sqlc.narg('doubt_since'),
        next_lookup = ledger_at(sqlc.narg('lookup_at'), sqlc.narg('lookup_after')),
        lookups_not_found = @lookups_not_found, cancel_requested = @cancel_requested,
        published = sqlc.narg('published'), source = @source, correlation_id = @correlation_id,
        reservation_id = @reservation_id, user_id = @user_id,
        version = entries.version + 1, updated = ledger_now()
    WHERE entries.reminder_id = @reminder_id AND entries.type = @type AND entries.channel = @channel
        AND entries.version = @version
        AND (sqlc.narg('read_at')::timestamptz IS NULL OR entries.updated = sqlc.narg('read_at')::timestamptz)
    RETURNING *
), event AS (
    INSERT INTO timeline (
        reminder_id, type, channel, version, kind, state, reason, origin, source, message_id,
        delivery_count, holder, attempt, provider, started_at, finished_at, outcome, receipt, status,
        code, request_id, retry_after_micros, cause, at
    )
    SELECT
        written.reminder_id, written.type, written.channel, written.version, @kind::text, @event_state::text,
        @event_reason::text, @origin::text, @event_source::text, @message_id::text,
        @delivery_count::bigint, @event_holder::text, @attempt::bigint, @event_provider::text,
        sqlc.narg('started_at')::timestamptz, sqlc.narg('finished_at')::timestamptz, @outcome::text,
        @event_receipt::text, @status::bigint, @code::text, @request_id::text,
        @retry_after_micros::bigint, @cause::text, written.updated
    FROM written WHERE @with_event::boolean
)
SELECT * FROM written;

-- Queued first in its batch. The time is that of the database node that also compares it in writes.
-- name: Now :one
SELECT ledger_now()::timestamptz AS now;

-- Now, with the epoch of the node that returns it.
-- name: NowAndEpoch :one
SELECT ledger_now()::timestamptz AS now, ledger_epoch()::text AS epoch;

-- name: AddRedriveItems :exec
INSERT INTO redrive_items (redrive_id, position, reminder_id, type, channel, version)
SELECT @redrive_id::text, unnest(@positions::bigint[]), unnest(@reminder_ids::text[]), unnest(@types::text[]),
    unnest(@channels::text[]), unnest(@versions::bigint[]);
