# Consume a subscription

# An event type with some events, and a subscription that sends an event twice at most before it is a dead letter.
echo '{"type": "object", "properties": {"order": {"type": "string"}}}' > order.json
rioni event-types create cheat.consume --owning-application shop --schema order.json
printf '%s\n' '{"order": "1"}' '{"order": "2"}' '{"order": "3"}' | rioni publish cheat.consume
id=$(rioni subscriptions create --owning-application shop --event-type cheat.consume --read-from begin \
  --send-at-most 2 --unprocessable keep)

# Its events as lines of JSON, which are committed as they are written; without --limit until Ctrl-C.
rioni subscriptions consume "$id" --limit 1 --template '{order}\t{metadata.occurred_at}'

# Look at events without committing them. The subscription counts that as a failure: after two, it sends the events one by
# one, and the one that fails then becomes a dead letter.
for _ in 1 2 3 4; do rioni subscriptions consume "$id" --no-commit --limit 1; done
rioni subscriptions consume "$id" --limit 1

# The dead letters, and publish them again, for this subscription alone.
rioni dead-letters list "$id"
rioni dead-letters redrive "$id"
rioni subscriptions consume "$id" --limit 1 --partition 0 --json

# A stream of a consumer that hangs: commit for it, or end it, so that others get its partitions.
rioni subscriptions consume "$id" --no-commit > events.jsonl &
until stream=$(rioni subscriptions lag "$id" --json | grep -o '"streams":\["[^"]*' | cut -d '"' -f 4); do sleep 0.1; done
rioni subscriptions commit "$id" --stream-id "$stream" 0:001-0001-000000000000000002
rioni subscriptions close-stream "$id" "$stream"
kill $!
wait
