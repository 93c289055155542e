# Apply: files are the desired state of event types and subscriptions

# Definitions in YAML; several documents in a file, any number of files in a folder.
mkdir definitions
cat > definitions/order.yaml <<'END'
# yaml-language-server: $schema=../rioni.schema.json
name: cheat.apply.order
owning_application: cheat-apply
schema:
  type: json_schema
  schema:
    type: object
    required: [order]
    properties:
      order: {type: string}
      country: {enum: [de, no]}   # a text: YAML is read by the rules of version 1.2
labels: {team: checkout}
---
kind: subscription
owning_application: cheat-apply
event_types: [cheat.apply.order]
read_from: begin
END

# The JSON schema of these files, for editors that complete and check them.
rioni event-types apply --schema > rioni.schema.json

# Check everything, show the plan, carry it out. Applying the same again changes nothing.
rioni event-types check definitions
rioni event-types apply definitions --dry-run || echo "there is something to do"
rioni event-types apply definitions --yes
rioni event-types apply definitions --dry-run

# What differs from the broker, for instance of another context (`--context prod`).
sed -i 's/team: checkout/team: payment/' definitions/order.yaml
rioni event-types diff definitions || echo "they differ"
rioni event-types apply definitions --yes

# The schema may be a file of its own.
echo '{"type": "object", "properties": {"order": {"type": "string"}}}' > definitions/paid.schema.json
cat > definitions/paid.yaml <<'END'
name: cheat.apply.paid
owning_application: cheat-apply
schema_file: paid.schema.json
END
rioni event-types apply definitions --yes

# What is on a broker as files.
rioni event-types show cheat.apply.paid --yaml > paid.yaml

# Delete what no file names any more, of one application.
rm definitions/paid.yaml definitions/paid.schema.json
rioni event-types apply definitions --prune --owning-application cheat-apply --yes
