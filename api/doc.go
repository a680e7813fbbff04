// Package api is the HTTP surface: routes, the authentication of callers, thin handlers and problem
// documents. [New] is what brokers, providers, internal services and operators see; [Operations] is what
// probes and Prometheus see, on a listener of its own.
//
// openapi.yaml at the root is the contract. The types of answers are generated from it into
// api/internal/wire, the client for others into api/client; tests walk router and document in both
// directions and hold every answer against it.
//
// Invariants:
//
//   - a handler reads, asks one collaborator, and answers: it decides nothing about an entry;
//   - bodies are bounded before they are read, and a caller is authenticated before its body is read;
//   - an error becomes an answer in one table (problem.go). What the table does not list is a 500 without
//     detail; what a collaborator fails with is a 503. Both carry a correlation id, and the log has the rest;
//   - no answer carries a token, a recipient or content, save the story of an entry (payload.go): the recipient
//     masked for support, all of it for those who hold operator. A person's reason for an act is told as it was
//     written;
//   - no error answer repeats what was sent, save the name of a member or parameter that is not known, cut and
//     escaped.
//
// What it does not do: it keeps no state but the count of failed logins, opens no listener, sets no
// timeouts of a server, knows no broker's format (package broker does) and writes no log line per
// delivery (telemetry does, around it).
package api

//go:generate go tool -modfile=../.ci/tools/go.mod oapi-codegen -config internal/wire/oapi-codegen.yaml ../openapi.yaml
//go:generate go tool -modfile=../.ci/tools/go.mod oapi-codegen -config client/oapi-codegen.yaml ../openapi.yaml
