# Event types: create, find, show, change, delete

# A new event type from options; its schema is in a file.
cat > order.schema.json <<'END'
{"type": "object", "required": ["order"], "properties": {"order": {"type": "string"}, "total": {"type": "number"}}}
END
rioni event-types create cheat.event-types.order --owning-application shop --schema order.schema.json \
  --partition-strategy hash --partition-key order --partitions 2 --retention-days 2 --label team=checkout

# Find event types by name, owner, label or rights.
rioni event-types list
rioni event-types list --name 'cheat.event-types.*' --label team:checkout --owning-application shop

# One of them: for people, for programs, and as a definition that `apply` takes.
rioni event-types show cheat.event-types.order
rioni event-types show cheat.event-types.order --json
rioni event-types show cheat.event-types.order --yaml > order.yaml

# Change it in an editor; here sed is the editor, and nothing is asked.
EDITOR='sed -i s/checkout/payment/' rioni event-types edit cheat.event-types.order --yes

# What would a changed definition do? The exit code is 1 where something is wrong, or differs.
rioni event-types check order.yaml
rioni event-types diff order.yaml || echo "they differ"

# Who uses it.
rioni event-types producers cheat.event-types.order
rioni event-types consumers cheat.event-types.order

# Delete it with all of its events; without --yes the command says who uses it, and asks for the name.
rioni event-types delete cheat.event-types.order --yes
