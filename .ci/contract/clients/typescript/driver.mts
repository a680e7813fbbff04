// Uses the types that openapi-typescript makes of openapi.yaml, with openapi-fetch: driver.mjs URL
//
// The gateway of `sendonce dev` at URL must be one that this driver has not met before.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

type Reminder = components["schemas"]["Reminder"];

declare const process: { argv: string[] };

function expect(what: string, got: unknown, want: unknown): void {
  if (got !== want) throw new Error(`${what} is ${JSON.stringify(got)}, not ${JSON.stringify(want)}`);
}

function present<T>(what: string, value: T | undefined): T {
  if (value === undefined) throw new Error(`there is no ${what}`);
  return value;
}

const baseUrl = present("URL among the arguments", process.argv[2]);
const as = (token: string) => createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });
const producer = as("dev-producer");
const support = as("dev-support");

const reminder: Reminder = {
  reminder_id: "typescript/1",
  type: "seat_expiring",
  channel: "email",
  to: "ok@example.org",
  content: { subject: "Your seat is about to expire" },
  deadline: "2999-01-01T00:00:00Z",
  metadata: { course: "algebra-1" },
};

const first = await producer.POST("/v1/reminders", { body: reminder });
expect("the status of a request", first.response.status, 200);
const sent = present("entry in the answer", first.data);
expect("state", sent.state, "sent");
expect("attempts", sent.attempts, 1);
const receipt = present("receipt", sent.receipt);

const repeated = await producer.POST("/v1/reminders", { body: reminder });
expect("the status of a repeated request", repeated.response.status, 200);
const again = present("entry in the answer to a repeated request", repeated.data);
expect("id after a repeated request", again.id, sent.id);
expect("receipt after a repeated request", again.receipt, receipt);
expect("attempts after a repeated request", again.attempts, 1);

const read = await producer.GET("/v1/reminders/{reminder_id}", { params: { path: { reminder_id: "typescript/1" } } });
expect("the status of a reminder", read.response.status, 200);
const entries = present("list of the reminder's entries", read.data).items;
expect("the number of the reminder's entries", entries.length, 1);
expect("the id of the reminder's entry", entries[0]?.id, sent.id);

const other = await producer.POST("/v1/reminders", { body: { ...reminder, content: { subject: "Another" } } });
expect("the status of a conflict", other.response.status, 409);
const conflict = present("problem in the answer to a conflict", other.error);
expect("the code of a conflict", conflict.code, "conflict");
expect("the id of a conflict's entry", conflict.entry?.id, sent.id);

const { reminder_id: _, ...nameless } = reminder;
const wrong = await producer.POST("/v1/reminders", { body: nameless });
expect("the status of a request without an id", wrong.response.status, 400);
expect("the media type of a problem", wrong.response.headers.get("Content-Type"), "application/problem+json");
const invalid = present("problem in the answer to a request without an id", wrong.error);
expect("the code of a request without an id", invalid.code, "invalid");
expect("the faulty field", invalid.errors?.[0]?.field, "reminder_id");

const listed = await support.GET("/v1/admin/entries", {
  params: { query: { reminder_id: "typescript/1", state: "sent", from: "2000-01-01T00:00:00Z", limit: 2 } },
});
expect("the status of a list", listed.response.status, 200);
const items = present("list", listed.data).items;
expect("the length of the list", items.length, 1);
expect("the id in the list", items[0]?.id, sent.id);

const opened = await support.GET("/v1/admin/entries/{id}", { params: { path: { id: sent.id } } });
expect("the status of a detail", opened.response.status, 200);
const detail = present("detail", opened.data);
expect("the id in the detail", detail.entry.id, sent.id);
expect("the masked recipient", detail.payload?.to, "o***@example.org");
expect("masked", detail.payload?.masked, true);
expect("the number of attempts in the timeline", detail.timeline.filter((e) => e.kind === "attempt").length, 1);
expect("the receipt in the timeline", detail.timeline[0]?.receipt, receipt);
expect("the number of conflicts in the detail", detail.conflicts.length, 1);

const refused = await producer.GET("/v1/admin/entries", {});
expect("the status of a list for a producer", refused.response.status, 403);
expect("the code of a list for a producer", refused.error?.code, "forbidden");
