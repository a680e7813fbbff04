package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const token = "0123456789abcdef"

// with returns minimal with more lines; a top-level key that is given replaces the one in minimal.
func with(lines string) []byte {
	kept := lines
	for _, line := range strings.SplitAfter(strings.Replace(minimal, "providers:\n  mail", "providers: {mail", 1), "\n") {
		line = strings.Replace(line, `/send"}`, `/send"}}`, 1)
		key, _, _ := strings.Cut(line, ":")
		if !strings.HasPrefix(lines, key+":") && !strings.Contains(lines, "\n"+key+":") {
			kept += line
		}
	}
	return []byte(kept)
}

func source(settings string) string { return "sources: {s: {" + settings + "}}\n" }

func provider(settings string) string {
	return "providers: {mail: {kind: webhook, url: https://mail.example.org/send, " + settings + "}}\n"
}

func smtp(settings string) string {
	return "providers: {mail: {kind: smtp, smtp: {from: a@example.org, " + settings + "}}}\n"
}

func relevance(url string) string {
	return `types: {default: {relevance: {url: "` + url + `"}}}` + "\n"
}

func TestParse_Refuses(t *testing.T) {
	open, bearer := "auth: {none: true}", "auth: {bearer: {tokens: ["+token+"]}}"
	for name, c := range map[string]struct {
		lines string
		path  string
		says  []string // words in the message
	}{
		"a call that outlives its lease":                  {"lease: 30s\n" + provider("timeout: 60s"), "providers.mail.timeout", []string{"1m", "30s"}},
		"a call that fits only without the margin":        {"lease: 30s\n" + provider("timeout: 27s"), "providers.mail.timeout", []string{"27s", "3s", "30s"}},
		"a short lease has a margin of a second":          {"lease: 5s\n" + provider("timeout: 4s"), "providers.mail.timeout", []string{"4s", "1s", "5s"}},
		"a call that a shutdown cuts off":                 {"lease: 2m\n" + provider("timeout: 1m"), "providers.mail.timeout", []string{"1m", "25s", "grace"}},
		"an infinite duration":                            {provider("timeout: .inf"), "providers.mail.timeout", []string{".inf", "30s"}},
		"not a number":                                    {provider("concurrency: .nan"), "providers.mail.concurrency", []string{".nan", "whole number"}},
		"a caller with a source's token":                  {"callers: [{name: a, role: admin, tokens: [" + token + "]}]\n" + source("format: plain, max_age: 1d, "+bearer), "callers[0].tokens[0]", []string{"sources.s.auth.bearer.tokens[0]", "its own"}},
		"a caller with a source's token in a header":      {"callers: [{name: a, role: admin, tokens: [" + token + "]}]\n" + source("format: plain, max_age: 1d, auth: {header: {name: X-Token, secrets: ["+token+"]}}"), "callers[0].tokens[0]", []string{"sources.s.auth.header"}},
		"a caller with a source's bearer token as header": {"callers: [{name: a, role: admin, tokens: [" + token + "]}]\n" + source("format: plain, max_age: 1d, auth: {header: {name: Authorization, secrets: [Bearer "+token+"]}}"), "callers[0].tokens[0]", []string{"sources.s.auth.header"}},
		"a call without time":                             {provider("timeout: 0s"), "providers.mail.timeout", []string{"0s"}},
		"a window without a retry":                        {provider("contract: {idempotent: 3s}"), "providers.mail.contract.idempotent", []string{"3s", "margin"}},
		"two contracts":                                   {provider("contract: {idempotent: 1h, blind: true}"), "providers.mail.contract", []string{"exactly one"}},
		"a contract that is not blind":                    {provider("contract: {blind: false}"), "providers.mail.contract.blind", []string{"true"}},
		"no webhook URL":                                  {"providers: {mail: {kind: webhook}}\n", "providers.mail.url", []string{"missing"}},
		"plain text to another host":                      {"providers: {mail: {kind: webhook, url: http://mail.example.org/}}\n", "providers.mail.url", []string{"http://", "insecure"}},
		"a password in a URL":                             {"providers: {mail: {kind: webhook, url: https://u:p@mail.example.org/}}\n", "providers.mail.url", []string{"header"}},
		"a lookup in plain text":                          {provider("contract: {lookup: http://mail.example.org/}"), "providers.mail.contract.lookup", []string{"insecure"}},
		"a header that net/http would act on":             {provider("headers: {idempotency-KEY: x}"), "providers.mail.headers.idempotency-KEY", []string{"itself"}},
		"an invalid header name":                          {provider(`headers: {"X Y": x}`), "providers.mail.headers.X Y", []string{"not a header name"}},
		"an empty header":                                 {provider(`headers: {X-Key: ""}`), "providers.mail.headers.X-Key", []string{"empty"}},
		"a header with a line break":                      {provider(`headers: {X-Key: "a\r\nb"}`), "providers.mail.headers.X-Key", []string{"line break"}},
		"an invalid signing secret of a webhook":          {provider("signing_secret: " + token), "providers.mail.signing_secret", []string{"whsec_"}},
		"an empty signing secret of a webhook":            {provider(`signing_secret: ""`), "providers.mail.signing_secret", []string{"empty"}},
		"events without a secret":                         {provider("events: {secrets: []}"), "providers.mail.events.secrets", []string{"at least one"}},
		"events without secrets":                          {provider("events: {}"), "providers.mail.events.secrets", []string{"at least one"}},
		"an empty secret of events":                       {provider(`events: {secrets: [""]}`), "providers.mail.events.secrets[0]", []string{"empty"}},
		"a short secret of events beside a good one":      {provider("events: {secrets: [" + signing + ", whsec_dGlueQ==]}"), "providers.mail.events.secrets[1]", []string{"whsec_", "24"}},
		"an invalid secret of events":                     {provider("events: {secrets: [" + token + "]}"), "providers.mail.events.secrets[0]", []string{"whsec_"}},
		"a secret of events that is not canonical base64": {provider("events: {secrets: [whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyB=]}"), "providers.mail.events.secrets[0]", []string{"whsec_"}},
		"a secret of events that is not a list":           {provider("events: {secrets: " + signing + "}"), "providers.mail.events.secrets", []string{"list"}},
		"events as a list":                                {provider("events: [" + signing + "]"), "providers.mail.events", []string{"key: value"}},
		"events of a sandbox":                             {"allow_sandbox: true\nproviders: {mail: {kind: sandbox, events: {secrets: [" + signing + "]}}}\n", "providers.mail.kind", []string{"events", "webhook only"}},
		"events of a relay":                               {"providers: {mail: {kind: smtp, smtp: {host: relay, from: a@example.org}, events: {secrets: []}}}\n", "providers.mail.kind", []string{"events", "webhook only"}},
		"a lookup of a relay":                             {"providers: {mail: {kind: smtp, smtp: {host: relay, from: a@example.org}, contract: {lookup: https://relay.example.org}}}\n", "providers.mail.contract.lookup", []string{"SMTP"}},
		"a lookup URL for a sandbox":                      {"allow_sandbox: true\nproviders: {mail: {kind: sandbox, contract: {lookup: https://x.example.org}}}\n", "providers.mail.contract.lookup", []string{"itself"}},
		"a webhook with lookup: itself":                   {provider("contract: {lookup: itself}"), "providers.mail.contract.lookup", []string{"absolute URL"}},
		"no concurrency":                                  {provider("concurrency: 0"), "providers.mail.concurrency", []string{"0", "1"}},
		"a rate of zero":                                  {provider("rate: 0/s"), "providers.mail.rate", []string{"nothing"}},
		"a rate without a unit":                           {provider("rate: 50"), "providers.mail.rate", []string{"50/s"}},
		"a provider of no kind":                           {"providers: {mail: {url: https://mail.example.org}}\n", "providers.mail.kind", []string{"webhook"}},
		"a sandbox without allow_sandbox":                 {"providers: {mail: {kind: sandbox}}\n", "providers.mail.kind", []string{"allow_sandbox"}},
		"a sandbox with a URL":                            {"allow_sandbox: true\nproviders: {mail: {kind: sandbox, url: https://x.example.org}}\n", "providers.mail.kind", []string{"webhook only"}},
		"smtp settings at a webhook":                      {provider("smtp: {host: x, from: a@example.org}"), "providers.mail.smtp", []string{"webhook"}},
		"no smtp settings":                                {"providers: {mail: {kind: smtp}}\n", "providers.mail.smtp", []string{"host"}},
		"an idempotent relay":                             {"providers: {mail: {kind: smtp, smtp: {host: relay, from: a@example.org}, contract: {idempotent: 1h}}}\n", "providers.mail.contract", []string{"SMTP"}},
		"a relay without a host":                          {smtp("port: 25"), "providers.mail.smtp.host", []string{"host"}},
		"a relay whose host has a port":                   {smtp(`host: "relay:25"`), "providers.mail.smtp.host", []string{"port"}},
		"a relay on no port":                              {smtp("host: relay, port: 70000"), "providers.mail.smtp.port", []string{"70000"}},
		"a relay in plain text":                           {smtp("host: relay.example.org, tls: none"), "providers.mail.smtp.tls", []string{"insecure"}},
		"a user without a password":                       {smtp("host: relay.example.org, username: u"), "providers.mail.smtp.password", []string{"together"}},
		"a sender that is not an address":                 {"providers: {mail: {kind: smtp, smtp: {host: relay, from: nobody}}}\n", "providers.mail.smtp.from", []string{"address"}},
		"an open source on every interface":               {"listen: :8080\n" + source("format: pubsub, "+open), "sources.s.auth.none", []string{":8080", "listen"}},
		"an open source on a host name":                   {"listen: example.org:8080\n" + source("format: pubsub, "+open), "sources.s.auth.none", []string{"example.org"}},
		"a source without authentication":                 {source("format: pubsub"), "sources.s.auth", []string{"found 0"}},
		"a source with two kinds of authentication":       {source("format: pubsub, auth: {none: true, bearer: {tokens: [" + token + "]}}"), "sources.s.auth", []string{"found 2"}},
		"auth: none as a string":                          {source("format: pubsub, auth: none"), "sources.s.auth", []string{"key: value"}},
		"a source without a format":                       {source(bearer), "sources.s.format", []string{"pubsub"}},
		"an empty token":                                  {source(`format: pubsub, auth: {bearer: {tokens: [""]}}`), "sources.s.auth.bearer.tokens[0]", []string{"empty"}},
		"a short token beside a good one":                 {source("format: pubsub, auth: {bearer: {tokens: [" + token + ", tiny]}}"), "sources.s.auth.bearer.tokens[1]", []string{"4 bytes", "16"}},
		"no token":                                        {source("format: pubsub, auth: {bearer: {tokens: []}}"), "sources.s.auth.bearer.tokens", []string{"at least one"}},
		"a token that is not a list":                      {source("format: pubsub, auth: {bearer: {tokens: " + token + "}}"), "sources.s.auth.bearer.tokens", []string{"list"}},
		"a header without a name":                         {source("format: pubsub, auth: {header: {secrets: [" + token + "]}}"), "sources.s.auth.header.name", []string{"name"}},
		"a header without secrets":                        {source("format: pubsub, auth: {header: {name: X-Key}}"), "sources.s.auth.header.secrets", []string{"at least one"}},
		"an invalid signing secret":                       {source("format: plain, max_age: 1d, auth: {standard_webhooks: {secrets: [" + token + "]}}"), "sources.s.auth.standard_webhooks.secrets[0]", []string{"whsec_"}},
		"an empty signing secret":                         {source(`format: plain, max_age: 1d, auth: {standard_webhooks: {secrets: [""]}}`), "sources.s.auth.standard_webhooks.secrets[0]", []string{"empty"}},
		"a signed format that is not checked":             {source("format: standard-webhooks, max_age: 1d, " + bearer), "sources.s.auth", []string{"standard_webhooks"}},
		"Pub/Sub with a signature":                        {source("format: pubsub, auth: {standard_webhooks: {secrets: [" + signing + "]}}"), "sources.s.auth", []string{"oidc"}},
		"OIDC without an audience":                        {source("format: pubsub, auth: {oidc: {email: a@example.org}}"), "sources.s.auth.oidc.audience", []string{"audience"}},
		"OIDC without an email":                           {source("format: pubsub, auth: {oidc: {audience: x}}"), "sources.s.auth.oidc.email", []string{"anybody"}},
		"an issuer without keys_url":                      {source("format: pubsub, auth: {oidc: {audience: x, email: a@b, issuer: https://id.example.org}}"), "sources.s.auth.oidc.keys_url", []string{"jwks_uri"}},
		"keys in plain text":                              {source("format: pubsub, auth: {oidc: {audience: x, email: a@b, keys_url: http://id.example.org}}"), "sources.s.auth.oidc.keys_url", []string{"https"}},
		"no max_age (plain)":                              {source("format: plain, " + bearer), "sources.s.max_age", []string{"plain", "7d"}},
		"no max_age (standard-webhooks)":                  {source("format: standard-webhooks, auth: {standard_webhooks: {secrets: [" + signing + "]}}"), "sources.s.max_age", []string{"standard-webhooks"}},
		"a max_age longer than memory":                    {"memory: 40d\n" + source("format: plain, max_age: 41d, "+bearer), "sources.s.max_age", []string{"41d", "40d"}},
		"an answer_within longer than the lease":          {source("format: pubsub, answer_within: 31s, " + bearer), "sources.s.answer_within", []string{"31s", "30s"}},
		"an answer_within of zero":                        {source("format: pubsub, answer_within: 0s, " + bearer), "sources.s.answer_within", []string{"1s"}},
		"a takeover_after of zero":                        {source("format: pubsub, takeover_after: 0s, " + bearer), "sources.s.takeover_after", []string{"0s", "1s"}},
		"a limit of zero":                                 {source("format: pubsub, limit: 0B, " + bearer), "sources.s.limit", []string{"1KiB"}},
		"a limit without a unit":                          {"limit: 262144\n", "limit", []string{"256KiB"}},
		"a limit beyond bounds":                           {"limit: 1000MiB\n", "limit", []string{"16MiB"}},
		"a memory shorter than a redrive":                 {"memory: 34d\n", "memory", []string{"34d", "35d", "30d"}},
		"a memory that is too long":                       {"memory: 4000d\n", "memory", []string{"4000d"}},
		"a channel with an unknown provider":              {"channels: {email: {provider: post}}\n", "channels.email.provider", []string{`"post"`, "mail"}},
		"a channel without a provider":                    {"channels: {email: {}}\n", "channels.email.provider", []string{"mail"}},
		"no channel":                                      {"channels: {}\n", "channels", []string{"nothing"}},
		"no default type":                                 {"types: {other: {}}\n", "types.default", []string{"missing"}},
		"a deadline longer than memory":                   {"memory: 40d\ntypes: {default: {deadline: 41d}}\n", "types.default.deadline", []string{"41d", "40d"}},
		"a deadline of zero":                              {"types: {default: {deadline: 0s}}\n", "types.default.deadline", []string{"1s"}},
		"no attempt":                                      {"types: {default: {max_attempts: 0}}\n", "types.default.max_attempts", []string{"0"}},
		"negative attempts":                               {"types: {default: {max_attempts: -1}}\n", "types.default.max_attempts", []string{"-1"}},
		"a backoff of zero":                               {"types: {default: {backoff: {base: 0s}}}\n", "types.default.backoff.base", []string{"0s"}},
		"a cap below its base":                            {"types: {default: {backoff: {base: 1h, cap: 1m}}}\n", "types.default.backoff.cap", []string{"1m", "1h"}},
		"an unknown choice for unknown":                   {"types: {default: {on_unknown: retry}}\n", "types.default.on_unknown", []string{"hold"}},
		"a relevance URL without a placeholder":           {relevance("https://r.example.org/relevant"), "types.default.relevance.url", []string{"{reservation_id}"}},
		"a question with an unknown placeholder":          {relevance("https://r.example.org/{reservation_id}/{user}"), "types.default.relevance.url", []string{"only placeholders"}},
		"a question whose host is chosen outside":         {relevance("https://{reservation_id}.example.org/"), "types.default.relevance.url", []string{"host"}},
		"a question that a type could answer":             {relevance("https://r.example.org/{type}"), "types.default.relevance.url", []string{"{reservation_id}"}},
		"a question in plain text":                        {relevance("http://r.example.org/{reminder_id}"), "types.default.relevance.url", []string{"insecure"}},
		"a caller without a role":                         {"callers: [{name: a, tokens: [" + token + "]}]\n", "callers[0].role", []string{"producer"}},
		"a caller without a token":                        {"callers: [{name: a, role: admin}]\n", "callers[0].tokens", []string{"at least one"}},
		"a caller with an empty token":                    {`callers: [{name: a, role: admin, tokens: [""]}]` + "\n", "callers[0].tokens[0]", []string{"empty"}},
		"a caller with a short token":                     {"callers: [{name: a, role: admin, tokens: [dev-admin]}]\n", "callers[0].tokens[0]", []string{"9 bytes"}},
		"a digest that is none":                           {`callers: [{name: a, role: admin, tokens: ["sha256:00"]}]` + "\n", "callers[0].tokens[0]", []string{"64 hex"}},
		"two callers of one name":                         {"callers: [{name: a, role: admin, tokens: [" + token + "1]}, {name: a, role: support, tokens: [" + token + "2]}]\n", "callers[1].name", []string{"callers[0]"}},
		"two callers with one token":                      {"callers: [{name: a, role: admin, tokens: [" + token + "]}, {name: b, role: support, tokens: [" + token + "]}]\n", "callers[1].tokens[0]", []string{"callers[0]", "(a)"}},
		"one token, plain and as its digest": {
			"callers: [{name: a, role: admin, tokens: [" + token + `]}, {name: b, role: support, tokens: ["sha256:9f9f5111f7b27a781f1f1ddde5ebc2dd2b796bfc7365c9c28b548e564176929f"]}]` + "\n",
			"callers[1].tokens[0]",
			[]string{"(a)"},
		},
		"two listeners at one address":           {"listen: 127.0.0.1:9090\n", "ops_listen", []string{"127.0.0.1:9090", "listen"}},
		"two listeners at one port":              {"listen: :9090\n", "ops_listen", []string{":9090", "127.0.0.1:9090"}},
		"the admin listener beside the others":   {"admin_listen: 127.0.0.1:9090\n", "admin_listen", []string{"ops_listen"}},
		"an address without a port":              {"listen: 127.0.0.1\n", "listen", []string{"host:port"}},
		"an address with a named port":           {"listen: 127.0.0.1:http\n", "listen", []string{"host:port"}},
		"a relative database":                    {`database: {url: "sqlite://ledger.db"}` + "\n", "database.url", []string{"absolute"}},
		"a password with a plain @":              {`database: {url: "postgres://u:p@q@db/x"}` + "\n", "database.url", []string{"percent-encoding"}},
		"a password with a plain /":              {`database: {url: "postgres://u:12/p@db/x"}` + "\n", "database.url", []string{"percent-encoding"}},
		"a password with a plain ?":              {`database: {url: "postgres://u:12?p@db/x"}` + "\n", "database.url", []string{"percent-encoding"}},
		"a password with a plain #":              {`database: {url: "postgres://u:12#p@db/x"}` + "\n", "database.url", []string{"percent-encoding"}},
		"a database with options":                {`database: {url: "sqlite:///a.db?mode=memory"}` + "\n", "database.url", []string{"options"}},
		"another database":                       {`database: {url: "mysql://db/x"}` + "\n", "database.url", []string{"postgres://"}},
		"no database":                            {"database: {}\n", "database.url", []string{"missing"}},
		"a pooler with SQLite":                   {`database: {url: "sqlite:///a.db", pooler: true}` + "\n", "database.pooler", []string{"SQLite"}},
		"no connection":                          {`database: {url: "sqlite:///a.db", max_conns: 0}` + "\n", "database.max_conns", []string{"0"}},
		"a lease that is too long":               {"lease: 2h\n", "lease", []string{"2h", "1h"}},
		"no lookup":                              {"lookup_schedule: []\n", "lookup_schedule", []string{"0 waits"}},
		"a lookup without a wait":                {"lookup_schedule: [10s, 0s]\n", "lookup_schedule[1]", []string{"0s"}},
		"a wait that is not a duration":          {"lookup_schedule: [soon]\n", "lookup_schedule[0]", []string{"soon"}},
		"a window that is too long":              {"failover_window: 400d\n", "failover_window", []string{"400d"}},
		"a sweep of zero":                        {"sweep: 0s\n", "sweep", []string{"0s"}},
		"an unknown level":                       {"log: {level: warn+2}\n", "log.level", []string{"warn"}},
		"a cut-over that is not a time":          {"accept_since: yesterday\n", "accept_since", []string{"2031"}},
		"a name with a slash":                    {"channels: {a/b: {provider: mail}}\n", "channels.a/b", []string{"rename"}},
		"an unknown key deep inside":             {"types: {default: {backoff: {bsae: 1s}}}\n", "types.default.backoff.bsae", []string{"did you mean base?"}},
		"an unknown key that is like none":       {"types: {default: {backoff: {pause: 1s}}}\n", "types.default.backoff.pause", []string{"base, cap"}},
		"a misspelt key that is needed":          {source("fromat: plain, max_age: 1d, auth: {none: true}"), "sources.s.fromat", []string{"did you mean format?"}},
		"a misspelling of a setting that is set": {"lease: 30s\nleasse: 30s\n", "leasse", []string{"known here"}},
		"dead letters that cannot be redriven":   {"retention: {dead: 29d}\n", "retention.dead", []string{"29d", "30d"}},
		"a memory shorter than dead letters":     {"memory: 100d\nretention: {dead: 96d}\n", "memory", []string{"100d", "101d", "96d"}},
		"payloads kept longer than memory":       {"memory: 40d\nretention: {sent: 41d}\n", "retention.sent", []string{"41d", "40d"}},
		"too many redrives":                      {"redrive: {max_redrives: 21}\n", "redrive.max_redrives", []string{"21", "20"}},
		"a redrive that is too large":            {"redrive: {max_items: 10001}\n", "redrive.max_items", []string{"10001", "10000"}},
		"an anchor":                              {"types: {default: &x {}}\n", "types.default", []string{"anchor"}},
		"a merge key":                            {"types: {default: {<<: {deadline: 1h}}}\n", "types.default.<<", []string{"merge"}},
		"a key without a value":                  {"lease:\n", "lease", []string{"nothing"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(with(c.lines), environment())
			faults, _ := err.(Faults)
			if len(faults) != 1 {
				t.Fatalf("want one fault at %s, got:\n%v", c.path, err)
			}
			if faults[0].Path != c.path || faults[0].Line == 0 && strings.HasPrefix(c.lines, c.path+":") {
				t.Errorf("reported at %q, line %d, want %q", faults[0].Path, faults[0].Line, c.path)
			}
			for _, word := range c.says {
				if !strings.Contains(faults[0].Problem, word) {
					t.Errorf("%q does not contain %q", faults[0].Problem, word)
				}
			}
		})
	}
}

