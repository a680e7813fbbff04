package config

import (
	"maps"
	"net/mail"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

func (k *checker) providers() {
	for _, name := range slices.Sorted(maps.Keys(k.Providers)) {
		k.provider(join("providers", name), name, k.Providers[name])
	}
}

func (k *checker) provider(at, name string, p Provider) {
	k.name(at, name)
	switch p.Kind {
	case KindWebhook:
		k.webhook(at, p)
	case KindSMTP:
		k.smtp(at, p)
	case KindSandbox:
		if !k.Dev && !k.AllowSandbox {
			k.fault(at+".kind", "a sandbox sends nothing; use another kind, or set allow_sandbox: true at the top level")
		}
	default:
		k.fault(at+".kind", "is missing; write %s, %s or %s", KindWebhook, KindSMTP, KindSandbox)
	}
	if p.Kind != KindWebhook && p.Kind != "" && (p.URL != "" || p.Headers != nil || p.Signing.IsSet() || p.Events != nil) {
		k.fault(at+".kind", "url, headers, signing_secret and events belong to kind webhook only; this is kind %s", p.Kind)
	}
	switch lookup := p.Contract.Lookup; {
	case lookup == "" || p.Kind == KindWebhook:
	case p.Kind == KindSMTP:
		k.fault(at+".contract.lookup", "SMTP has no lookup of a message; leave the contract out")
	case p.Kind == KindSandbox && lookup != LookupItself:
		k.fault(at+".contract.lookup", "a sandbox has no lookup URL; write lookup: %s", LookupItself)
	}
	if p.Kind != KindSMTP && p.Kind != "" && p.SMTP != nil {
		k.fault(at+".smtp", "belongs to kind smtp; this is kind %s", p.Kind)
	}
	k.callTimes(at, p)
	k.count(at+".concurrency", p.Concurrency, 1, 10_000)
}

// callTimes reports settings that would let two holders send at once, or cut off a call.
func (k *checker) callTimes(at string, p Provider) {
	margin := k.Margin()
	switch {
	case p.Timeout < 100*time.Millisecond:
		k.fault(at+".timeout", "%s is too short for a call; allow at least 100ms", showDuration(p.Timeout))
	case p.Timeout+margin >= k.Lease:
		k.fault(at+".timeout", "%s and the margin of %s do not fit into the lease of %s: another holder could send "+
			"while this call is still in flight; lower the timeout or raise lease",
			showDuration(p.Timeout), showDuration(margin), showDuration(k.Lease))
	case p.Timeout > k.Grace:
		k.fault(at+".timeout", "%s is longer than the grace of %s: a shutdown would cut the call off and leave its outcome "+
			"unknown; lower the timeout or raise grace", showDuration(p.Timeout), showDuration(k.Grace))
	}
	if window := p.Contract.Idempotent; window > 0 && window <= margin {
		k.fault(at+".contract.idempotent", "a window of %s has no room for a retry: its last %s are the margin; "+
			"if the provider keeps keys no longer, write blind: true", showDuration(window), showDuration(margin))
	}
}

// headerName is a token of RFC 9110, section 5.6.2.
var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")

// ownHeaders are set by the sender; setting them would break a contract, or the request. Idempotency-Key would
// make net/http repeat a request by itself.
var ownHeaders = []string{
	"connection", "content-encoding", "content-length", "content-type", "host", "idempotency-key", "te", "trailer",
	"transfer-encoding", "upgrade", "webhook-id", "webhook-signature", "webhook-timestamp", "x-idempotency-key",
}

func (k *checker) webhook(at string, p Provider) {
	if p.URL == "" {
		k.fault(at+".url", "is missing")
	} else if problem := urlProblem(p.URL, p.Insecure); problem != "" {
		k.fault(at+".url", "%s", problem)
	}
	if p.Contract.Lookup != "" {
		if problem := urlProblem(p.Contract.Lookup, p.Insecure); problem != "" {
			k.fault(at+".contract.lookup", "%s", problem)
		}
	}
	k.headers(at+".headers", p.Headers)
	if p.Signing != (Secret{}) {
		k.signingSecret(at+".signing_secret", p.Signing)
	}
	if p.Events != nil {
		k.signingSecrets(at+".events.secrets", p.Events)
	}
}

func (k *checker) headers(at string, headers map[string]Secret) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		switch lower := strings.ToLower(name); {
		case !headerName.MatchString(name):
			k.fault(join(at, name), "is not a header name")
		case slices.Contains(ownHeaders, lower):
			k.fault(join(at, name), "is set by sendonce itself; leave it out")
		case !headers[name].IsSet():
			k.fault(join(at, name), "is empty; give it a value or leave it out")
		}
	}
}

