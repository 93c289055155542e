# Schemas, partitions and timelines of an event type

# An event type with a schema.
echo '{"type": "object", "properties": {"order": {"type": "string"}}}' > order.json
rioni event-types create cheat.schemas --owning-application shop --schema order.json

# A wider schema: first whether it may follow, then as a new version.
echo '{"type": "object", "properties": {"order": {"type": "string"}, "note": {"type": "string"}}}' > wider.json
rioni schemas check cheat.schemas wider.json
rioni schemas add cheat.schemas wider.json

# All versions, one of them as a file, and the version that has a schema.
rioni schemas list cheat.schemas
rioni schemas show cheat.schemas 1.0.0 > first.json
rioni schemas find cheat.schemas first.json

# Partitions, the oldest and newest offset of each, and how many events there are after a place.
echo '{"order": "1"}' | rioni publish cheat.schemas
rioni partitions list cheat.schemas
rioni partitions show cheat.schemas 0
rioni partitions lag cheat.schemas 0:BEGIN
rioni partitions distance cheat.schemas 0 001-0001--1 001-0001-000000000000000000
rioni partitions shift cheat.schemas --by -1 0:001-0001-000000000000000000

# More partitions, which can't be undone.
rioni partitions set-count cheat.schemas 2 --yes

# Another storage for the events to come; those that there are stay where they are.
rioni storages create cheat.schemas --type embedded
rioni timelines create cheat.schemas cheat.schemas
rioni timelines list cheat.schemas

# What all event types share.
rioni registry partition-strategies
rioni registry enrichment-strategies
rioni registry avro-schemas batch.publishing
rioni registry avro-schema batch.publishing 1 > batch.avsc
