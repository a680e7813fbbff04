-- What both dialects say in the same words. Times are compared with the ledger's own clock alone, and
-- never inside CASE or COALESCE; RETURNING lists plain columns.

-- name: LoadEntry :one
SELECT * FROM entries WHERE reminder_id = @reminder_id AND type = @type AND channel = @channel;

-- name: LoadPayload :one
SELECT * FROM payloads WHERE reminder_id = @reminder_id AND type = @type AND channel = @channel;

-- name: ListTimeline :many
SELECT * FROM timeline WHERE reminder_id = @reminder_id AND type = @type AND channel = @channel
ORDER BY version;

-- name: ListConflicts :many
SELECT * FROM conflicts WHERE reminder_id = @reminder_id AND type = @type AND channel = @channel
ORDER BY first_seen, content_hash;

-- name: AddConflict :execrows
INSERT INTO conflicts (reminder_id, type, channel, content_hash, source, message_id, first_seen)
VALUES (@reminder_id, @type, @channel, @content_hash, @source, @message_id, ledger_now())
ON CONFLICT DO NOTHING;

-- name: ListByReminder :many
SELECT * FROM entries WHERE reminder_id = @reminder_id ORDER BY reminder_id, type, channel;

-- The guard beside each filter lets a partial index serve it.
-- name: ListEntries :many
SELECT * FROM entries
WHERE (CAST(@reminder_id AS text) = '' OR reminder_id = @reminder_id)
    AND (CAST(@reservation_id AS text) = '' OR (reservation_id = @reservation_id AND reservation_id <> ''))
    AND (CAST(@user_id AS text) = '' OR (user_id = @user_id AND user_id <> ''))
    AND (CAST(@state AS text) = '' OR state = @state)
    AND (CAST(@class AS text) = '' OR (class = @class AND class <> ''))
    AND (CAST(@of_type AS text) = '' OR type = @of_type)
    AND (CAST(@channel AS text) = '' OR channel = @channel)
    AND (CAST(@provider AS text) = '' OR provider = @provider)
    AND first_seen >= @seen_from
    AND first_seen < @seen_to
    AND first_seen <= @after_seen
    AND (first_seen < @after_seen
        OR reminder_id < @after_reminder_id
        OR (reminder_id = @after_reminder_id AND type < @after_type)
        OR (reminder_id = @after_reminder_id AND type = @after_type AND channel < @after_channel))
ORDER BY first_seen DESC, reminder_id DESC, type DESC, channel DESC
LIMIT @at_most;

-- name: ListDue :many
SELECT reminder_id, type, channel FROM entries
WHERE provider = @provider AND wake <= ledger_now()
ORDER BY wake, reminder_id, type, channel
LIMIT @at_most;

-- name: ListLanes :many
SELECT DISTINCT provider FROM entries WHERE wake IS NOT NULL ORDER BY provider;

-- name: ListAsks :many
SELECT reminder_id, type, channel FROM entries
WHERE provider = @provider AND ask_at <= ledger_now()
ORDER BY ask_at, reminder_id, type, channel
LIMIT @at_most;

-- name: ListUnknown :many
SELECT * FROM entries
WHERE doubt_since IS NOT NULL AND state = 'unknown'
    AND doubt_since >= @after_doubt
    AND (doubt_since > @after_doubt
        OR reminder_id > @after_reminder_id
        OR (reminder_id = @after_reminder_id AND type > @after_type)
        OR (reminder_id = @after_reminder_id AND type = @after_type AND channel > @after_channel))
ORDER BY doubt_since, reminder_id, type, channel
LIMIT @at_most;

-- No index may name the lease (see the migration): the time of the claim bounds the scan.
-- name: ListLapsed :many
SELECT reminder_id, type, channel FROM entries
WHERE lease_until <= ledger_now() AND claimed_at >= ledger_at(NULL, @back_micros)
ORDER BY lease_until, reminder_id, type, channel
LIMIT @at_most;

-- Two days back, as far as the hourly look for silent holders reaches.
-- name: CountSending :one
SELECT count(*) AS entries, min(claimed_at) AS since FROM entries
WHERE lease_until IS NOT NULL AND claimed_at >= ledger_at(NULL, -172800000000);

-- name: CountWaiting :one
SELECT count(*) AS entries, min(wake) AS since FROM entries WHERE wake IS NOT NULL AND state = 'waiting';

-- name: CountUnknown :one
SELECT count(*) AS entries, min(doubt_since) AS since FROM entries
WHERE doubt_since IS NOT NULL AND state = 'unknown';

-- name: CountDead :many
SELECT class, count(*) AS entries FROM entries WHERE class <> '' AND state = 'dead' GROUP BY class;

-- name: CountReady :many
SELECT provider, count(*) AS entries FROM entries
WHERE wake IS NOT NULL AND state = 'waiting' AND due <= ledger_now()
GROUP BY provider;

-- name: ListGates :many
SELECT * FROM gates ORDER BY provider;

-- name: CreateGate :one
INSERT INTO gates (provider, closed_until, class, closed_by, strikes, version, updated)
VALUES (@provider, ledger_at(sqlc.narg('closed_at'), sqlc.narg('closed_after')), @class, @closed_by,
    @strikes, 1, ledger_now())
ON CONFLICT DO NOTHING
RETURNING *;

-- name: SwapGate :one
UPDATE gates
SET closed_until = ledger_at(sqlc.narg('closed_at'), sqlc.narg('closed_after')), class = @class,
    closed_by = @closed_by, strikes = @strikes, version = version + 1, updated = ledger_now()
WHERE provider = @provider AND version = @version
RETURNING *;

-- name: AddAct :exec
INSERT INTO audit (
    reminder_id, type, channel, id, actor, role, verb, why, before, after, at
)
VALUES (
    @reminder_id, @type, @channel, @id, @actor, @role, @verb, @why, @before, @after, ledger_now()
);

-- name: ListActs :many
SELECT * FROM audit WHERE reminder_id = @reminder_id AND type = @type AND channel = @channel
ORDER BY at, id;

-- name: ListEpochs :many
SELECT * FROM epochs ORDER BY epoch;

-- name: AddEpoch :exec
INSERT INTO epochs (epoch, noticed)
VALUES (@epoch, ledger_at(sqlc.narg('noticed_at'), sqlc.narg('noticed_after')))
ON CONFLICT DO NOTHING;

-- name: RenewEpoch :exec
UPDATE epochs SET noticed = ledger_now() WHERE epoch = @epoch;
