package main

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/sendonce/sendonce/internal/app"
	"github.com/sendonce/sendonce/internal/config"
)

func dev(l line) error {
	flags := l.flags()
	addr := flags.String("addr", "127.0.0.1:8080", "loopback `HOST:PORT` to listen on")
	data := flags.String("data", "./.sendonce", "`DIR` for the embedded ledger")
	if err := l.parse(flags); err != nil {
		return err
	}
	cfg, err := config.Dev(*addr, *data)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal()
	defer stop()
	started := false
	err = app.Run(ctx, cfg, app.Build{Version: build(), Log: l.errOut, Ready: func(public, operations net.Addr) {
		started = true
		fmt.Fprintf(l.out, devGuide, public, operations)
	}})
	if err != nil && !started {
		return fmt.Errorf("%w\nif another sendonce uses what this one needs: use another -data (and -addr)", err)
	}
	return err
}

// devGuide is what dev prints once it listens. The last word of its last address is the entry's id, which
// follows from (reminder_id, type, channel) alone.
const devGuide = `
sendonce is listening on http://%[1]s (Ctrl-C ends it). Paste this into another shell, twice:

  curl -s http://%[1]s/v1/push/plain -d '{"reminder_id": "rem-1842", "type": "seat_expiring", "channel": "email", "to": "ok@example.org", "content": {"subject": "Your seat is about to expire", "text": "It is held until 09:10."}}'

The first delivery is sent; the second is answered from the ledger. What happened, and why:

  curl -s -H 'Authorization: Bearer dev-support' http://%[1]s/v1/admin/entries/cmVtLTE4NDIAc2VhdF9leHBpcmluZwBlbWFpbA

Other recipients choose what the provider does: refuse@example.org, throttle@…, unreachable@…, timeout-after-accept@…
Give each another reminder_id: the same one with other content is a conflict, and is not sent.
Tokens: dev-producer, dev-support, dev-operator, dev-admin. Metrics: http://%[2]s/metrics

`

func serve(l line) error {
	cfg, err := l.configured()
	if err != nil {
		return err
	}
	ctx, stop := untilSignal()
	defer stop()
	return app.Run(ctx, cfg, app.Build{Version: build(), Log: l.errOut, Rig: rig()})
}

func migrate(l line) error {
	cfg, err := l.configured()
	if err != nil {
		return err
	}
	ctx, stop := untilSignal()
	defer stop()
	if err := app.Migrate(ctx, cfg); err != nil {
		return err
	}
	fmt.Fprintln(l.out, "the ledger's schema is at the version of this program")
	return nil
}

func checkConfig(l line) error {
	file, err := l.file()
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
	fmt.Fprintf(l.out, "%s: fit to serve\n", file)
	return nil
}

func version(l line) error {
	if err := l.parse(l.flags()); err != nil {
		return err
	}
	fmt.Fprintf(l.out, "sendonce %s (%s, %s/%s)\n", build(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}

// build is the version that the toolchain stamped into the binary.
func build() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version + stamp
	}
	return "(devel)" + stamp
}
