-- The queries that both dialects share. Times are compared with the ledger's own clock alone, and never inside
-- CASE or COALESCE. RETURNING lists plain columns.

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

-- An entry with an empty content hash was erased: no conflict is stored for it.
-- name: AddConflict :execrows
INSERT INTO conflicts (reminder_id, type, channel, content_hash, source, message_id, first_seen)
SELECT entries.reminder_id, entries.type, entries.channel, CAST(@other_hash AS text), CAST(@from_source AS text),
    CAST(@message_id AS text), ledger_now()
FROM entries
WHERE entries.reminder_id = @reminder_id AND entries.type = @type AND entries.channel = @channel
    AND entries.content_hash <> ''
ON CONFLICT DO NOTHING;

-- name: ListByReminder :many
SELECT * FROM entries WHERE reminder_id = @reminder_id ORDER BY reminder_id, type, channel;

-- The redundant condition in each filter repeats the predicate of a partial index, so that the index can be used.
-- name: ListEntries :many
SELECT * FROM entries
WHERE (CAST(@reminder_id AS text) = '' OR reminder_id = @reminder_id)
    AND (CAST(@reservation_id AS text) = '' OR (reservation_id = @reservation_id AND reservation_id <> ''))
    AND (CAST(@user_id AS text) = '' OR (user_id = @user_id AND user_id <> ''))
    AND (CAST(@state AS text) = '' OR state = @state)
    AND (CAST(@state AS text) <> 'unknown' OR doubt_since IS NOT NULL)
    AND (CAST(@state AS text) <> 'waiting' OR wake IS NOT NULL)
    AND (CAST(@state AS text) <> 'dead' OR class <> '')
    AND (CAST(@class AS text) = '' OR (class = @class AND class <> ''))
    AND (CAST(@of_type AS text) = '' OR type = @of_type)
    AND (CAST(@channel AS text) = '' OR channel = @channel)
    AND (CAST(@provider AS text) = '' OR provider = @provider)
    AND (CAST(@code AS text) = '' OR code = @code)
    AND first_seen >= @seen_from
    AND first_seen < @seen_to
    AND first_seen <= @after_seen
    AND (first_seen < @after_seen
        OR reminder_id < @after_reminder_id
        OR (reminder_id = @after_reminder_id AND type < @after_type)
        OR (reminder_id = @after_reminder_id AND type = @after_type AND channel < @after_channel))
ORDER BY first_seen DESC, reminder_id DESC, type DESC, channel DESC
LIMIT @at_most;

-- ListEntries for entries that have a conflict. Conflicts are few, so they drive the join.
-- name: ListConflicted :many
SELECT entries.* FROM entries
INNER JOIN (SELECT DISTINCT conflicts.reminder_id, conflicts.type, conflicts.channel FROM conflicts) AS conflicted
    ON conflicted.reminder_id = entries.reminder_id AND conflicted.type = entries.type
    AND conflicted.channel = entries.channel
WHERE (CAST(@reminder_id AS text) = '' OR entries.reminder_id = @reminder_id)
    AND (CAST(@reservation_id AS text) = '' OR (entries.reservation_id = @reservation_id AND entries.reservation_id <> ''))
    AND (CAST(@user_id AS text) = '' OR (entries.user_id = @user_id AND entries.user_id <> ''))
    AND (CAST(@state AS text) = '' OR entries.state = @state)
    AND (CAST(@class AS text) = '' OR (entries.class = @class AND entries.class <> ''))
    AND (CAST(@of_type AS text) = '' OR entries.type = @of_type)
    AND (CAST(@channel AS text) = '' OR entries.channel = @channel)
    AND (CAST(@provider AS text) = '' OR entries.provider = @provider)
    AND (CAST(@code AS text) = '' OR entries.code = @code)
    AND entries.first_seen >= @seen_from
    AND entries.first_seen < @seen_to
    AND entries.first_seen <= @after_seen
    AND (entries.first_seen < @after_seen
        OR entries.reminder_id < @after_reminder_id
        OR (entries.reminder_id = @after_reminder_id AND entries.type < @after_type)
        OR (entries.reminder_id = @after_reminder_id AND entries.type = @after_type AND entries.channel < @after_channel))
