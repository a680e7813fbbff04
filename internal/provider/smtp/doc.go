// Package smtp submits a reminder as a mail (RFC 5321, RFC 6409), with one recipient per transaction and one
// transaction per connection.
//
// SMTP has neither idempotency nor lookups, so everything depends on one boundary: the line with the single dot
// that ends the message. Until that line has been written, a broken connection makes the server discard the
// transaction, so the message is proven unsent. After it, only the server's reply proves anything, and a missing
// reply means unknown, although RFC 5321, section 4.5.3.2.6, would have the client send again. The package knows
// on which side of the boundary a call ended because it performs each protocol step itself. go-mail's Client
// would merge the steps into one error and report a lost reply as a permanent failure; only its message builder
// and its protocol client are used.
//
// Invariants: nothing in a recipient or a subject can end a line; after the message is accepted, no later error
// turns it into a failure; except for the Date header, a shipment is the same bytes at every attempt. The Date is
// the time of the attempt, since a shipment has none: the SMTP contract is blind, so a mail in doubt is not
// repeated unless the configuration or an operator accepts that risk.
//
// What it does not do: attachments, DKIM, connection pooling, delivery status notifications.
package smtp
