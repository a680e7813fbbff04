package rehearsal

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/config"
)

func testSetting() Setting {
	policy := Policy{MaxAttempts: 6, Base: 5 * time.Second, Cap: 15 * time.Minute, Deadline: 24 * time.Hour, OnUnknown: hold}
	return Setting{
		Lease: 30 * time.Second, Sweep: 5 * time.Second, Memory: 400 * 24 * time.Hour,
		Promises: []Promise{
			{Contract: Blind, Timeout: 10 * time.Second},
			{Contract: Idempotent, Window: 24 * time.Hour, Timeout: 10 * time.Second},
			{Contract: Idempotent, Window: time.Hour, Timeout: time.Second},
		},
		Types: map[string]Policy{"default": policy},
	}
}

func TestVariants_EachContractOnceAndBlindPerPolicy(t *testing.T) {
	s := testSetting()
	for name, onUnknown := range map[string]string{"a": resend, "b": hold, "z": assumeSent} {
		policy := s.Types["default"]
		policy.OnUnknown = onUnknown
		s.Types[name] = policy
	}
	for only, want := range map[string]string{
		"":         "idempotent (keys known for 24h), type default; blind, on_unknown hold, type default; blind, on_unknown resend, type a; blind, on_unknown assume_sent, type z",
		Idempotent: "idempotent (keys known for 24h), type default",
		Lookup:     "lookup, which the provider of no channel has, type default",
		"other":    "",
	} {
		var headlines []string
		for _, p := range s.variants(only) {
			headlines = append(headlines, strings.TrimPrefix(p.headline(), "contract "))
		}
		if got := strings.Join(headlines, "; "); got != want {
			t.Errorf("only %q:\n%s, want\n%s", only, got, want)
		}
	}
}

// For every configuration that is valid, however unusual its durations, the derived one is valid too.
func TestGatewayConfig_IsValid(t *testing.T) {
	run := runConfig{name: "rehearsal-abc", provider: "http://127.0.0.1:9", database: "sqlite:///tmp/x/ledger.db", brokerToken: "0123456789abcdefg", operatorToken: "0123456789abcdefgh"}
	for _, lease := range []time.Duration{2 * time.Second, 3 * time.Second, 30 * time.Second, time.Hour} {
		for _, timeout := range []time.Duration{100 * time.Millisecond, 900 * time.Millisecond, 10 * time.Second, 50 * time.Minute} {
			for _, sweep := range []time.Duration{100 * time.Millisecond, 10 * time.Minute} {
				s := testSetting()
				s.Lease, s.Sweep = lease, sweep
				for i := range s.Promises {
					s.Promises[i].Timeout = timeout
				}
				s.Types["brief"] = Policy{MaxAttempts: 1, Base: 10 * time.Millisecond, Cap: 10 * time.Millisecond, Deadline: time.Second, OnUnknown: resend}
				for _, gatewayConfig := range []Setting{s, s.shortened()} {
					for _, contract := range Contracts() {
						raw, err := json.Marshal(gatewayConfig.gatewayConfig(gatewayConfig.variants(contract)[0], run))
						if err != nil {
							t.Fatal(err)
						}
						if _, err := config.Parse(raw, func(string) (string, bool) { return "", false }); err != nil {
							t.Errorf("lease %s, timeout %s, %s: %v", lease, timeout, contract, err)
						}
					}
				}
			}
		}
	}
}

func TestShortened_LengthensNothingAndKeepsPromises(t *testing.T) {
	s := testSetting()
	s.Sweep = 100 * time.Millisecond
	short := s.shortened()
	if short.Lease != shortLease || short.Sweep != s.Sweep || short.Memory != s.Memory {
		t.Errorf("%+v", short)
	}
	if !reflect.DeepEqual(short.Promises, s.Promises) || short.Types["default"].Deadline != 24*time.Hour || s.Types["default"].Base != 5*time.Second {
		t.Errorf("%+v of %+v", short, s)
	}
}

// By construction a rehearsal cannot know a real provider.
func TestSetting_HasNoFieldForAnAddress(t *testing.T) {
	words := map[string]bool{"Promise.Contract": true, "Policy.OnUnknown": true} // closed sets of values
	var look func(at reflect.Type)
	look = func(at reflect.Type) {
		switch at.Kind() {
		case reflect.Struct:
			for i := range at.NumField() {
				if field := at.Field(i); field.Type.Kind() != reflect.String || !words[at.Name()+"."+field.Name] {
					look(field.Type)
				}
			}
		case reflect.Map, reflect.Slice:
			look(at.Elem())
		case reflect.Int, reflect.Int64:
		default:
			t.Errorf("a setting contains a %s", at)
		}
	}
	look(reflect.TypeFor[Setting]())
}

func TestChildEnv_RemovesExportersAndProxies(t *testing.T) {
	got := childEnv([]string{"PATH=/bin", "OTEL_EXPORTER_OTLP_ENDPOINT=http://x", "HTTPS_PROXY=http://x", "http_proxy=http://x", "PGSSLMODE=require", "odd"})
	if want := []string{"PATH=/bin", "PGSSLMODE=require", "odd"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestRehearsalDatabase_IsNeverTheConfiguredOne(t *testing.T) {
	for configured, want := range map[string]string{
		"postgres://u:p%40@h:5/gw":                     "postgres://u:p%40@h:5/gw_rehearsal",
		"postgresql://h,i/gw?target_session_attrs=any": "postgresql://h,i/gw_rehearsal?target_session_attrs=any",
		"postgres://h/gw_rehearsal":                    "postgres://h/gw_rehearsal_rehearsal",
		"postgres://h/my%20gw":                         "postgres://h/my%20gw_rehearsal",
		"postgres://h/" + strings.Repeat("x", 53):      "postgres://h/" + strings.Repeat("x", 53) + "_rehearsal",
		"postgres://h/" + strings.Repeat("x", 54):      "", // the server would truncate it
		"postgres://h/" + strings.Repeat("x", 63):      "",
		"postgres://h/gw?dbname=other":                 "",
		"postgres://h/gw?database=other":               "",
		"postgres://h/gw?service=other":                "",
		"postgres://h":                                 "", // the database of the user, or of the environment
		"postgres://h/":                                "",
		"postgres://h/a/b":                             "",
		"postgres://secret-canary@h:port/gw":           "",
	} {
		got, err := RehearsalDatabase(configured)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, want %q", configured, got, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("the error contains the password: %v", err)
		}
	}
}