ORDER BY entries.first_seen DESC, entries.reminder_id DESC, entries.type DESC, entries.channel DESC
LIMIT @at_most;

-- name: ListDue :many
SELECT reminder_id, type, channel FROM entries
WHERE provider = @provider AND wake <= ledger_now()
ORDER BY wake, reminder_id, type, channel
LIMIT @at_most;

-- name: ListWaitingProviders :many
SELECT DISTINCT provider FROM entries WHERE wake IS NOT NULL ORDER BY provider;

-- name: ListDueLookups :many
SELECT reminder_id, type, channel FROM entries
WHERE provider = @provider AND next_lookup <= ledger_now()
ORDER BY next_lookup, reminder_id, type, channel
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

-- No index of PostgreSQL may name the lease (see its migration): the time of the claim bounds the scan.
-- name: ListExpiredLeases :many
SELECT reminder_id, type, channel FROM entries
WHERE lease_until <= ledger_now() AND claimed_at >= ledger_at(NULL, @within_micros)
ORDER BY lease_until, reminder_id, type, channel
LIMIT @at_most;

-- Two days back (in microseconds), like the hourly scan for expired leases.
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

-- name: InsertGate :one
INSERT INTO gates (provider, closed_until, class, actor, failures, paused, version, updated)
VALUES (@provider, ledger_at(sqlc.narg('closed_at'), sqlc.narg('closed_after')), @class, @actor,
    @failures, @paused, 1, ledger_now())
ON CONFLICT DO NOTHING
RETURNING *;

-- name: UpdateGate :one
UPDATE gates
SET closed_until = ledger_at(sqlc.narg('closed_at'), sqlc.narg('closed_after')), class = @class,
    actor = @actor, failures = @failures, paused = @paused, version = version + 1, updated = ledger_now()
WHERE provider = @provider AND version = @version
RETURNING *;

-- name: AddAuditEvent :exec
INSERT INTO audit (
    reminder_id, type, channel, id, actor, role, action, reason, before, after, at
)
VALUES (
    @reminder_id, @type, @channel, @id, @actor, @role, @action, @reason, @before, @after, ledger_now()
);

-- name: ListEntryAudit :many
SELECT * FROM audit WHERE reminder_id = @reminder_id AND type = @type AND channel = @channel
ORDER BY at, id;

-- name: ListEpochs :many
SELECT * FROM epochs ORDER BY epoch;

-- name: AddEpoch :exec
INSERT INTO epochs (epoch, noticed)
VALUES (@epoch, ledger_at(sqlc.narg('noticed_at'), sqlc.narg('noticed_after')))
ON CONFLICT DO NOTHING;

-- name: MarkEpochNoticed :exec
UPDATE epochs SET noticed = ledger_now() WHERE epoch = @epoch;

-- Newest first.
-- name: ListAudit :many
SELECT * FROM audit
WHERE (CAST(@actor AS text) = '' OR actor = @actor)
    AND (CAST(@action AS text) = '' OR action = @action)
    AND at >= @at_from
    AND at < @at_to
    AND at <= @before_at
    AND (at < @before_at OR id < @before_id)
ORDER BY at DESC, id DESC
LIMIT @at_most;

-- Dead letters grouped by class, provider, code and type, largest group first, each with its newest entry as the
-- sample.
-- name: ListDeadLetterGroups :many
SELECT class, provider, code, type, reminder_id, channel, updated, entries, first_dead
FROM (
    SELECT
        class, provider, code, type, reminder_id, channel, updated,
        count(*) OVER (PARTITION BY class, provider, code, type) AS entries,
        min(updated) OVER (PARTITION BY class, provider, code, type) AS first_dead,
        row_number() OVER (
            PARTITION BY class, provider, code, type ORDER BY updated DESC, reminder_id DESC, channel DESC
        ) AS ordinal
    FROM entries
    WHERE class <> '' AND state = 'dead'
) AS ranked
WHERE ordinal = 1
ORDER BY entries DESC, class, provider, code, type
LIMIT @at_most;

-- name: DeletePayload :exec
DELETE FROM payloads WHERE reminder_id = @reminder_id AND type = @type AND channel = @channel;

-- name: DeleteConflicts :exec
DELETE FROM conflicts WHERE reminder_id = @reminder_id AND type = @type AND channel = @channel;

