package config

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// redriveHorizon is how long it must be possible to redrive a dead letter. It is a month, since the cause has to
// be found by operators, who may be away.
const redriveHorizon = 30 * day

// afterRedrive is how much longer the ledger must remember an entry than its dead letter may be redriven: else the
// last copy that a queue delivers would find no entry, and would be sent a second time.
const afterRedrive = 5 * day

// minSecret is the minimum length in bytes of a secret, so that it can't be guessed over a network. 16 random
// letters and digits hold about 95 bits.
const minSecret = 16

// pathFault is a fault without its place in a file.
type pathFault struct{ path, problem string }

// checker checks a whole Config and collects the faults.
type checker struct {
	Config
	faults []pathFault
}

func check(c Config) []pathFault {
	k := &checker{Config: c}
	k.listeners()
	k.database()
	k.times()
	k.retention()
	k.sources()
	k.providers()
	k.channels()
	k.types()
	k.callers()
	return k.faults
}

func (k *checker) fault(path, problem string, args ...any) {
	k.faults = append(k.faults, pathFault{path, fmt.Sprintf(problem, args...)})
}

// within reports a duration outside [low, high], with the bounds.
func (k *checker) within(path string, d, low, high time.Duration) {
	if d < low || d > high {
		k.fault(path, "%s is not between %s and %s", showDuration(d), showDuration(low), showDuration(high))
	}
}

func (k *checker) count(path string, n, low, high int) {
	if n < low || n > high {
		k.fault(path, "%d is not between %d and %d", n, low, high)
	}
}

// nameText is the grammar of a name that is used unescaped in paths, labels and columns; for types and channels
// it is also the grammar of reminders.
var nameText = regexp.MustCompile(`^[a-z][a-z0-9_.-]{0,63}$`)

func (k *checker) name(path, name string) {
	if !nameText.MatchString(name) {
		k.fault(path, "a name is 1 to 64 characters of a-z, 0-9, '_', '.' and '-', and begins with a letter; rename it")
	}
}

func (k *checker) listeners() {
	all := []struct{ key, address string }{{"listen", k.Listen}, {"ops_listen", k.OpsListen}, {"admin_listen", k.AdminListen}}
	for i, one := range all {
		if one.address == "" && one.key == "admin_listen" {
			continue
		}
		host, port, err := splitAddress(one.address)
		if err != nil {
			k.fault(one.key, "is not host:port; write it like 127.0.0.1:8080, or :8080 for every interface")
			continue
		}
		for _, earlier := range all[:i] {
			otherHost, otherPort, err := splitAddress(earlier.address)
			if err == nil && port != 0 && port == otherPort && (host == otherHost || isWildcard(host) || isWildcard(otherHost)) {
				k.fault(one.key, "%s is already used by %s (%s); give each listener its own address",
					one.address, earlier.key, earlier.address)
			}
		}
	}
}

func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	number, err := strconv.ParseUint(text, 10, 16)
	return host, int(number), err
}

func isWildcard(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "" || err == nil && addr.IsUnspecified()
}

// isLoopback reports whether a host is this machine, whatever a resolver returns.
func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

func (k *checker) database() {
	d := k.Database
	switch {
	case d.Path != "" && k.Dev:
	case d.Path != "" && (!strings.HasPrefix(d.Path, "/") || strings.HasSuffix(d.Path, "/") || strings.ContainsAny(d.Path, "?#")):
		k.fault("database.url", "sqlite:// needs the absolute path of a file, without options: sqlite:///var/lib/sendonce/ledger.db")
	case d.Path != "" && d.Pooler:
		k.fault("database.pooler", "does not apply to SQLite; leave it out")
	case d.Path != "":
	case !d.URL.IsSet():
		k.fault("database.url", "is missing; write postgres://… or sqlite:///path")
	case !isPostgresURL(d.URL.Reveal()):
		k.fault("database.url", "is not a postgres://, postgresql:// or sqlite:// URL, or not a valid URL "+
			"(it is not shown; does its password need percent-encoding?)")
	}
	k.count("database.max_conns", d.MaxConns, 1, 1000)
}

// maxLookups is the maximum number of lookups for one send, before it is left to an operator.
const maxLookups = 20

