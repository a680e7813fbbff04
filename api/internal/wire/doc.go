// Package wire holds the shapes of what package api answers, generated from openapi.yaml.
//
// It has types and words only: no behaviour, no validation, and no decoding of what comes in.
package wire
