// Package providertest contains what every adapter is tested with: hostile fake servers that accept a message and
// then misbehave, the class table that an HTTP adapter must pass ([RunHTTP]), and the lookup table for an adapter
// that supports lookups ([RunLookup]).
//
// The fakes count what they received and what they accepted, per send key. In a test of "at most once" only these
// counts are reliable: an adapter that reports one call but made two is caught by nothing else. [Hostile] is a plain
// http.Handler with its own control endpoints, so that it can also run in a separate process.
//
// What it does not do: it does not model any vendor.
package providertest