func (k *checker) times() {
	k.within("lease", k.Lease, 2*time.Second, time.Hour)
	k.within("sweep", k.Sweep, 100*time.Millisecond, 10*time.Minute)
	if n := len(k.LookupSchedule); n < 1 || n > maxLookups {
		k.fault("lookup_schedule", "has %d waits; write between 1 and %d, like [10s, 1m, 5m, 15m, 1h]", n, maxLookups)
	}
	for i, wait := range k.LookupSchedule {
		k.within(fmt.Sprintf("lookup_schedule[%d]", i), wait, time.Second, day)
	}
	k.within("failover_window", k.FailoverWindow, 0, 30*day)
	k.within("drain", k.Drain, 0, 10*time.Minute)
	k.within("grace", k.Grace, 0, time.Hour)
	k.within("idle_timeout", k.IdleTimeout, time.Second, time.Hour)
	k.limit("limit", k.Limit)
	switch {
	case k.Memory < k.Retention.Dead+afterRedrive:
		k.fault("memory", "%s is shorter than %s: a dead letter may be redriven for %s (retention.dead), and a reminder that the ledger has forgotten may be sent again",
			showDuration(k.Memory), showDuration(k.Retention.Dead+afterRedrive), showDuration(k.Retention.Dead))
	case k.Memory > 3660*day:
		k.fault("memory", "%s is longer than ten years; personal data must not be kept that long", showDuration(k.Memory))
	}
}

func (k *checker) retention() {
	k.within("retention.sent", k.Retention.Sent, time.Hour, k.Memory)
	k.within("retention.dropped", k.Retention.Dropped, time.Hour, k.Memory)
	if k.Retention.Dead < redriveHorizon {
		k.fault("retention.dead", "%s is shorter than %s: a dead letter needs its payload to be redriven, and operators may be away",
			showDuration(k.Retention.Dead), showDuration(redriveHorizon))
	}
	k.count("redrive.max_redrives", k.Redrive.MaxRedrives, 1, 20)
	k.count("redrive.max_items", k.Redrive.MaxItems, 1, 10_000)
	k.count("redrive.max_running", k.Redrive.MaxRunning, 1, 1000)
}

func (k *checker) limit(path string, bytes int64) {
	if bytes < 1<<10 || bytes > 16<<20 {
		k.fault(path, "%d bytes is not between 1KiB and 16MiB", bytes)
	}
}

func (k *checker) sources() {
	for _, name := range slices.Sorted(maps.Keys(k.Sources)) {
		k.source(join("sources", name), name, k.Sources[name])
	}
}

func (k *checker) source(at, name string, s Source) {
	k.name(at, name)
	if s.Format == "" {
		k.fault(at+".format", "is missing; write %s, %s or %s", FormatPlain, FormatPubSub, FormatStandardWebhooks)
	}
	k.auth(at+".auth", s)
	k.within(at+".takeover_after", s.TakeoverAfter, time.Second, day)
	k.limit(at+".limit", s.Limit)
	switch {
	case s.AnswerWithin < time.Second:
		k.fault(at+".answer_within", "%s leaves no time to send; allow at least 1s", showDuration(s.AnswerWithin))
	case s.AnswerWithin > k.Lease:
		k.fault(at+".answer_within", "%s is longer than the lease of %s, in which every send ends; lower it",
			showDuration(s.AnswerWithin), showDuration(k.Lease))
	}
	switch {
	case s.MaxAge > k.Memory:
		k.fault(at+".max_age", "%s is longer than the memory of %s: a message repeated after that is sent a second time; raise memory",
			showDuration(s.MaxAge), showDuration(k.Memory))
	case s.MaxAge == 0 && s.Format != FormatPubSub && s.Format != "":
		k.fault(at+".max_age", "is missing: format %s has no publish time; "+
			"write how long its sender may keep and repeat a message, such as 7d", s.Format)
	}
}

func (k *checker) auth(at string, s Source) {
	a := s.Auth
	methods := 0
	for _, set := range []bool{a.OIDC != nil, a.Bearer != nil, a.Header != nil, a.StandardWebhooks != nil, a.None} {
		if set {
			methods++
		}
	}
	if methods != 1 {
		k.fault(at, "needs exactly one of oidc, bearer, header, standard_webhooks and none: true; found %d", methods)
		return
	}
	switch {
	case s.Format == FormatStandardWebhooks && a.StandardWebhooks == nil:
		k.fault(at, "format %s is signed; use standard_webhooks: {secrets: […]}", s.Format)
	case s.Format == FormatPubSub && a.StandardWebhooks != nil:
		k.fault(at, "Pub/Sub does not sign with Standard Webhooks; use oidc")
	case a.None:
		if host, _, err := splitAddress(k.Listen); err == nil && !isLoopback(host) {
			k.fault(at+".none", "anybody who can reach listen (%s) could send; authenticate the source or listen on 127.0.0.1", k.Listen)
		}
	case a.OIDC != nil:
		k.oidc(at+".oidc", *a.OIDC)
	case a.Bearer != nil:
		k.secrets(at+".bearer.tokens", a.Bearer)
	case a.Header != nil:
		if !headerName.MatchString(a.Header.Name) {
			k.fault(at+".header.name", "is missing or not a header name")
		}
		k.secrets(at+".header.secrets", a.Header.Secrets)
	case a.StandardWebhooks != nil:
		k.signingSecrets(at+".standard_webhooks.secrets", a.StandardWebhooks)
	}
}

