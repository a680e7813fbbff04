package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/sendonce/sendonce/internal/app"
	"github.com/sendonce/sendonce/internal/config"
)

func dev(inv invocation) error {
	flags := inv.flags()
	addr := flags.String("addr", "127.0.0.1:8080", "loopback `HOST:PORT` to listen on")
	data := flags.String("data", "./.sendonce", "`DIR` of the embedded ledger")
	if err := inv.parse(flags); err != nil {
		return err
	}
	cfg, err := config.Dev(*addr, *data)
	if err != nil {
		return err
	}
	ctx, stop := signalContext()
	defer stop()
	started := false
	err = app.Run(ctx, cfg, app.Build{Version: build(), Log: inv.errOut, Ready: func(public, operations net.Addr) {
		started = true
		fmt.Fprintf(inv.out, devGuide, public, operations)
	}})
	if err != nil && !started {
		return fmt.Errorf("%w\nif another sendonce is running here: use another -data (and -addr)", err)
	}
	return err
}

// devGuide is printed by dev once it listens. The last path segment of the admin URL is the entry's id, which
// depends on (reminder_id, type, channel) only.
const devGuide = `
sendonce is listening on http://%[1]s (Ctrl-C stops it). Paste this into another shell, twice:

  curl -s http://%[1]s/v1/push/plain -d '{"reminder_id": "rem-1842", "type": "seat_expiring", "channel": "email", "to": "ok@example.org", "content": {"subject": "Your seat is about to expire", "text": "It is held until 09:10."}}'

The first delivery is sent; the second one is a duplicate, and is answered from the ledger. The entry's timeline:

  curl -s -H 'Authorization: Bearer dev-support' http://%[1]s/v1/admin/entries/cmVtLTE4NDIAc2VhdF9leHBpcmluZwBlbWFpbA

The recipient chooses what the sandbox does: refuse@example.org, throttle@…, unreachable@…, timeout-after-accept@…
Use another reminder_id for each: the same one with other content is a conflict, and is not sent.
Tokens: dev-producer, dev-support, dev-operator, dev-admin. Metrics: http://%[2]s/metrics

`

func serve(inv invocation) error {
	cfg, err := inv.loadConfig()
	if err != nil {
		return err
	}
	ctx, stop := signalContext()
	defer stop()
	return app.Run(ctx, cfg, app.Build{Version: build(), Log: inv.errOut, Hooks: testHooks()})
}

func migrate(inv invocation) error {
	cfg, err := inv.loadConfig()
	if err != nil {
		return err
	}
	ctx, stop := signalContext()
	defer stop()
	if err := app.Migrate(ctx, cfg); err != nil {
		return err
	}
	fmt.Fprintln(inv.out, "the ledger's schema is up to date")
	return nil
}

func checkConfig(inv invocation) error {
	file, err := inv.configFile()
	if err != nil {
		return err
	}
	cfg, err := config.Load(file, os.LookupEnv)
	if err != nil {
		return err
	}
	if err := app.Check(cfg); err != nil {
		return err
	}
	for _, warning := range app.Warnings(context.Background(), cfg) {
		fmt.Fprintf(inv.errOut, "warning: %s\n", warning)
	}
	fmt.Fprintf(inv.out, "%s: configuration is valid\n", file)
	return nil
}

func version(inv invocation) error {
	if err := inv.parse(inv.flags()); err != nil {
		return err
	}
	fmt.Fprintf(inv.out, "sendonce %s (%s, %s/%s)\n", build(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}

// build returns the version that the toolchain recorded in the binary.
func build() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version + versionSuffix
	}
	return "(devel)" + versionSuffix
}
