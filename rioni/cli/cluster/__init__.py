"""Real Kafka, ZooKeeper and PostgreSQL servers on this machine, for developers and for tests; never for production."""