func (k *checker) oidc(at string, o OIDC) {
	if o.Audience == "" {
		k.fault(at+".audience", "is missing: a token for any other service would be accepted; write the audience of the subscription")
	}
	if o.Email == "" {
		k.fault(at+".email", "is missing: anybody can get a token with this audience; write the service account that pushes")
	}
	if problem := urlProblem(o.Issuer, false); problem != "" {
		k.fault(at+".issuer", "%s", problem)
	}
	if o.KeysURL == "" {
		k.fault(at+".keys_url", "is missing: only Google's issuer has a default; write the issuer's jwks_uri")
	} else if problem := urlProblem(o.KeysURL, false); problem != "" {
		k.fault(at+".keys_url", "%s", problem)
	}
}

func (k *checker) secrets(at string, all []Secret) {
	if len(all) == 0 {
		k.fault(at, "is empty; give at least one")
	}
	for i, s := range all {
		if problem := weak(s); problem != "" && (!k.Dev || !s.IsSet()) {
			k.fault(fmt.Sprintf("%s[%d]", at, i), "%s", problem)
		}
	}
}

// weak returns what is wrong with a secret, or "" if nothing is.
func weak(s Secret) string {
	switch n := len(s.Reveal()); {
	case n == 0:
		return "is empty; an empty secret would admit everybody"
	case n < minSecret:
		return fmt.Sprintf("has %d bytes, at least %d are needed; generate one with: openssl rand -hex 32", n, minSecret)
	}
	return ""
}

// signingSecrets checks keys as in https://github.com/standard-webhooks/standard-webhooks, "Signature scheme":
// whsec_ followed by the base64 of 24 to 64 bytes.
func (k *checker) signingSecrets(at string, all []Secret) {
	if len(all) == 0 {
		k.fault(at, "is empty; give at least one")
	}
	for i, s := range all {
		k.signingSecret(fmt.Sprintf("%s[%d]", at, i), s)
	}
}

func (k *checker) signingSecret(at string, s Secret) {
	text, prefixed := strings.CutPrefix(s.Reveal(), "whsec_")
	key, err := base64.StdEncoding.Strict().DecodeString(text)
	if !s.IsSet() {
		k.fault(at, "is empty; an empty secret authenticates nobody")
	} else if !prefixed || err != nil || len(key) < 24 || len(key) > 64 {
		k.fault(at, "must be whsec_ followed by the base64 of 24 to 64 bytes; "+
			`generate one with: echo "whsec_$(openssl rand -base64 32)"`)
	}
}

// sourceSecrets maps the digest of each secret by which a source or a provider's event authenticates to its path.
func (k *checker) sourceSecrets() map[Digest]string {
	paths := map[Digest]string{}
	add := func(at string, all []Secret) {
		for i, s := range all {
			bare := s.Reveal()
			if scheme, token, found := strings.Cut(bare, " "); found && strings.EqualFold(scheme, "bearer") {
				bare = strings.TrimLeft(token, " ")
			}
			paths[DigestOf(bare)] = fmt.Sprintf("%s[%d]", at, i)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(k.Sources)) {
		at, auth := join("sources", name)+".auth", k.Sources[name].Auth
		add(at+".bearer.tokens", auth.Bearer)
		add(at+".standard_webhooks.secrets", auth.StandardWebhooks)
		if auth.Header != nil {
			add(at+".header.secrets", auth.Header.Secrets)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(k.Providers)) {
		add(join("providers", name)+".events.secrets", k.Providers[name].Events)
	}
	return paths
}

func (k *checker) callers() {
	ofSources := k.sourceSecrets()
	names, tokens := map[string]int{}, map[Digest]int{}
	for i, c := range k.Callers {
		at := fmt.Sprintf("callers[%d]", i)
		k.name(at+".name", c.Name)
		if first, exists := names[c.Name]; exists {
			k.fault(at+".name", "%s is also the name of callers[%d]; the audit could not tell them apart", c.Name, first)
		} else {
			names[c.Name] = i
		}
		if c.Role == "" {
			k.fault(at+".role", "is missing; write %s, %s, %s or %s", RoleProducer, RoleSupport, RoleOperator, RoleAdmin)
		}
		if len(c.Tokens) == 0 {
			k.fault(at+".tokens", "is empty; give at least one")
		}
		for j, token := range c.Tokens {
			if other, exists := ofSources[token]; exists {
				k.fault(fmt.Sprintf("%s.tokens[%d]", at, j), "is also %s: who may push could call the API as %s; give each its own",
					other, c.Role)
			}
			if first, exists := tokens[token]; exists {
				k.fault(fmt.Sprintf("%s.tokens[%d]", at, j), "callers[%d] (%s) has the same token; give each caller its own",
					first, k.Callers[first].Name)
			} else {
				tokens[token] = i
			}
		}
	}
}
