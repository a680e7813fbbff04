package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/sendonce/sendonce/internal/config"
)

// defaultOps is where the operations listener stands unless the configuration says otherwise.
const defaultOps = "127.0.0.1:9090"

func health(l line) error {
	flags := l.flags()
	addr := flags.String("addr", "", "`HOST:PORT` of the operations listener (default "+defaultOps+")")
	file := flags.String("config", "", "configuration `FILE` of the gateway, to take its ops_listen from")
	if err := l.parse(flags); err != nil {
		return err
	}
	at := *addr
	switch {
	case *addr != "" && *file != "":
		return l.misread(flags, "wants -addr or -config, not both")
	case *file != "":
		cfg, err := config.Load(*file, os.LookupEnv)
		if err != nil {
			return err
		}
		at = dialable(cfg.OpsListen)
	case *addr == "":
		at = defaultOps
	}
	body, err := ask(at)
	if err != nil {
		return err
	}
	fmt.Fprintf(l.out, "ready: %s\n", body)
	return nil
}

// dialable is where this machine reaches what listens at an address: a wildcard is reached on loopback.
func dialable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	switch ip, _ := netip.ParseAddr(host); {
	case host == "", ip == netip.IPv4Unspecified():
		host = "127.0.0.1"
	case ip == netip.IPv6Unspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}

// ask is what /readyz tells, without the proxy that the environment may name for other calls.
func ask(addr string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		return "", err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 16<<10))
	if resp.StatusCode == http.StatusOK {
		return string(bytes.TrimSpace(body)), nil
	}
	var told struct{ Status string }
	_ = json.Unmarshal(body, &told) // what is no answer of ours is shown as it came
	switch told.Status {
	case "unavailable":
		return "", fmt.Errorf("not ready: %s: the ledger does not answer, or its schema is older than the program; "+
			"the gateway's log says which ('sendonce migrate -config FILE' prepares a schema)", told.Status)
	case "draining":
		return "", fmt.Errorf("not ready: %s: it was told to end, and takes nothing new", told.Status)
	default:
		return "", fmt.Errorf("not ready: %s: %q", resp.Status, body)
	}
}
