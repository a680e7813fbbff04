package main

// mutant is one guard removed by a patch: in file, old becomes new, and then test in package pkg must fail.
type mutant struct {
	name string
	file string
	old  string // occurs exactly once in file
	new  string
	pkg  string
	test string
}

// mutants returns the table: first bugs known from many outages, then one for each rule of package ledger, then those
// of reconciliation, redrive and retention.
func mutants() []mutant {
	return []mutant{
		{
			"a settle without the version that was read", "db/sqlite/internal/litesql/sqlite.sql.go",
			"AND version = ?", "AND version <> -?", "db/sqlite", "TestSQLiteStore",
		},
		{
			"a settle without the version, on PostgreSQL", "db/postgres/internal/pgsql/postgres.sql.go",
			"\n        AND entries.version = $", "\n        AND entries.version <> -$", "db/postgres", "TestPostgresStore",
		},
		{
			"a sweep that expires a lease without checking that it has ended", "internal/reconcile/sweep.go",
			" || !snap.Entry.LeaseExpired(snap.Now)", "", "internal/reconcile", "TestSweep_EntryChangedSinceListingIsLeftAlone",
		},
		{
			"an ack without a stored entry", "internal/ledger/reply.go",
			"Reply{RetryAfter: minRetryAfter}", "Reply{Ack: true}",
			"internal/ledger", "TestReplyFor_EveryState",
		},
		{
			"the transaction's time instead of the clock's", "db/postgres/migrations/00001_ledger.sql",
			"    RETURN clock_timestamp();", "    RETURN transaction_timestamp();", "db/postgres", "TestLedgerNow_AdvancesInsideATransaction",
		},
		{
			"a replica's clock for the ledger's now", "internal/deliver/delivery.go",
			"now: loaded.Now", "now: started", "internal/simulation", "TestSimulation_NothingSentTwiceOrLost",
		},
		{
			"a fresh key for each attempt", "internal/deliver/call.go",
			"SendKey: e.SendKey,", "SendKey: e.Holder,", "internal/deliver", "TestClaim_ExpiredLeaseIsRepeatedOnlyUnderIdempotentContract",
		},
		{
			"a key by a joined string", "internal/ledger/identity.go",
			"return hexDigest([]byte(id.ReminderID), []byte(id.Type), []byte(id.Channel))",
			`return hexDigest([]byte(strings.Join([]string{id.ReminderID, id.Type, id.Channel}, ":")))`,
			"internal/ledger", "TestIdentity_KeysAndEntryIDsAreUnique",
		},
		{
			"an id in lower case", "internal/ledger/identity.go",
			"return hexDigest([]byte(id.ReminderID), []byte(id.Type)", "return hexDigest([]byte(strings.ToLower(id.ReminderID)), []byte(id.Type)",
			"internal/ledger", "TestIdentity_KeysAndEntryIDsAreUnique",
		},
		{
			"a task on the request's context", "internal/deliver/process_within.go",
			"d.process(context.WithoutCancel(ctx), t)", "d.process(ctx, t)", "internal/deliver", "TestDeliver_BrokerHangUpKeepsTheRecord",
		},
		{
			"GetBody left set", "internal/outbound/client.go",
			"	req.GetBody = nil\n", "", "internal/outbound", "TestDo_ReplayableRequestIsNotReplayed",
		},
		{
			"a timeout taken for a proven failure", "internal/provider/classify.go",
			"	default:\n		o.Result = classOf(x)", "	case x.Status == 0:\n		o.Result = ledger.ResultUnreachable\n	default:\n		o.Result = classOf(x)",
			"internal/provider", "TestClassify_FailureWithoutResponseIsUnknown",
		},
		{
			"a duplicate acked while the first delivery is in flight", "internal/ledger/reply.go",
			"	case e.State == Sending && e.Owner == OwnerBroker:", "	case e.State == Sending && e.Owner == OwnerBroker && false:",
			"internal/ledger", "TestReplyFor_EveryState",
		},
		{
			"a call made after its deadline", "internal/deliver/call.go",
			"	if !d.Clock().Before(deadline) {", "	if !d.Clock().Before(deadline) && false {", "internal/deliver", "TestCall_HolderPastItsDeadlineDoesNotCall",
		},
		{
			"a sweep starved by entries that it cannot process", "internal/reconcile/sweep.go",
			"expiredBatch + s.skip.count()", "expiredBatch", "internal/reconcile", "TestSweep_FailingEntriesDoNotStarveTheRest",
		},
		{
			"an expired lease counted as an attempt", "internal/ledger/decide.go",
			"	e.LeaseExpirations++\n", "	e.LeaseExpirations++\n	e.Attempts++\n", "internal/ledger", "TestExpireLease_IsAnUnknownCallAndCountedApart",
		},
		{
			"a backoff without jitter", "internal/policy/backoff.go",
			"return scale(b.after(n), 1-jitterDown*(1-random))", "return b.after(n)", "internal/policy", "TestWait_JitterSpreadsByAFifthOrMore",
		},
		{
			"a Retry-After that overflows", "internal/outbound/retryafter.go",
			"		if d = d*10 + time.Duration(c-'0')*time.Second; d >= MaxRetryAfter {\n			return MaxRetryAfter\n		}",
			"		d = d*10 + time.Duration(c-'0')*time.Second", "internal/outbound", "TestRetryAfter_ReadsOnlySecondsAndDates",
		},
		{
			"a later delivery's content sent instead of the first's", "internal/deliver/call.go",
			"t.first.Absent() && t.Payload != nil && e.Version == 1", "t.Payload != nil", "internal/deliver", "TestDeliver_RetrySendsFirstContent",
		},
		{
			"a connection held while another is acquired", "db/postgres/store.go",
			"	defer conn.Release()\n	return wrapped(repeated(ctx, func() error { return work(pgsql.New(conn)) }))",
			"	defer conn.Release()\n	second, err := s.conn(ctx)\n	if err != nil {\n		return wrapped(err)\n	}\n	defer second.Release()\n	return wrapped(work(pgsql.New(second)))",
			"db/postgres", "TestStore_WaitForAConnectionIsBounded",
		},
		{
			"versions from a clock instead of a counter", "db/storetest/memory.go",
			"	e.Version++\n", "	e.Version = now.UnixMilli()\n", "db/storetest", "TestMemoryStore_FrozenClock",
		},
		{
			"an entry sent that is older than the memory", "internal/policy/policy.go",
			"e.Published.Before(now.Add(-m.Span))", "e.Published.IsZero()", "internal/policy", "TestAdmit",
		},

		{
			"doubt forgotten at the next attempt", "internal/ledger/settle.go",
			"	case e.InDoubt():\n		return repeatInWindow(e, wait, reason, r, now)\n", "", "internal/ledger", "TestTransitions_WholeMatrixKeepsTheInvariants",
		},
		{
			"doubt dated by the last attempt", "internal/ledger/settle.go",
			"	if !e.InDoubt() {\n		e.DoubtSince = started\n	}", "	e.DoubtSince = started", "internal/ledger", "TestSettle_DoubtIsKeptAndDatedByTheFirstAttempt",
		},
		{
			"doubt dated by the end of the lease", "internal/ledger/decide.go",
			"started := e.ClaimedAt.On(now)", "started := now", "internal/ledger", "TestExpireLease_DoubtIsDatedByTheStartOfTheLease",
		},
		{
			"an expired lease without doubt", "internal/ledger/decide.go",
			"settleUnproven(e, started, ReasonLeaseExpired, 0, r, now)", "schedule(e, 0, ReasonLeaseExpired, r, now)", "internal/ledger", "TestExpireLease_DoubtIsDatedByTheStartOfTheLease",
		},
		{
			"a repeat under another fingerprint", "internal/ledger/rules.go",
			"r.BoundRoute.Fingerprint != e.Fingerprint, r.BoundRoute.Contract.Kind", "r.BoundRoute.Contract.Kind",
			"internal/ledger", "TestTransitions_WholeMatrixKeepsTheInvariants",
		},
		{
			"the same holder token for all tasks", "internal/deliver/delivery.go",
			"facts.Holder = d.Token()", `facts.Holder = "holder"`, "internal/deliver", "TestDeliver_ConcurrentDuplicatesCallOnce",
		},
		{
			"a late outcome settled over another holder", "internal/deliver/call.go",
			" && snap.entry.Holder == a.Holder", "",
			"internal/simulation", "TestSettle_LateHolderDoesNotSettleTheNextAttempt",
		},
		{
			"a call's deadline counted from the end of the read", "internal/deliver/delivery.go",
			"	started := d.Clock()\n	loaded, err := d.Ledger.Load(ctx, id)\n", "	loaded, err := d.Ledger.Load(ctx, id)\n	started := d.Clock()\n",
			"internal/deliver", "TestCall_TimeOfLoadIsNotAddedToDeadline",
		},
		{
			"a cancel that leaves no mark", "internal/ledger/cancel.go",
			"		e.CancelRequested = true\n		return Change{Entry: e, Event: event}", "		return Change{Entry: e, Event: event}",
			"internal/ledger", "TestCancel",
		},
		{
			"a cancel before the first delivery leaves no tombstone", "internal/deliver/cancel.go",
			"stored, err := d.insert(ctx, ledger.Tombstone(id, trigger, snap.now))", "stored, err := ledger.Tombstone(id, trigger, snap.now).Entry, error(nil)",
			"internal/deliver", "TestCancel_BeforeDuringAndAfterSend",
		},
		{
			"proof applied only to unknown entries", "internal/ledger/settle.go",
			"case e.State != Sent,", "case e.State == Unknown,", "internal/ledger", "TestSettleLate_AcceptanceMakesAnyEntrySent",
		},
		{
			"a wait past the window of a repeat", "internal/ledger/settle.go",
			"!now.Add(wait).Before(windowEnd(e, r.BoundRoute.Contract, r.Margin))", "e.Absent()", "internal/ledger", "TestTransitions_WholeMatrixKeepsTheInvariants",
		},

		{
			"'not found' taken for proof", "internal/ledger/lookup.go",
			"r.OnUnknown != Resend || e.CancelRequested", "e.CancelRequested", "internal/ledger", "TestRecordLookup_NotFoundResendsOnlyByPolicy",
		},
		{
			"a cancelled entry resent after 'not found'", "internal/ledger/lookup.go",
			"e.CancelRequested || e.BudgetUsed", "e.BudgetUsed", "internal/ledger", "TestRecordLookup_NotFoundResendsOnlyByPolicy",
		},
		{
			"one lookup result counted twice", "internal/reconcile/lookup.go",
			"case err == nil || lookup.Result != ledger.LookupFound:", "case err == nil:", "internal/reconcile", "TestLookup_ConcurrentReplicasCountOneNotFound",
		},
		{
			"a verdict on a version that the operator did not see", "internal/ledger/resolve.go",
			"case e.Version != res.Version:", "case e.Version < res.Version:", "internal/reconcile", "TestResolve_DecisionOnAnUnseenVersionIsRejected",
		},
		{
			"a decision without its audit event", "db/sqlite/write.go",
			"auditEventParams(*c.Audit)); err != nil {", "auditEventParams(*c.Audit)); false {\n				_ = err", "db/sqlite", "TestSQLiteStore",
		},
		{
			"a bounce that changes the entry's state", "internal/ledger/status.go",
			"	} else if e.Absent() {", "	} else if next.State, next.Class = Dead, ClassRecipient; e.Absent() {", "internal/ledger", "TestRecordStatus_BounceMovesNothing",
		},
		{
			"a new entry trusted after a failover that may have lost its claim", "internal/ledger/failover.go",
			"e.Published.Before(f.Noticed) || undated && t.DeliveryCount", "undated && t.DeliveryCount", "internal/ledger", "TestFailover_PublishedBeforeIsInsertedInDoubt",
		},
		{
			"an early lookup counted", "internal/ledger/lookup.go",
			"if !l.Early {", "if e.LookupsNotFound >= 0 {", "internal/reconcile", "TestStartSweep_RepeatedRunsDoNotReplaceTheSchedule",
		},
		{
			"one provider's status event taken as proof of another's send", "internal/reconcile/operator.go",
			"return belongs, nil", "return belongs || true, nil", "internal/reconcile", "TestRecordStatus_EventOfAnotherProviderProvesNothing",
		},
		{
			"a write over a version number that a failover reused", "db/storetest/memory.go",
			"!c.Entry.Updated.IsZero() && !c.Entry.Updated.Equal(old.Updated)", "false", "internal/reconcile", "TestFailover_EarlierHolderUndoesNoCancel",
		},
		{
			"an entry due before a failover sent without doubt", "internal/ledger/failover.go",
			"return f.happened() && !e.InDoubt()", "return false && !e.InDoubt()", "internal/ledger", "TestFailover_DueBeforeIsInDoubt",
		},
		{
			"a redrive of a dead letter that changed since", "internal/ledger/redrive.go",
			"case e.Version != rr.Version:", "case false:", "internal/ledger", "TestRedriveEntry_EverySkipReason",
		},
		{
			"a redrive of a sent entry", "internal/ledger/redrive.go",
			"	case e.State == Sent:\n		return SkipSent", "	case false:\n		return SkipSent", "internal/redrive", "TestRedrive_TouchesOnlyTheRequestedDeadLetters",
		},
		{
			"a redrive that repeats an item after a crash", "internal/redrive/item.go",
			"event.Origin != ledger.OriginRedrive || event.MessageID != r.ID", "event.MessageID != r.ID || true", "internal/redrive", "TestRedrive_KilledMidBatchContinuesWhereItStopped",
		},
		{
			"a redrive processed by two replicas at once", "internal/redrive/work.go",
			"stored.State == ledger.RedriveRunning && stored.Holder == r.Holder, err", "stored.ID == r.ID, err", "internal/redrive", "TestCancel_StopsTheRestWithinASecond",
		},
		{
			"a dead letter redriven without limit", "internal/ledger/redrive.go",
			"case e.Redrives >= rr.MaxRedrives:", "case false:", "internal/ledger", "TestRedriveEntry_EndsSentOrParked",
		},
		{
			"an idempotency key that starts a redrive each time", "internal/redrive/operator.go",
			"	if req.IdempotencyKey != \"\" {\n		if known", "	if req.IdempotencyKey = rd.Token(); false {\n		if known", "internal/redrive", "TestStart_RepeatedKeyIsOneRedrive",
		},
		{
			"a dead letter from before a failover sent without doubt", "internal/ledger/failover.go",
			"	if !f.happened() || claimedSince {\n		return false", "	if claimedSince || true {\n		return false", "internal/ledger", "TestRedriveEntry_DeadBeforeAFailoverComesBackInDoubt",
		},
		{
			"a broker's dead letter sent at once", "internal/ledger/decide.go",
			"	case t.DeadLettered:\n		return adoptDeadLetter(e, t, f, r)", "", "internal/deliver", "TestDeadLettered_NewEntryIsADeadLetterWithoutCall",
		},
		{
			"an erasure that may still be sent", "internal/ledger/retention.go",
			"	case Sending, Unknown:\n		next.CancelRequested = true", "	case Sending, Unknown:", "internal/retention", "TestErase_RemovesTheUserAndKeepsTheProof",
		},
		{
			"a purge of an entry that may still be sent", "internal/ledger/retention.go",
			"if !e.Final() {\n		return ExpireNothing", "if false {\n		return ExpireNothing", "internal/retention", "TestPurge_FinalEntriesExpireStepByStepAndNothingElse",
		},
		{
			"a deletion of an entry that changed since", "db/sqlite/internal/litesql/ledger.sql.go",
			"AND version = ?4\n    AND updated = ?5", "AND version <> -?4\n    AND updated <> -?5", "db/sqlite", "TestSQLiteStore",
		},
		{
			"a paused provider resumed by a call's outcome", "internal/ledger/gate.go",
			"	if g.Paused {\n		return g, false", "	if false {\n		return g, false", "internal/ledger", "TestGate_NoCallOpensAPausedGate",
		},
		{
			"a pause without its audit event", "db/sqlite/write.go",
			"		return q.AddAuditEvent(ctx, auditEventParams(*audit))", "		_ = q.AddAuditEvent(ctx, auditEventParams(*audit))\n		return nil", "db/sqlite", "TestSQLiteStore",
		},
		{
			"the configured memory taken for the ledger's", "internal/policy/policy.go",
			"case isNew && !m.LowWater.IsZero() &&", "case isNew && false &&", "internal/policy", "TestAdmit",
		},
		{
			"a delivery admitted without the low-water mark", "internal/deliver/delivery.go",
			"		memory.LowWater = snap.lowWater\n", "", "internal/deliver", "TestDeliver_DeletedUnderAShorterMemoryIsNotSentUnderALongerOne",
		},
		{
			"a low-water mark from the date of the first copy", "internal/ledger/retention.go",
			"func (e Entry) LowWater() time.Time { return e.Updated }", "func (e Entry) LowWater() time.Time { return e.Published }", "internal/ledger", "TestLowWater_CoversEveryCopyUntilTheLastWrite",
		},
		{
			"a deletion that leaves no mark, on PostgreSQL", "db/postgres/admin.go",
			"		if err := raiseLowWater(ctx, q, micros(e.LowWater())); err != nil {\n			return err\n		}\n", "", "db/postgres", "TestPostgresStore",
		},
		{
			"a deletion that leaves no mark", "db/sqlite/admin.go",
			"		return raiseLowWater(ctx, q, e.LowWater().UnixMicro())", "		return nil", "db/sqlite", "TestSQLiteStore",
		},
		{
			"a low-water mark lowered by an older entry, on PostgreSQL", "db/postgres/internal/pgsql/ledger.sql.go",
			" AND mark < $1", "", "db/postgres", "TestPostgresStore",
		},
		{
			"a low-water mark lowered by an older entry", "db/sqlite/internal/litesql/ledger.sql.go",
			" AND mark < ?1", "", "db/sqlite", "TestSQLiteStore",
		},
		{
			"a low-water mark read before the entry", "db/postgres/read.go",
			"	if err := s.send(ctx, &reads.batch); err != nil {\n		return ledger.Snapshot{}, err",
			"	queued := reads.batch.QueuedQueries\n	queued[1], queued[2] = queued[2], queued[1]\n	if err := s.send(ctx, &reads.batch); err != nil {\n		return ledger.Snapshot{}, err",
			"db/postgres", "TestStore_LowWaterMarkIsRaisedBeforeADeletionAndReadAfterTheEntry",
		},
		{
			"a connection reused after a response", "internal/outbound/client.go",
			"DisableKeepAlives:      !o.Reuse", "DisableKeepAlives:      false", "internal/provider/webhook", "TestSend_SecondResponseIsNotOutcomeOfNextMessage",
		},
		{
			"a connection switched to another protocol read to its end", "internal/outbound/client.go",
			"if resp.Status == http.StatusSwitchingProtocols {", "if false {", "internal/outbound", "TestDo_ResponseThatNeverEndsEndsWithCall",
		},
		{
			"an encoded recipient kept in a code", "internal/provider/redact.go",
			"	if depth == 0 {", "	if true {", "internal/provider", "TestPoolSend_CodeContainingEncodedRecipientIsDropped",
		},
		{
			"an id of dots in a URL", "internal/relevance/relevance.go",
			"err != nil || leavesPlace(req.URL, check.URL)", "err != nil", "internal/relevance", "TestCheck_IDOfDotsIsNotAskedAbout",
		},
		{
			"claims of a token in any case", "internal/ingest/pubsub/oidc.go",
			"if name != claim && strings.EqualFold(name, claim) {", "if false && strings.EqualFold(name, claim) {", "internal/ingest/pubsub", "TestOIDC_RejectsEverythingElse",
		},
		{
			"another program's schema version taken for the ledger's", "db/postgres/schema.go",
			`versionTable = "sendonce_schema_version"`, `versionTable = "goose_db_version"`, "db/postgres", "TestMigrate_AnotherProgramsVersionIsNotTheLedgers",
		},
		{
			"a ledger that is ready without one of its tables", "db/postgres/schema.go",
			"	return s.complete(ctx)\n", "	return nil\n", "db/postgres", "TestPing_EveryMissingTableIsNamed",
		},
		{
			"a replica that is ready though it can write nothing", "internal/app/readiness.go",
			"	err := r.store.CheckWrite(ctx)", "	var err error", "internal/app", "TestReadiness_TellsWhetherAWriteIsPossibleAndRecovers",
		},
		{
			"a database URL that only serve reads", "internal/app/app.go",
			`	if cfg.Database.Path == "" {
		if err := postgres.Check`, `	if false {
		if err := postgres.Check`, "internal/app", "TestCheck_ReadsTheDatabaseURLAsTheStoreDoes",
		},
		{
			"a label in the environment that stops the gateway", "internal/telemetry/telemetry.go",
			"		o.Logger.Warn(\"telemetry: \" + badResource)", "		return nil, err", "internal/telemetry", "TestStart_InvalidResourceAttributesAreAWarning",
		},
		{
			"an exporter that ignores OTEL_SDK_DISABLED", "internal/config/otlp.go",
			`if endpoint == "" || disabled == "true"`, `if endpoint == ""`, "internal/config", "TestReadOTLP_StandardSwitchesWorkAndWhatIsNotSupportedIsSaid",
		},
		{
			"a session without TLS to any host", "internal/provider/smtp/smtp.go",
			"!c.Insecure && c.Host != \"localhost\"", "false", "internal/provider/smtp", "TestNew_InvalidConfigIsRejected",
		},
		{
			"a source whose token also calls the API", "internal/config/check.go",
			"if other, exists := ofSources[token]; exists {", "if other, exists := ofSources[token]; exists && false {", "internal/config", "TestParse_Refuses",
		},
		{
			"a pooler's error without its cure", "db/postgres/store.go",
			`	return fmt.Errorf("postgres: %w", withCure(err))`, `	return fmt.Errorf("postgres: %w", err)`, "db/postgres", "TestPostgresStore_UnconfiguredPoolerErrorNamesTheCure",
		},
		{
			"a commit that is acknowledged before it is on disk", "db/postgres/session.go",
			"set_config('synchronous_commit', 'on', false)", "set_config('synchronous_commit', 'off', false)", "db/postgres", "TestOpen_SessionDefaultsOfTheDatabaseDoNotApply",
		},
		{
			"two processes on one SQLite file by two names", "db/sqlite/store.go",
			"	if err := lockFile(file); err != nil {\n		return err", "	if lockFile(file); false {\n		return err", "db/sqlite", "TestOpen_SecondProcessByAnotherNameFails",
		},
		{
			"a deferred recipient taken for an outage", "internal/provider/smtp/reply.go",
			"		return ledger.ResultDeferred // about this recipient or this message", "		return ledger.ResultUnreachable", "internal/provider/smtp", "TestSend_OutcomeFollowsFromStepAndReply",
		},
		{
			"a deferral that leaves a gate closed", "internal/ledger/gate.go",
			"ResultRefused, ResultGone, ResultDeferred:", "ResultRefused, ResultGone:", "internal/ledger", "TestGate_OnResult",
		},
		{
			"an item in progress at a cancel left without its result", "db/sqlite/internal/litesql/ledger.sql.go",
			" OR redrives.state = 'cancelled')", ")", "db/sqlite", "TestSQLiteStore",
		},
	}
}
