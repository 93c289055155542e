# The state of a broker, and who changed what

# Whether it answers, makes progress, and can serve requests: the exit code is 1 if a check fails.
rioni monitoring health
rioni monitoring live
rioni monitoring ready
rioni monitoring version

# Its nodes with their worker processes, connections, streams and requests a second.
rioni monitoring nodes

# Its metrics, and the description of its API.
rioni monitoring metrics --name rioni_http_requests
rioni monitoring history --name requests --step 60
rioni monitoring history --name lag_events --parts --largest --limit 10
rioni monitoring openapi > openapi.json
rioni monitoring docs > api.html

# Who changed what since the first of January, newest first, and which requests were refused.
rioni audit list --since 2026-01-01 --limit 20
rioni audit list --resource storage:default --states --json
rioni audit denials --limit 20

# Archives and backups, and how far they are.
rioni jobs list
rioni jobs list --kind backup

# Rebuilds of the read models, and how far they are.
rioni rebuilds list
rioni rebuilds show

# Count event types by owner, category, clean-up policy and label, and those that nobody used for 60 days.
rioni event-types facets --unused-days 60