func (k *checker) smtp(at string, p Provider) {
	if p.Contract.Idempotent > 0 {
		k.fault(at+".contract", "SMTP does not recognise a repeat; leave the contract out")
	}
	if p.SMTP == nil {
		k.fault(at+".smtp", "is missing; write at least host and from")
		return
	}
	at, m := at+".smtp", *p.SMTP
	if m.Host == "" || strings.ContainsAny(m.Host, ":/@ ") && !isLoopback(m.Host) {
		k.fault(at+".host", "is missing, or more than a host; write the port as port")
	}
	k.count(at+".port", m.Port, 1, 65535)
	if m.TLS == TLSNone && !isLoopback(m.Host) && !p.Insecure {
		k.fault(at+".tls", "none would send recipients and contents unencrypted to another host; "+
			"use starttls or implicit, or set insecure: true for the provider")
	}
	if (m.Username == "") != !m.Password.IsSet() {
		k.fault(at+".password", "set username and password together or not at all")
	}
	if _, err := mail.ParseAddress(m.From); err != nil {
		k.fault(at+".from", "is missing or not a mail address; write it like 'Reminders <reminders@example.org>'")
	}
	if strings.ContainsAny(m.Helo, " <>@") {
		k.fault(at+".helo", "is not a host name")
	}
}

func (k *checker) channels() {
	if len(k.Channels) == 0 {
		k.fault("channels", "is empty: nothing could be sent; name a channel and its provider")
	}
	for _, name := range slices.Sorted(maps.Keys(k.Channels)) {
		at := join("channels", name)
		k.name(at, name)
		if k.Channels[name].Provider == "" {
			k.fault(at+".provider", "is missing; write one of: %s", keysOf(k.Providers))
		}
	}
}

func keysOf[T any](all map[string]T) string {
	if len(all) == 0 {
		return "(none is configured)"
	}
	return strings.Join(slices.Sorted(maps.Keys(all)), ", ")
}

func (k *checker) types() {
	if _, ok := k.Types[DefaultType]; !ok {
		k.fault("types."+DefaultType, "is missing: it applies to every type that is not named here; write default: {} for the built-in defaults")
	}
	for _, name := range slices.Sorted(maps.Keys(k.Types)) {
		at, t := join("types", name), k.Types[name]
		k.name(at, name)
		k.count(at+".max_attempts", t.MaxAttempts, 1, 100)
		k.within(at+".backoff.base", t.Backoff.Base, 10*time.Millisecond, day)
		if t.Backoff.Cap < t.Backoff.Base || t.Backoff.Cap > 7*day {
			k.fault(at+".backoff.cap", "%s is not between base (%s) and 7d", showDuration(t.Backoff.Cap), showDuration(t.Backoff.Base))
		}
		switch {
		case t.Deadline < time.Second:
			k.fault(at+".deadline", "%s leaves no time to send; allow at least 1s", showDuration(t.Deadline))
		case t.Deadline > k.Memory:
			k.fault(at+".deadline", "%s is longer than the memory of %s: a reminder could be forgotten while it may still be sent; raise memory",
				showDuration(t.Deadline), showDuration(k.Memory))
		}
		if t.Relevance != nil {
			k.relevance(at+".relevance", *t.Relevance)
		}
	}
}

var placeholder = regexp.MustCompile(`\{(reservation_id|reminder_id|type|channel)\}`)

func (k *checker) relevance(at string, r Relevance) {
	k.within(at+".timeout", r.Timeout, 10*time.Millisecond, 30*time.Second)
	k.headers(at+".headers", r.Headers)
	filled := placeholder.ReplaceAllString(r.URL, "x")
	u, err := url.Parse(filled)
	switch problem := urlProblem(filled, r.Insecure); {
	case r.URL == "":
		k.fault(at+".url", "is missing")
	case strings.ContainsAny(filled, "{}"):
		k.fault(at+".url", "the only placeholders are {reservation_id}, {reminder_id}, {type} and {channel}")
	case !strings.Contains(r.URL, "{reservation_id}") && !strings.Contains(r.URL, "{reminder_id}"):
		k.fault(at+".url", "names no reminder; put {reservation_id} or {reminder_id} into it")
	case problem != "":
		k.fault(at+".url", "%s", problem)
	case err != nil || !strings.HasPrefix(r.URL, u.Scheme+"://"+u.Host):
		k.fault(at+".url", "a placeholder is allowed in the path and the query only, not in the host")
	}
}

// urlProblem returns what is wrong with the URL of a peer, without showing it, or "" if nothing is.
func urlProblem(text string, insecure bool) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || u.Opaque != "":
		return "is not an absolute URL; write it like https://mail.example.org/send"
	case u.User != nil:
		return "contains a user name or password; put it into a header instead"
	case u.Fragment != "":
		return "has a fragment (#), which is never sent; remove it"
	case u.Scheme == "https":
		return ""
	case u.Scheme != "http":
		return "must begin with https://"
	case !insecure && !isLoopback(u.Hostname()):
		return "plain http:// sends recipients and contents unencrypted to another host; use https://, or set insecure: true beside it"
	}
	return ""
}

// isPostgresURL accepts only a URL that every parser splits in the same way: some cut a password at an unescaped
// '@', '/' or '?', and show the rest of it in errors as a host or a database.
func isPostgresURL(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || u.Opaque != "" || u.Fragment != "" {
		return false
	}
	ats := strings.Count(text, "@")
	return ats == 0 || ats == 1 && u.User != nil
}
