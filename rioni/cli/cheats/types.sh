# Types: classes for events, written from their schemas

# An event type with a schema.
cat > order.json <<'JSON'
{"required": ["order"], "properties": {
  "order": {"type": "string"}, "delivery": {"enum": ["standard", "express"]}, "total": {"type": "number"}}}
JSON
rioni event-types create cheat.types --owning-application shop --schema order.json

# A module with structs of msgspec; its head says by which command it was written.
rioni types cheat.types --output shop_events.py

# Dataclasses, which need no other package.
rioni types cheat.types --style dataclass > shop_dataclasses.py
grep -A 3 '^class' shop_dataclasses.py
