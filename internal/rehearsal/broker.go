package rehearsal

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

// delivery is the answer of the gateway to one delivery of the message.
type delivery struct {
	Status     int // 0 if the connection broke without an answer
	State      string
	Reason     string
	Duplicate  bool
	RetryAfter time.Duration
}

// acked reports whether the broker may delete the message.
func (d delivery) acked() bool { return d.Status >= 200 && d.Status <= 299 }

func (d delivery) String() string {
	switch {
	case d.Status == 0:
		return "not at all: the connection broke"
	case d.acked():
		answer := fmt.Sprintf("%d, an ack: %s (%s)", d.Status, d.State, d.Reason)
		if d.Duplicate {
			answer += ", answered from the ledger"
		}
		return answer
	case d.State == "":
		return fmt.Sprintf("%d, no ack", d.Status)
	default:
		return fmt.Sprintf("%d, no ack: %s (%s), retry after %s", d.Status, d.State, d.Reason, formatDuration(d.RetryAfter))
	}
}

// broker delivers one message, any number of times.
type broker struct {
	client  *http.Client
	source  string // the gateway's push source
	token   string
	message string // its id
	body    []byte
}

// directClient is an HTTP client without a proxy and with a timeout.
func directClient(d time.Duration) *http.Client {
	return &http.Client{Timeout: d, Transport: &http.Transport{DisableKeepAlives: true}}
}

// deliver pushes the message once.
func (b *broker) deliver(ctx context.Context, gateway string) (delivery, error) {
	target, err := url.JoinPath(gateway, "/v1/push", b.source)
	if err != nil {
		return delivery{}, fmt.Errorf("rehearse: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(b.body))
	if err != nil {
		return delivery{}, fmt.Errorf("rehearse: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+b.token)
	req.Header.Set("Message-Id", b.message)
	resp, err := b.client.Do(req)
	if err != nil {
		return delivery{}, ctx.Err() // otherwise there is no answer, which a rehearsal expects
	}
	defer func() { _ = resp.Body.Close() }()
	d := delivery{Status: resp.StatusCode}
	var answer struct {
		State     string `json:"state"`
		Reason    string `json:"reason"`
		Duplicate bool   `json:"duplicate"`
		Code      string `json:"code"`
		Detail    string `json:"detail"`
	}
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // the status counts even if the body is incomplete
	_ = json.Unmarshal(raw, &answer)
	if !d.acked() && d.Status != http.StatusServiceUnavailable {
		return d, fmt.Errorf("rehearse: the push was rejected: %s %s", resp.Status, answer.Detail)
	}
	d.State, d.Reason, d.Duplicate = answer.State, answer.Reason, answer.Duplicate
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		d.RetryAfter = time.Duration(seconds) * time.Second
	}
	return d, nil
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
