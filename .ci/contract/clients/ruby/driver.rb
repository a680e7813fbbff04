# Uses the Ruby client that OpenAPI Generator makes of openapi.yaml: driver.rb URL
#
# The gateway of `sendonce dev` at URL must be one that this driver has not met before.
require 'uri'

require 'openapi_client'

include OpenapiClient

def expect(what, got, want)
  abort "#{what} is #{got.inspect}, not #{want.inspect}" unless got == want
end

def client(token)
  url = URI(ARGV.fetch(0))
  configuration = Configuration.new do |c|
    c.scheme = url.scheme
    c.host = "#{url.host}:#{url.port}"
    # Or the generator takes the URL among the contract's servers.
    c.server_index = nil
    c.access_token = token
  end
  ApiClient.new(configuration)
end

PRODUCER = client('dev-producer')
REMINDERS = RemindersApi.new(PRODUCER)
ADMIN = AdminApi.new(client('dev-support'))

def problem(what, status)
  yield
  abort "#{what} was answered without an error"
rescue ApiError => e
  expect("the status of #{what}", e.code, status)
  expect("the media type of #{what}", e.response_headers['Content-Type'], 'application/problem+json')
  found = PRODUCER.convert_to_type(JSON.parse(e.response_body, symbolize_names: true), 'Problem')
  expect("the class of #{what}", found.class, Problem)
  expect("the status in #{what}", found.status, status)
  found
end

def reminder(changes = {})
  Reminder.new({
    reminder_id: 'ruby/1',
    type: 'seat_expiring',
    channel: 'email',
    to: 'ok@example.org',
    content: { subject: 'Your seat is about to expire' },
    # Not a Time, whose JSON is no RFC 3339.
    deadline: DateTime.new(2999, 1, 1),
    metadata: { course: 'algebra-1' }
  }.merge(changes).compact)
end

sent, status, = REMINDERS.request_reminder_with_http_info(reminder)
expect('the status of a request', status, 200)
expect('state', sent.state, State::SENT)
expect('attempts', sent.attempts, 1)
expect('the class of first_seen', sent.first_seen.class, Time)
expect('whether there is a receipt', sent.receipt.to_s.empty?, false)

again, status, = REMINDERS.request_reminder_with_http_info(reminder)
expect('the status of a repeated request', status, 200)
expect('id after a repeated request', again.id, sent.id)
expect('receipt after a repeated request', again.receipt, sent.receipt)
expect('attempts after a repeated request', again.attempts, 1)

entries = REMINDERS.get_reminder('ruby/1').items
expect("the ids of the reminder's entries", entries.map(&:id), [sent.id])

conflict = problem('a conflict', 409) { REMINDERS.request_reminder(reminder(content: { subject: 'Another' })) }
expect('the code of a conflict', conflict.code, 'conflict')
expect("the id of a conflict's entry", conflict.entry.id, sent.id)

invalid = problem('a request without an id', 400) { REMINDERS.request_reminder(reminder(reminder_id: nil)) }
expect('the code of a request without an id', invalid.code, 'invalid')
expect('the faulty fields', invalid.errors.map(&:field), ['reminder_id'])

listed = ADMIN.list_entries(reminder_id: 'ruby/1', state: State::SENT, from: '2000-01-01T00:00:00Z', limit: 2)
expect('the ids in the list', listed.items.map(&:id), [sent.id])

detail = ADMIN.get_entry(sent.id)
expect('the id in the detail', detail.entry.id, sent.id)
expect('the masked recipient', detail.payload.to, 'o***@example.org')
expect('masked', detail.payload.masked, true)
attempts = detail.timeline.select { |event| event.kind == 'attempt' }
expect('the receipts of the attempts in the timeline', attempts.map(&:receipt), [sent.receipt])
expect('the number of conflicts in the detail', detail.conflicts.length, 1)

forbidden = problem('a list for a producer', 403) { AdminApi.new(PRODUCER).list_entries }
expect('the code of a list for a producer', forbidden.code, 'forbidden')
