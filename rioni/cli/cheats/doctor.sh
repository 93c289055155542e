# Doctor: what is wrong with a broker

# Everything that is wrong, with advice; the exit code is 1 if there are errors.
rioni doctor

# Some checks and groups only, for a program; warnings fail as well.
rioni doctor --only readiness --only connection --strict --json

# All checks, and what each of them looks at.
rioni doctor --list

# What was found, packed for those who help: without secrets and events.
rioni doctor --interval 0.1 --bundle doctor.tar.gz
tar --list --file doctor.tar.gz
