// Package wire has the response types of package api, generated from openapi.yaml.
//
// It has types and constants only: no behaviour, no validation, and no decoding of requests.
package wire
