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

// Response is what one call proved.
type Response struct {
	Status      int // 0 if no response was read
	Header      http.Header
	Body        []byte // at most [Options.MaxBody] bytes
	BodyCut     bool   // the body was truncated, or longer than that
	Called      bool   // a connection was obtained for the request; false proves that nothing was sent
	Connections int    // number of connections obtained; above 1, the transport resent the request on its own
	Cause       string // one of the Cause constants
}

// Causes of the result of a call. The set is closed, so that a cause can be the label of a metric.
const (
	CauseStatus      = "status"       // a response was read; see the status
	CauseBodyCut     = "body_cut"     // a response was read, but its body could not be read to the end
	CauseNotDialled  = "not_dialled"  // the deadline passed before anything was dialled
	CauseRequest     = "request"      // the request itself could not be built or encoded
	CauseDNS         = "dns"          // the name could not be resolved
	CauseRefused     = "refused"      // the connection was refused
	CauseNoRoute     = "no_route"     // the network or host cannot be reached
	CauseDialTimeout = "dial_timeout" // dialling took too long
	CauseProxy       = "proxy"        // the configured proxy did not establish the connection
	CauseTLS         = "tls"          // no TLS session could be established
	CauseCertificate = "certificate"  // we rejected the peer's certificate
	CauseTimeout     = "timeout"      // the call's deadline passed
	CauseCancelled   = "cancelled"    // the caller gave up
	CauseReset       = "reset"        // the peer reset the connection
	CauseEOF         = "eof"          // the peer closed the connection without a response
	CauseProtocol    = "protocol"     // the peer sent something that is not a readable response
)

// CauseOf returns the cause of an error of the network, of TLS, or of a protocol on top of them. ctx is the context
// of the call: if it has ended, that explains the error better than the error itself.
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
