# Copy: events between event types and brokers

# Something to copy.
echo '{"type": "object", "properties": {"order": {"type": "string"}, "total": {"type": "number"}}}' > schema.json
rioni event-types create cheat.copy --owning-application shop --schema schema.json
for n in 1 2 3 4 5; do echo "{\"order\": \"A-$n\", \"total\": ${n}0}"; done | rioni publish cheat.copy

# To an event type that is made like the source; with its ids and times, or new ones.
rioni copy cheat.copy cheat.copy.all --create
rioni copy cheat.copy cheat.copy.new --create --new-metadata

# Only some events.
rioni copy cheat.copy cheat.copy.large --create --filter 'event.total >= 40.0' --since 1h

# Between brokers: contexts name them.
rioni context add here --url "$RIONI_URL"
rioni context add there --url "$RIONI_URL"
rioni copy cheat.copy cheat.copy.there --create --from-context here --to-context there

# So that it goes on where it was after an interruption; again, and only what is new is copied.
rioni copy cheat.copy cheat.copy.kept --create --state orders.copy
echo '{"order": "A-6"}' | rioni publish cheat.copy
rioni copy cheat.copy cheat.copy.kept --state orders.copy

# With what is published from now on: until Ctrl-C, or up to a time.
rioni copy cheat.copy cheat.copy.followed --create --follow --until "$(date -u -d '+2 seconds' +%FT%TZ)"
