# Search: find events by time and content

# Something to look for.
echo '{"type": "object", "properties": {"order": {"type": "string"}, "total": {"type": "number"}}}' > schema.json
rioni event-types create cheat.search --owning-application shop --schema schema.json --partitions 4
for n in 1 2 3 4 5; do echo "{\"order\": \"A-$n\", \"total\": ${n}0}"; done | rioni publish cheat.search

# One event by a member; in all partitions at the same time.
rioni search cheat.search --filter 'event.order == "A-3"'

# In a range of time, in the order in which the broker received the events.
rioni search cheat.search --since 1h --filter 'event.total >= 20.0' --sort --columns time,partition,order,total

# Does any exist? The first one is enough. Without result the exit code is 1, as with grep.
rioni search cheat.search --filter 'event.order.startsWith("A-")' --limit 1 --no-metadata
rioni search cheat.search --filter 'event.order == "B-1"' || echo "there is none"

# By what the broker knows: flow id, publisher, partition.
rioni search cheat.search --filter 'metadata.published_by == "unauthenticated" && metadata.partition == "0"' || true

# With the place of each event, for programs.
rioni search cheat.search --filter 'event.order == "A-3"' --json
