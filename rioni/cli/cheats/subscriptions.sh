# Subscriptions: create, lag, reset, watch

# Something to read.
echo '{"type": "object", "properties": {"order": {"type": "string"}}}' > schema.json
rioni event-types create cheat.subscriptions --owning-application shop --schema schema.json

# A subscription; the command prints its id, also where it existed.
id=$(rioni subscriptions create --owning-application shop --event-type cheat.subscriptions --read-from begin)
rioni subscriptions show "$id"

# With a filter, and dead letters after three times that an event was sent and not committed.
rioni subscriptions create --owning-application shop --event-type cheat.subscriptions --consumer-group large \
  --filter 'event.order.startsWith("large")' --send-at-most 3 --unprocessable keep

# Try a filter on events: which of them it delivers, and which of its parts decides.
printf '{"order": "large-1"}' > tried.jsonl
rioni subscriptions try-filter 'event.order.startsWith("large") && has(event.order)' tried.jsonl

# Those of an event type, with the streams that read them.
rioni subscriptions list --event-type cheat.subscriptions --status

# Where would the cursors be, and how many events would come again? Then move them.
rioni subscriptions reset "$id" --to begin --dry-run
rioni subscriptions reset "$id" --to begin --yes
rioni subscriptions reset "$id" --to 2h --yes
rioni subscriptions reset "$id" --to committed --shift -10 --yes
rioni subscriptions reset "$id" --cursor 0:BEGIN --yes
rioni subscriptions cursors "$id"

# Consume it: write the events, commit those that are written, end after two or when nothing comes.
printf '%s\n' '{"order": "A-1"}' '{"order": "A-2"}' '{"order": "A-3"}' | rioni publish cheat.subscriptions
rioni subscriptions consume "$id" --limit 2
rioni subscriptions consume "$id" --partition 0 --limit 1 --no-metadata
rioni subscriptions consume "$id" --idle 2

# How far it is, by partition; all of an application; as a check for monitoring, with the exit code 1.
rioni subscriptions lag "$id"
rioni subscriptions lag --owning-application shop --by event-type
rioni subscriptions lag "$id" --fail-above 1000 --fail-above-seconds 3600

# Why its streams ended, and how often.
rioni subscriptions ended-streams "$id"

# Live: a table on a terminal, else lines. Without --count until Ctrl-C.
rioni subscriptions watch --owning-application shop --every 0.1 --count 2

# Change filter, rights, labels or annotations in an editor; here sed is the editor.
EDITOR='sed -i "s/^labels: {}/labels: {team: checkout}/"' rioni subscriptions edit "$id" --yes

# Delete it with its cursors.
rioni subscriptions delete "$id" --yes
