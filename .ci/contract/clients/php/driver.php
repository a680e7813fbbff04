<?php

// Uses the PHP client that OpenAPI Generator makes of openapi.yaml: driver.php CLIENT URL
//
// CLIENT is the folder of the client. The gateway of `sendonce dev` at URL must be one that this driver has not
// met before.

declare(strict_types=1);

use GuzzleHttp\Client;
use OpenAPI\Client\Api\AdminApi;
use OpenAPI\Client\Api\RemindersApi;
use OpenAPI\Client\ApiException;
use OpenAPI\Client\Configuration;
use OpenAPI\Client\Model\Problem;
use OpenAPI\Client\Model\Reminder;
use OpenAPI\Client\Model\State;

[, $folder, $url] = $argv;

require_once 'GuzzleHttp/autoload.php';
spl_autoload_register(function (string $class) use ($folder): void {
    if (str_starts_with($class, 'OpenAPI\\Client\\')) {
        require_once $folder . '/lib/' . strtr(substr($class, strlen('OpenAPI\\Client\\')), '\\', '/') . '.php';
    }
});

function fail(string $message): never
{
    fwrite(STDERR, $message . "\n");
    exit(1);
}

function expect(string $what, mixed $got, mixed $want): void
{
    if ($got !== $want) {
        fail("$what is " . var_export($got, true) . ', not ' . var_export($want, true));
    }
}

function problem(string $what, int $status, callable $call): Problem
{
    try {
        $call();
    } catch (ApiException $e) {
        expect("the status of $what", $e->getCode(), $status);
        expect("the media type of $what", $e->getResponseHeaders()['Content-Type'], ['application/problem+json']);
        $found = $e->getResponseObject();
        expect("the class of $what", get_debug_type($found), Problem::class);
        expect("the faults of $what", $found->listInvalidProperties(), []);
        expect("the status in $what", $found->getStatus(), $status);
        return $found;
    }
    fail("$what was answered without an error");
}

function reminder(array $changes = []): Reminder
{
    return new Reminder(array_filter($changes + [
        'reminder_id' => 'php/1',
        'type' => 'seat_expiring',
        'channel' => 'email',
        'to' => 'ok@example.org',
        'content' => ['subject' => 'Your seat is about to expire'],
        'deadline' => new DateTime('2999-01-01T00:00:00Z'),
        'metadata' => ['course' => 'algebra-1'],
    ], fn ($value) => $value !== null));
}

$as = fn (string $token): Configuration => (new Configuration())->setHost($url)->setAccessToken($token);
$reminders = new RemindersApi(new Client(), $as('dev-producer'));
$admin = new AdminApi(new Client(), $as('dev-support'));

[$sent, $status] = $reminders->requestReminderWithHttpInfo(reminder());
expect('the status of a request', $status, 200);
expect('state', $sent->getState(), State::SENT);
expect('attempts', $sent->getAttempts(), 1);
expect('the class of first_seen', get_debug_type($sent->getFirstSeen()), DateTime::class);
expect('whether there is a receipt', (string) $sent->getReceipt() !== '', true);

[$again, $status] = $reminders->requestReminderWithHttpInfo(reminder());
expect('the status of a repeated request', $status, 200);
expect('id after a repeated request', $again->getId(), $sent->getId());
expect('receipt after a repeated request', $again->getReceipt(), $sent->getReceipt());
expect('attempts after a repeated request', $again->getAttempts(), 1);

$ids = fn (array $entries): array => array_map(fn ($entry) => $entry->getId(), $entries);
expect("the ids of the reminder's entries", $ids($reminders->getReminder('php/1')->getItems()), [$sent->getId()]);

$conflict = problem('a conflict', 409, fn () => $reminders->requestReminder(reminder(['content' => ['subject' => 'Another']])));
expect('the code of a conflict', $conflict->getCode(), 'conflict');
expect("the id of a conflict's entry", $conflict->getEntry()->getId(), $sent->getId());

$invalid = problem('a request without an id', 400, fn () => $reminders->requestReminder(reminder(['reminder_id' => null])));
expect('the code of a request without an id', $invalid->getCode(), 'invalid');
expect('the faulty fields', array_map(fn ($fault) => $fault->getField(), $invalid->getErrors()), ['reminder_id']);

// A time as text: this version of the generator puts no DateTime into a query.
$listed = $admin->listEntries(reminder_id: 'php/1', state: State::SENT, from: '2000-01-01T00:00:00Z', limit: 2);
expect('the ids in the list', $ids($listed->getItems()), [$sent->getId()]);

$detail = $admin->getEntry($sent->getId());
expect('the id in the detail', $detail->getEntry()->getId(), $sent->getId());
expect('the masked recipient', $detail->getPayload()->getTo(), 'o***@example.org');
expect('masked', $detail->getPayload()->getMasked(), true);
$attempts = array_filter($detail->getTimeline(), fn ($event) => $event->getKind() === 'attempt');
expect('the receipts of the attempts in the timeline', array_values(array_map(fn ($event) => $event->getReceipt(), $attempts)), [$sent->getReceipt()]);
expect('the number of conflicts in the detail', count($detail->getConflicts()), 1);

$forbidden = problem('a list for a producer', 403, fn () => (new AdminApi(new Client(), $as('dev-producer')))->listEntries());
expect('the code of a list for a producer', $forbidden->getCode(), 'forbidden');
