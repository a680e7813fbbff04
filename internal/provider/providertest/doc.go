// Package providertest is what every adapter is tested against: hostile fakes that accept a message and
// then misbehave, the class table that an HTTP adapter must pass, [RunHTTP], and the table of look-ups for
// one that can be asked, [RunLookup].
//
// The fakes count what reached them and what they accepted, per send key, since that is the only truth in
// a test of "at most once": an adapter that reports one call and made two is caught by the count alone.
// [Hostile] is a plain http.Handler with a control surface of its own, so that it can stand in a process
// of its own too.
//
// What it does not do: it is no model of any vendor.
package providertest
