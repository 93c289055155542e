# Contexts: brokers by name

# A name for a broker; the first one is in use from then on.
rioni context add local --url http://localhost:8080

# A broker that asks for a token: a command that prints it is run when the token is needed. The file of contexts
# never holds a secret.
rioni context add prod --url https://broker.example.org --token-command 'cat /run/secrets/broker-token'

# A token from a variable, and an authority of your own.
rioni context add test --url https://broker.test --token-env BROKER_TEST_TOKEN --ca-certificate authority.pem

# Which ones there are, and which broker the next command would ask.
rioni context list
rioni context show

# Another one for all shells, for this shell, for one command.
rioni context use prod
export RIONI_CONTEXT=test
rioni context show local

# Without a context that is no longer needed.
unset RIONI_CONTEXT
rioni context use local
rioni context remove test
