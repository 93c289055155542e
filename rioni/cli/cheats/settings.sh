# Settings that change while a broker runs

# Who administers the broker itself.
rioni settings admins
rioni settings set-admins --admin user:jane --admin service:deploy --reader '*:*' --writer '*:*' --yes

# What you may do with the broker.
rioni settings rights

# Features, and one of them switched on and off.
rioni settings features
rioni settings enable access_log_enabled
rioni settings disable access_log_enabled

# An application that may not publish for a while.
rioni settings block PRODUCER_APP shop
rioni settings blacklist
rioni settings unblock PRODUCER_APP shop

# What was blocked at the beginning of the log.
rioni settings blacklist --as-of 1
