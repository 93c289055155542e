# Publish: events from files and pipes

# Something to publish to.
cat > schema.json <<'END'
{"type": "object", "required": ["order"], "properties": {
  "order": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}, "total": {"type": "number"}}},
  "paid": {"type": ["boolean", "null"]}}}
END
rioni event-types create cheat.publish --owning-application shop --schema schema.json

# An event from the shell, several from a file; what is missing in the metadata is added.
echo '{"order": {"id": "A-1", "total": 12.5}}' | rioni publish cheat.publish
printf '%s\n' '{"order": {"id": "A-2"}}' '{"order": {"id": "A-3"}}' > orders.jsonl
rioni publish cheat.publish orders.jsonl

# From CSV: headers with dots are members of members, types are those of the schema.
printf '%s\n' 'order.id,order.total,paid' 'B-1,7.20,true' 'B-2,3,' > orders.csv
rioni publish cheat.publish orders.csv --dry-run
rioni publish cheat.publish orders.csv

# Columns that the schema does not know are texts, unless you say what they are.
printf '%s\n' 'order.id,order.weight,order.tags' 'C-1,0.5,"[""gift""]"' > more.csv
rioni publish cheat.publish more.csv --types order.weight=number,order.tags=json

# Pretty-printed JSON, an array, a compressed file: all of it works.
echo '[{"order": {"id": "D-1"}}, {"order": {"id": "D-2"}}]' | gzip > orders.json.gz
rioni publish cheat.publish orders.json.gz

# Some events are refused: name them, go on, keep them to mend them. The exit code is 1.
printf '%s\n' '{"order": {"id": "E-1"}}' '{"order": {}}' '{"order": {"id": "E-2"}}' > mixed.jsonl
rioni publish cheat.publish mixed.jsonl --continue --rejected rejected.jsonl || cat rejected.jsonl

# After an interruption: the same command again stores only what is missing.
rioni publish cheat.publish orders.jsonl --once
rioni publish cheat.publish orders.jsonl --once

# Events of compacted event types have keys; they are deleted by these.
rioni event-types create cheat.publish.customer --owning-application shop --schema schema.json --cleanup-policy compact
rioni publish cheat.publish.customer orders.jsonl --key order.id
rioni events delete cheat.publish.customer A-2 A-3 --yes
