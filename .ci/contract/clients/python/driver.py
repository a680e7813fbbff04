"""Uses the Python client that Swagger Codegen makes of openapi.yaml: driver.py URL

The gateway of `sendonce dev` at URL must be one that this driver has not met before.
"""

import datetime
import sys

from swagger_client import AdminApi, ApiClient, Configuration, Problem, Reminder, RemindersApi
from swagger_client.rest import ApiException


def expect(what, got, want):
    if got != want:
        sys.exit(f"{what} is {got!r}, not {want!r}")


def client(token):
    configuration = Configuration()
    configuration.host = sys.argv[1]
    # This generator leaves the scheme "bearer" to its user.
    return ApiClient(configuration, header_name="Authorization", header_value=f"Bearer {token}")


producer, support = client("dev-producer"), client("dev-support")
reminders, admin = RemindersApi(producer), AdminApi(support)


class Answer:
    """What ApiClient.deserialize reads."""

    def __init__(self, body):
        self.data = body


def problem(what, status, call, *args, **options):
    try:
        call(*args, **options)
    except ApiException as refused:
        expect(f"the status of {what}", refused.status, status)
        expect(f"the media type of {what}", refused.headers["Content-Type"], "application/problem+json")
        found = producer.deserialize(Answer(refused.body), "Problem")
        expect(f"the type of {what}", type(found), Problem)
        expect(f"the status in {what}", found.status, status)
        return found
    sys.exit(f"{what} was answered without an error")


def reminder(**changes):
    members = {
        "reminder_id": "python/1",
        "type": "seat_expiring",
        "channel": "email",
        "to": "ok@example.org",
        "content": {"subject": "Your seat is about to expire"},
        "deadline": datetime.datetime(2999, 1, 1, tzinfo=datetime.timezone.utc),
        "metadata": {"course": "algebra-1"},
    }
    members.update(changes)
    return Reminder(**members)


sent, status, _ = reminders.request_reminder_with_http_info(reminder())
expect("the status of a request", status, 200)
expect("state", sent.state, "sent")
expect("attempts", sent.attempts, 1)
expect("the type of first_seen", type(sent.first_seen), datetime.datetime)
expect("whether there is a receipt", bool(sent.receipt), True)

again, status, _ = reminders.request_reminder_with_http_info(reminder())
expect("the status of a repeated request", status, 200)
expect("id after a repeated request", again.id, sent.id)
expect("receipt after a repeated request", again.receipt, sent.receipt)
expect("attempts after a repeated request", again.attempts, 1)

entries = reminders.get_reminder("python/1").items
expect("the ids of the reminder's entries", [entry.id for entry in entries], [sent.id])

conflict = problem("a conflict", 409, reminders.request_reminder, reminder(content={"subject": "Another"}))
expect("the code of a conflict", conflict.code, "conflict")
expect("the id of a conflict's entry", conflict.entry.id, sent.id)

invalid = problem("a request without an id", 400, reminders.request_reminder, reminder(reminder_id=None))
expect("the code of a request without an id", invalid.code, "invalid")
expect("the faulty fields", [fault.field for fault in invalid.errors], ["reminder_id"])

since = datetime.datetime(2000, 1, 1, tzinfo=datetime.timezone.utc)
listed = admin.list_entries(reminder_id="python/1", state="sent", _from=since, limit=2)
expect("the ids in the list", [entry.id for entry in listed.items], [sent.id])

detail = admin.get_entry(sent.id)
expect("the id in the detail", detail.entry.id, sent.id)
expect("the masked recipient", detail.payload.to, "o***@example.org")
expect("masked", detail.payload.masked, True)
attempts = [event for event in detail.timeline if event.kind == "attempt"]
expect("the receipts of the attempts in the timeline", [event.receipt for event in attempts], [sent.receipt])
expect("the number of conflicts in the detail", len(detail.conflicts), 1)

forbidden = problem("a list for a producer", 403, AdminApi(producer).list_entries)
expect("the code of a list for a producer", forbidden.code, "forbidden")
