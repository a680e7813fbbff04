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

// defaultOps is the default address of the operations listener.
const defaultOps = "127.0.0.1:9090"

func health(inv invocation) error {
	flags := inv.flags()
	addr := flags.String("addr", "", "`HOST:PORT` of the operations listener (default "+defaultOps+")")
	file := flags.String("config", "", "configuration `FILE` of the gateway, for its ops_listen")
	if err := inv.parse(flags); err != nil {
		return err
	}
	at := *addr
	switch {
	case *addr != "" && *file != "":
		return inv.usageError(flags, "takes -addr or -config, not both")
	case *file != "":
		cfg, err := config.Load(*file, os.LookupEnv)
		if err != nil {
			return err
		}
		at = dialable(cfg.OpsListen)
	case *addr == "":
		at = defaultOps
	}
	body, err := checkReady(at)
	if err != nil {
		return err
	}
	fmt.Fprintf(inv.out, "ready: %s\n", body)
	return nil
}

// dialable returns the address at which this machine reaches a listener: a wildcard is reached on loopback.
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

// checkReady returns the body of /readyz if it is ready. It ignores a proxy in the environment.
func checkReady(addr string) (string, error) {
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
	var answer struct{ Status string }
	_ = json.Unmarshal(body, &answer) // any other body is shown as it is
	switch answer.Status {
	case "unavailable":
		return "", fmt.Errorf("not ready: %s: the ledger does not respond, or its schema is older than the program; "+
			"see the gateway's log ('sendonce migrate -config FILE' migrates the schema)", answer.Status)
	case "draining":
		return "", fmt.Errorf("not ready: %s: the gateway is shutting down", answer.Status)
	default:
		return "", fmt.Errorf("not ready: %s: %q", resp.Status, body)
	}
}
