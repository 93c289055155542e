# Tail: events as they are published, or were

# Something to look at.
echo '{"type": "object", "properties": {"order": {"type": "string"}, "total": {"type": "number"}}}' > schema.json
rioni event-types create cheat.tail --owning-application shop --schema schema.json --partitions 2
for n in 1 2 3 4 5; do echo "{\"order\": \"A-$n\", \"total\": ${n}0}"; done | rioni publish cheat.tail

# Everything that there is, each event as a line of JSON; without --no-follow it goes on until Ctrl-C.
rioni tail cheat.tail --no-follow

# The last ones; those since ten minutes, up to a time; those of a partition from an offset on.
rioni tail cheat.tail --last 3 --no-follow
rioni tail cheat.tail --since 10m --no-follow
rioni tail cheat.tail --since 2026-01-31 --until 2026-01-31T12:00:00Z
rioni tail cheat.tail --partition 0 --from-offset begin --no-follow

# Wait for two events that fit a filter, then end.
rioni tail cheat.tail --since 10m --filter 'event.total > 30.0 && event.order != "A-9"' --limit 2

# As a table, with columns of your own, by a template, without metadata.
rioni tail cheat.tail --table --no-follow
rioni tail cheat.tail --columns time,partition,order,total --no-follow
rioni tail cheat.tail --template '{metadata.eid}\t{order}\t{total:>8.2f}' --no-follow
rioni tail cheat.tail --no-metadata --no-follow

# For programs: with the cursor of each event.
rioni tail cheat.tail --json --last 1 --no-follow

# In a browser, or wherever no token can be sent: the address of one stream, which may be opened within a minute.
rioni event-types ticket cheat.tail

# From one event type to another one, by a pipe.
rioni event-types create cheat.tail.copy --owning-application shop --schema schema.json
rioni tail cheat.tail --no-follow | grep A-1 | rioni publish cheat.tail.copy

# Several event types together.
rioni tail cheat.tail cheat.tail.copy --columns time,event_type,order --no-follow