// TestParse_TypoIsOneFault covers typos at every depth, and settings that seem to be missing because of them.
func TestParse_TypoIsOneFault(t *testing.T) {
	_, err := Parse([]byte(`databse: {ulr: "sqlite:///a.db", pool: true}
providres: {mail: {kind: webhook, url: "https://mail.example.org/", timeuot: 60s}}
chanels: {email: {provder: mail}}
types: {default: {}}
`), environment())
	want := []string{
		"config:1: database.pool: unknown setting; known here: max_conns, pooler, url",
		"config:1: database.ulr: unknown setting; did you mean url?",
		"config:1: databse: unknown setting; did you mean database?",
		"config:2: providers.mail.timeout: 1m and the margin of 3s do not fit into the lease of 30s",
		"config:2: providers.mail.timeuot: unknown setting; did you mean timeout?",
		"config:2: providres: unknown setting; did you mean providers?",
		"config:3: chanels: unknown setting; did you mean channels?",
		"config:3: channels.email.provder: unknown setting; did you mean provider?",
	}
	faults, _ := err.(Faults)
	if len(faults) != len(want) {
		t.Fatalf("want %d faults, got:\n%v", len(want), err)
	}
	for i := range want {
		if got := faults[i].String(); !strings.HasPrefix(got, want[i]) {
			t.Errorf("got %q, want %q", got, want[i])
		}
	}
}