-- name: ClearHash :exec
UPDATE entries SET content_hash = ''
WHERE reminder_id = @reminder_id AND type = @type AND channel = @channel AND version = @version;

-- Oldest first: a purge run pages through the whole ledger.
-- name: ListRetentionCandidates :many
SELECT sqlc.embed(entries), CAST(EXISTS (
    SELECT 1 FROM payloads
    WHERE payloads.reminder_id = entries.reminder_id AND payloads.type = entries.type
        AND payloads.channel = entries.channel
) AS boolean) AS has_payload
FROM entries
WHERE entries.first_seen >= @after_seen
    AND (entries.first_seen > @after_seen
        OR entries.reminder_id > @after_reminder_id
        OR (entries.reminder_id = @after_reminder_id AND entries.type > @after_type)
        OR (entries.reminder_id = @after_reminder_id AND entries.type = @after_type AND entries.channel > @after_channel))
ORDER BY entries.first_seen, entries.reminder_id, entries.type, entries.channel
LIMIT @at_most;

-- name: LoadLowWater :one
SELECT mark FROM low_water WHERE name = 'entries';

-- name: AddLowWater :execrows
INSERT INTO low_water (name, mark) VALUES ('entries', @mark) ON CONFLICT DO NOTHING;

-- name: RaiseLowWater :execrows
UPDATE low_water SET mark = @mark WHERE name = 'entries' AND mark < @mark;

-- name: DeleteEntry :execrows
DELETE FROM entries
WHERE reminder_id = @reminder_id AND type = @type AND channel = @channel AND version = @version
    AND updated = @read_at;

-- name: AddRedrive :one
INSERT INTO redrives (
    id, actor, request_key, request_hash, role, reason, request, state, size, interval_micros, deadline,
    permanent, version, created, updated
)
VALUES (
    @id, @actor, @request_key, @request_hash, @role, @reason, @request, @state, @size, @interval_micros,
    sqlc.narg('deadline'), @permanent, 1, ledger_now(), ledger_now()
)
ON CONFLICT DO NOTHING
RETURNING *;

-- name: LoadRedrive :one
SELECT * FROM redrives WHERE id = @id;

-- name: LoadRedriveByKey :one
SELECT * FROM redrives WHERE actor = @actor AND request_key = @request_key;

-- Newest first.
-- name: ListRedrives :many
SELECT * FROM redrives
WHERE created <= @before_created
    AND (created < @before_created OR id < @before_id)
ORDER BY created DESC, id DESC
LIMIT @at_most;

-- Oldest first, so that none is starved.
-- name: ListIdleRedrives :many
SELECT * FROM redrives
WHERE state = 'running' AND (lease_until IS NULL OR lease_until <= ledger_now())
ORDER BY created, id
LIMIT @at_most;

-- name: CountRunningRedrives :one
SELECT count(*) FROM redrives WHERE state = 'running';

-- name: UpdateRedrive :one
UPDATE redrives
SET state = @state, holder = @holder,
    lease_until = ledger_at(sqlc.narg('lease_at'), sqlc.narg('lease_after')),
    finished = ledger_at(sqlc.narg('finished_at'), sqlc.narg('finished_after')),
    version = version + 1, updated = ledger_now()
WHERE id = @id AND version = @version
RETURNING *;

-- Each item with the current state of its entry, if the entry still exists.
-- name: ListRedriveItems :many
SELECT sqlc.embed(redrive_items), entries.state, entries.class, entries.reason
FROM redrive_items
LEFT JOIN entries ON entries.reminder_id = redrive_items.reminder_id AND entries.type = redrive_items.type
    AND entries.channel = redrive_items.channel
WHERE redrive_items.redrive_id = @redrive_id
ORDER BY redrive_items.position;

-- Only the current holder of the redrive may set a result; a replica that lost its lease writes nothing.
-- name: SetRedriveItemResult :execrows
UPDATE redrive_items SET result = @result, reparsed_as = @reparsed_as, at = ledger_now()
WHERE redrive_id = @redrive_id AND position = @position AND result = ''
    AND EXISTS (
        SELECT 1 FROM redrives
        WHERE redrives.id = redrive_items.redrive_id AND (redrives.holder = @holder OR redrives.state = 'cancelled')
    );
