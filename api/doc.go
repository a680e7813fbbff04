// Package api is the HTTP API of the gateway: routes, the authentication of callers, thin handlers and problem
// documents. [New] serves brokers, providers, internal services and operators; [Operations] serves probes and
// Prometheus, on a listener of its own.
//
// openapi.yaml at the root of the module is the contract. The response types are generated from it into
// api/internal/wire, and the Go client into api/client; tests compare router and document in both directions, and
// validate every answer against the document.
//
// This package is used by the gateway's own binary and may change in every release. The Go API that this module's
// versions promise is package api/client, and nothing else.
//
// Invariants:
//
//   - a handler reads, calls one service and answers: it decides nothing about an entry;
//   - bodies are bounded before they are read, and a caller is authenticated before its body is read;
//   - one table turns errors into answers (problem.go). An error that the table does not list is a 500 without detail; an
//     error of a service is a 503. Both carry a correlation id, under which the log has the rest;
//   - no answer contains a token, a recipient or content, except the detail of an entry (payload.go): the recipient is
//     masked for support, and everything is shown from role operator on. An actor's reason is shown as it was written;
//   - no error answer repeats input, except the name of an unknown member or parameter, cut and escaped.
//
// What it does not do: it keeps no state but the count of failed authentications, opens no listener, sets no server
// timeouts, knows no broker's format (package ingest does) and logs no line per delivery (package telemetry does, as
// the outermost middleware).
package api

//go:generate go tool -modfile=../.ci/tools/go.mod oapi-codegen -config internal/wire/oapi-codegen.yaml ../openapi.yaml
//go:generate go tool -modfile=../.ci/tools/go.mod oapi-codegen -config client/oapi-codegen.yaml ../openapi.yaml
