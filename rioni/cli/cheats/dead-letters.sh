# Dead letters: events that consumers could not process

# Something to read.
echo '{"type": "object"}' > schema.json
rioni event-types create cheat.dead-letters --owning-application shop --schema schema.json

# A subscription that keeps what was sent three times and never committed.
id=$(rioni subscriptions create --owning-application shop --event-type cheat.dead-letters --send-at-most 3 --unprocessable keep)

# What it could not process: for people, and whole, as lines of JSON.
rioni dead-letters list "$id"
rioni dead-letters list "$id" --limit 1000 --json > letters.jsonl

# What a redrive would send, by error; nothing is sent.
rioni dead-letters redrive "$id" --dry-run

# When the consumer works again: send them once more, to this subscription alone.
rioni dead-letters redrive "$id"

# All of them, where there are more than the 1,000 of one request.
rioni dead-letters redrive "$id" --all