func TestParse_AcceptsValuesJustInsideTheBounds(t *testing.T) {
	for name, lines := range map[string]string{
		"a call that fits into its lease":                "lease: 30s\ngrace: 30s\n" + provider("timeout: 26999ms"),
		"a memory that covers a redrive":                 "memory: 35d\n" + source("format: plain, max_age: 35d, auth: {none: true}"),
		"a window with room for a retry":                 provider("contract: {idempotent: 3001ms}"),
		"an open source on loopback":                     "listen: '[::1]:8080'\n" + source("format: pubsub, auth: {none: true}"),
		"plain text with insecure":                       "providers: {mail: {kind: webhook, url: http://mail.internal/, insecure: true}}\n",
		"plain text to this machine":                     "providers: {mail: {kind: webhook, url: http://localhost:8025/}}\n",
		"a sandbox with allow_sandbox":                   "allow_sandbox: true\nproviders: {mail: {kind: sandbox, contract: {idempotent: 1h}}}\n",
		"a lease shorter than the default answer_within": "lease: 5s\n" + provider("timeout: 2s") + source("format: pubsub, auth: {none: true}"),
		"addresses that the system chooses":              "listen: 127.0.0.1:0\nops_listen: 127.0.0.1:0\n",
		"one port on two interfaces":                     "listen: 10.0.0.1:8080\nops_listen: 10.0.0.2:8080\n",
		"a token of sixteen bytes":                       "callers: [{name: a, role: admin, tokens: [" + token + "]}]\n",
		"a relevance with both identifiers":              relevance("https://r.example.org/{type}/{channel}/{reservation_id}?r={reminder_id}"),
		"events of a provider, with old keys":            provider("events: {secrets: [" + signing + ", " + DevSigningSecret + "]}"),
		"a sandbox with lookup: itself":                  "allow_sandbox: true\nproviders: {mail: {kind: sandbox, contract: {lookup: itself}}}\n",
		"a signed plain source, with old keys":           source("format: plain, max_age: 1d, auth: {standard_webhooks: {secrets: [" + signing + ", " + DevSigningSecret + "]}}"),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse(with(lines), environment()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestParse_RefusesWhatIsNotOneDocument(t *testing.T) {
	for _, raw := range []string{"", "# nothing\n", "- a\n", "just words\n", "a: [1,\n", minimal + "---\n" + minimal, "a: 1\n\tb: 2\n", "\xff\xfe", strings.Repeat("#", maxFile+1)} {
		if _, err := Parse([]byte(raw), environment()); err == nil {
			t.Errorf("accepted %.40q", raw)
		}
	}
}

func TestLoad_FaultsNameTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	if _, err := Load(path, environment()); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte("\nlease: soon\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, environment()); err == nil || !strings.HasPrefix(err.Error(), path+":2: lease: ") &&
		!strings.Contains(err.Error(), "\n"+path+":2: lease: ") {
		t.Errorf("a faulty file: %v", err)
	}
}

func TestDev_ListensOnLoopbackOnly(t *testing.T) {
	for _, addr := range []string{":8080", "0.0.0.0:8080", "192.168.1.5:8080", "example.org:8080", "[::]:8080", "127.0.0.1", "", "127.0.0.1:x"} {
		if _, err := Dev(addr, "data"); err == nil {
			t.Errorf("%q is accepted", addr)
		}
	}
	for addr, ops := range map[string]string{
		"127.0.0.1:8080": "127.0.0.1:9090", "127.0.0.1:0": "127.0.0.1:0", "[::1]:65000": "[::1]:0", "localhost:8081": "localhost:9091",
	} {
		c, err := Dev(addr, "data")
		if err != nil || c.Listen != addr || c.OpsListen != ops {
			t.Errorf("%s: %q beside %q, %v", addr, c.Listen, c.OpsListen, err)
		}
	}
}

func TestDev_HasASourcePerFormatAndASandboxPerChannel(t *testing.T) {
	c, err := Dev("127.0.0.1:8080", "data")
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"plain", "pubsub", "standard-webhooks"} {
		if c.Sources[format].Format != format {
			t.Errorf("no source %s", format)
		}
	}
	for _, channel := range []string{"email", "sms", "push"} {
		if c.Providers[c.Channels[channel].Provider].Kind != KindSandbox {
			t.Errorf("no sandbox behind %s", channel)
		}
	}
	for i, role := range []string{"producer", "support", "operator", "admin"} {
		if c.Callers[i].Role != role || c.Callers[i].Tokens[0] != DigestOf("dev-"+role) {
			t.Errorf("dev-%s does not open the role", role)
		}
	}
	if c.Database.Path != filepath.Join("data", "ledger.db") || c.Types["default"].Backoff.Base != time.Second || !c.Dev {
		t.Errorf("database %q, backoff %v", c.Database.Path, c.Types["default"].Backoff)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte("a: &x [*x, ? {}]\n<<: !!map {b: |\n c}\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := Parse(raw, environment("A", "b")); err != nil && err.Error() == "" {
			t.Error("an error without text")
		}
	})
}
