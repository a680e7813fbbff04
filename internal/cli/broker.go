package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// delivery is one arrival of the message at the gateway, and what came of it.
type delivery struct {
	Status     int // 0 where the connection broke without an answer
	State      string
	Reason     string
	Duplicate  bool
	RetryAfter time.Duration
}

// acked tells whether the broker may forget the message.
func (d delivery) acked() bool { return d.Status >= 200 && d.Status <= 299 }

func (d delivery) String() string {
	switch {
	case d.Status == 0:
		return "not at all: the connection broke"
	case d.acked():
		told := fmt.Sprintf("%d, an ack: %s (%s)", d.Status, d.State, d.Reason)
		if d.Duplicate {
			told += ", answered from the ledger"
		}
		return told
	case d.State == "":
		return fmt.Sprintf("%d, no ack", d.Status)
	default:
		return fmt.Sprintf("%d, no ack: %s (%s), come back in %s", d.Status, d.State, d.Reason, short(d.RetryAfter))
	}
}

// broker delivers one message of at-least-once, again and again.
type broker struct {
	client  *http.Client
	source  string // the gateway's push source
	token   string
	message string // its id
	body    []byte
}

// direct is a client that goes through no proxy, and waits for d.
func direct(d time.Duration) *http.Client {
	return &http.Client{Timeout: d, Transport: &http.Transport{DisableKeepAlives: true}}
}

// deliver pushes the message once.
func (b *broker) deliver(ctx context.Context, gateway string) (delivery, error) {
	at, err := url.JoinPath(gateway, "/v1/push", b.source)
	if err != nil {
		return delivery{}, fmt.Errorf("rehearse: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(b.body))
	if err != nil {
		return delivery{}, fmt.Errorf("rehearse: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+b.token)
	req.Header.Set("Message-Id", b.message)
	resp, err := b.client.Do(req)
	if err != nil {
		return delivery{}, ctx.Err() // else no answer, which is what a rehearsal is about
	}
	defer func() { _ = resp.Body.Close() }()
	d := delivery{Status: resp.StatusCode}
	var told struct {
		State     string `json:"state"`
		Reason    string `json:"reason"`
		Duplicate bool   `json:"duplicate"`
		Code      string `json:"code"`
		Detail    string `json:"detail"`
	}
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // cut off or not, the status counts
	_ = json.Unmarshal(raw, &told)
	if !d.acked() && d.Status != http.StatusServiceUnavailable {
		return d, fmt.Errorf("rehearse: the push was refused: %s %s", resp.Status, told.Detail)
	}
	d.State, d.Reason, d.Duplicate = told.State, told.Reason, told.Duplicate
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		d.RetryAfter = time.Duration(seconds) * time.Second
	}
	return d, nil
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
