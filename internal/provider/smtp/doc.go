// Package smtp submits a reminder as a mail (RFC 5321, RFC 6409), one recipient a transaction, one
// transaction a connection.
//
// SMTP has no idempotency and no lookup, so all depends on one boundary. Until the line with the single
// dot that ends the message has been written, a broken connection makes the server forget the
// transaction: proven unsent. From then on only its reply proves anything, and its absence is unknown, though
// RFC 5321, section 4.5.3.2.6, would have us send again. Which side of the boundary a call ended on is known
// because each step of the dialog is taken here, one by one; go-mail's Client would fold them into one error
// and take a lost reply for a permanent failure. Its message builder and its protocol client are used.
//
// Invariants: nothing in a recipient or a subject can end a line; after the message is accepted, nothing
// can make it a failure; but for the Date a shipment is the same bytes at every attempt. The Date is the
// attempt's own, since a shipment has none: SMTP is blind, so a mail in doubt is not repeated unless
// somebody took that risk.
//
// What it does not do: attachments, DKIM, pooling of connections, delivery status notifications.
package smtp
