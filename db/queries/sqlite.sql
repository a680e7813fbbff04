-- The queries of SQLite: what PostgreSQL writes in one statement takes several in one transaction here, and
-- ExpireAllLeases is right only because a single process uses the file.

-- name: InsertEntry :one
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
RETURNING *;

-- name: UpdateEntry :one
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
    version = version + 1, updated = ledger_now()
WHERE reminder_id = @reminder_id AND type = @type AND channel = @channel AND version = @version
    AND (CAST(sqlc.narg('read_at') AS integer) IS NULL OR updated = sqlc.narg('read_at'))
RETURNING *;

-- name: AddPayload :exec
INSERT INTO payloads (reminder_id, type, channel, recipient, content, metadata, raw)
VALUES (@reminder_id, @type, @channel, @recipient, @content, @metadata, @raw);

-- name: AddEvent :exec
INSERT INTO timeline (
    reminder_id, type, channel, version, kind, state, reason, origin, source, message_id,
    delivery_count, holder, attempt, provider, started_at, finished_at, outcome, receipt, status, code,
    request_id, retry_after_micros, cause, at
)
VALUES (
    @reminder_id, @type, @channel, @version, @kind, @state, @reason, @origin, @source, @message_id,
    @delivery_count, @holder, @attempt, @provider, sqlc.narg('started_at'), sqlc.narg('finished_at'),
    @outcome, @receipt, @status, @code, @request_id, @retry_after_micros, @cause, @at
);

-- Run when the file is opened: one process uses it, so whoever held a lease before is gone.
-- name: ExpireAllLeases :execrows
UPDATE entries SET lease_until = ledger_now(), version = version + 1, updated = ledger_now()
WHERE lease_until > ledger_now();

-- name: AddRedriveItem :exec
INSERT INTO redrive_items (redrive_id, position, reminder_id, type, channel, version)
VALUES (@redrive_id, @position, @reminder_id, @type, @channel, @version);
