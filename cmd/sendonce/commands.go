package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/sendonce/sendonce/internal/app"
	"github.com/sendonce/sendonce/internal/config"
)

func dev(args []string, out, errOut io.Writer) error {
	flags := flag.NewFlagSet("dev", flag.ContinueOnError)
	addr := flags.String("addr", "127.0.0.1:8080", "loopback `HOST:PORT` to listen on")
	data := flags.String("data", "./.sendonce", "`DIR` for the embedded ledger")
	if err := parse(flags, args, errOut, 0); err != nil {
		return err
	}
	cfg, err := config.Dev(*addr, *data)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal()
	defer stop()
	return app.Run(ctx, cfg, app.Build{Version: build(), Log: errOut, Ready: func(listen net.Addr) {
		fmt.Fprintf(out, devGuide, listen)
	}})
}

// devGuide is what dev prints once it listens. The last word of its last address is the entry's id, which
// follows from (reminder_id, type, channel) alone.
const devGuide = `
sendonce is listening on http://%[1]s (Ctrl-C ends it). Paste this into another shell, twice:

  curl -s http://%[1]s/v1/push/plain -d '{"reminder_id": "rem-1842", "type": "seat_expiring", "channel": "email", "to": "ok@example.org", "content": {"subject": "Your seat is about to expire", "text": "It is held until 09:10."}}'

The first delivery is sent; the second is answered from the ledger. What happened, and why:

  curl -s -H 'Authorization: Bearer dev-support' http://%[1]s/v1/admin/entries/cmVtLTE4NDIAc2VhdF9leHBpcmluZwBlbWFpbA

Other recipients choose what the provider does: refuse@example.org, throttle@…, unreachable@…, timeout-after-accept@…

`

func serve(args []string, _, errOut io.Writer) error {
	cfg, err := configured("serve", args, errOut)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal()
	defer stop()
	return app.Run(ctx, cfg, app.Build{Version: build(), Log: errOut})
}

func migrate(args []string, out, errOut io.Writer) error {
	cfg, err := configured("migrate", args, errOut)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal()
	defer stop()
	if err := app.Migrate(ctx, cfg); err != nil {
		return err
	}
	fmt.Fprintln(out, "the ledger's schema is up to date")
	return nil
}

// configured reads the flags of a command that takes nothing but -config.
func configured(command string, args []string, errOut io.Writer) (config.Config, error) {
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	file := flags.String("config", "", "configuration `FILE`")
	if err := parse(flags, args, errOut, 0); err != nil {
		return config.Config{}, err
	}
	if *file == "" {
		fmt.Fprintf(errOut, "sendonce %s: -config FILE is missing\n", command)
		return config.Config{}, errUsage
	}
	return config.Load(*file, os.LookupEnv)
}

func checkConfig(args []string, out, errOut io.Writer) error {
	flags := flag.NewFlagSet("check-config", flag.ContinueOnError)
	if err := parse(flags, args, errOut, 1); err != nil {
		return err
	}
	if _, err := config.Load(flags.Arg(0), os.LookupEnv); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: fit to serve\n", flags.Arg(0))
	return nil
}

func health(args []string, out, errOut io.Writer) error {
	flags := flag.NewFlagSet("health", flag.ContinueOnError)
	addr := flags.String("addr", "127.0.0.1:9090", "`HOST:PORT` of the operations listener")
	if err := parse(flags, args, errOut, 0); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+*addr+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 16<<10))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s: %s", resp.Status, body)
	}
	fmt.Fprintf(out, "ready: %s\n", body)
	return nil
}

func version(_ []string, out, _ io.Writer) error {
	fmt.Fprintf(out, "sendonce %s (%s, %s/%s)\n", build(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}

// build is the version that the toolchain stamped into the binary.
func build() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
