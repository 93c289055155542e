# Storages: where events are kept

# All of them; new event types begin in the default one.
rioni storages list

# Another one, which new event types use from now on.
rioni storages create cheat --type embedded
rioni storages set-default cheat
rioni storages show cheat

# Back again, and without it.
rioni storages set-default default
rioni storages delete cheat --yes
