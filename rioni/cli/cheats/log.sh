# Proofs that the log was never changed

# A signed checkpoint to keep, and the key that it is signed with.
rioni log checkpoint > monday.checkpoint
rioni log key
rioni log keys

# Later: the proof that the log begins with what it was then, and that it has the entry at a position. The second
# line of a checkpoint is the number of entries.
rioni log consistency "$(sed -n 2p monday.checkpoint)"
rioni log inclusion 1

# The hashes themselves.
rioni log tile 0 "000.p/$(sed -n 2p monday.checkpoint)" --output hashes
rioni log tile entries "000.p/$(sed -n 2p monday.checkpoint)" --output entries

# A witness verifies all of that each time, and cosigns. The broker keeps the cosignatures of witnesses that it knows, by
# the setting log_witnesses; others can be given to it later.
rioni witness --state broker.witness --key auditor.key --name auditor
rioni log checkpoint --cosigned > cosigned.checkpoint
rioni log cosign cosigned.checkpoint
