# Completion, manual pages, output for programs

# Completion of commands, options and names for this shell; in bash also `source <(rioni completion bash)`.
rioni completion bash > rioni.bash
rioni completion zsh > _rioni
rioni completion fish > rioni.fish

# Manual pages of all commands, and of one.
rioni man --to man1
rioni man context add > rioni-context-add.1

# One JSON value a line: a list has a line for each item.
rioni cheat --json
