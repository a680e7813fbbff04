package outbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
)

// Exchange is what one call proved.
type Exchange struct {
	Status      int // 0 when no answer was read
	Header      http.Header
	Body        []byte // at most [Options.MaxBody] bytes
	BodyCut     bool   // the body broke off, or was longer than that
	Called      bool   // a connection was handed the request; false proves that nothing was sent
	Connections int    // how many connections were; above 1 the transport sent it again by itself
	Cause       string // one of the Cause constants
}

// Causes: in one word what became of a call. The set is closed, so that it can be a metric's label.
const (
	CauseStatus      = "status"       // it was answered; the status says the rest
	CauseBodyCut     = "body_cut"     // it was answered, but the body could not be read to its end
	CauseNotDialled  = "not_dialled"  // its time was over before anything was dialled
	CauseRequest     = "request"      // the request itself could not be built or written down
	CauseDNS         = "dns"          // the name could not be resolved
	CauseRefused     = "refused"      // nobody listens there
	CauseNoRoute     = "no_route"     // the network or host cannot be reached
	CauseDialTimeout = "dial_timeout" // nobody answered the dial in time
	CauseProxy       = "proxy"        // the configured proxy did not let it through
	CauseTLS         = "tls"          // no TLS session came about
	CauseCertificate = "certificate"  // we rejected the peer's certificate
	CauseTimeout     = "timeout"      // the call's deadline passed
	CauseCancelled   = "cancelled"    // the caller gave up
	CauseReset       = "reset"        // the peer reset the connection
	CauseEOF         = "eof"          // the peer closed the connection without an answer
	CauseProtocol    = "protocol"     // what came back was no readable answer
)

// CauseOf names what an error of the network, TLS or a protocol on top of them says. ctx is the call's:
// its end explains an error better than the error does.
func CauseOf(ctx context.Context, err error) string {
	var (
		dns         *net.DNSError
		op          *net.OpError
		certificate *tls.CertificateVerificationError
		authority   x509.UnknownAuthorityError
		host        x509.HostnameError
		invalid     x509.CertificateInvalidError
		record      tls.RecordHeaderError
		alert       tls.AlertError
		timeout     interface{ Timeout() bool }
	)
	isDial := errors.As(err, &op) && op.Op == "dial"
	timedOut := errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
	switch {
	case errors.As(err, &certificate), errors.As(err, &authority), errors.As(err, &host), errors.As(err, &invalid):
		return CauseCertificate
	case errors.As(err, &dns):
		return CauseDNS
	case op != nil && op.Op == "proxyconnect":
		return CauseProxy
	case errors.Is(err, syscall.ECONNREFUSED):
		return CauseRefused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return CauseNoRoute
	case isDial && timedOut:
		return CauseDialTimeout
	case errors.Is(ctx.Err(), context.Canceled):
		return CauseCancelled
	case ctx.Err() != nil, timedOut:
		return CauseTimeout
	case errors.As(err, &record), errors.As(err, &alert):
		return CauseTLS
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return CauseReset
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return CauseEOF
	default:
		return CauseProtocol
	}
}
