package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestHealth_ReportsWhetherAndWhyNotReady(t *testing.T) {
	for name, answer := range map[string]struct {
		status int
		body   string
		want   string
		fails  bool
	}{
		"ready":       {200, `{"status":"ready","gates":[]}`, `ready: {"status":"ready","gates":[]}`, false},
		"unavailable": {503, `{"status":"unavailable","gates":[]}`, "not ready: unavailable: the ledger does not respond", true},
		"draining":    {503, `{"status":"draining","gates":[]}`, "not ready: draining: the gateway is shutting down", true},
		"another":     {502, "<html>\x1b[2J", `not ready: 502 Bad Gateway: "<html>\x1b[2J"`, true},
	} {
		ops := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" {
				t.Errorf("asked %s", r.URL.Path)
			}
			w.WriteHeader(answer.status)
			_, _ = io.WriteString(w, answer.body)
		}))
		u, err := url.Parse(ops.URL)
		if err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{
			{"-addr", u.Host},
			{"-config", configuration(t, "database: {url: sqlite:///none}\nops_listen: "+u.Host)},
			{"-config", configuration(t, "database: {url: sqlite:///none}\nops_listen: 0.0.0.0:"+u.Port())},
			{"-config", configuration(t, "database: {url: sqlite:///none}\nops_listen: :"+u.Port())},
		} {
			var out bytes.Buffer
			err := run(append([]string{"health"}, args...), &out, &out)
			output := out.String()
			if err != nil {
				output += err.Error()
			}
			if (err != nil) != answer.fails || !strings.Contains(output, answer.want) {
				t.Errorf("%s, by %s: %v, output %q", name, args[0], err, output)
			}
		}
		ops.Close()
	}
}

func TestDialable_WildcardIsLoopback(t *testing.T) {
	for listen, want := range map[string]string{
		":9090": "127.0.0.1:9090", "0.0.0.0:9191": "127.0.0.1:9191", "[::]:9090": "[::1]:9090",
		"10.0.0.5:9090": "10.0.0.5:9090", "[fe80::1]:9090": "[fe80::1]:9090", "ops.internal:9090": "ops.internal:9090",
	} {
		if got := dialable(listen); got != want {
			t.Errorf("%s is reached at %s, want %s", listen, got, want)
		}
	}
}
