CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

INSERT INTO "alembic_version" VALUES('0011');

CREATE TABLE audit_log (
	position BIGINT NOT NULL, 
	recorded_at TEXT NOT NULL, 
	actor TEXT NOT NULL, 
	client TEXT NOT NULL, 
	flow_id TEXT NOT NULL, 
	command_id TEXT NOT NULL, 
	topic TEXT NOT NULL, 
	resource_type TEXT NOT NULL, 
	resource TEXT NOT NULL, 
	"before" TEXT, 
	"after" TEXT, 
	PRIMARY KEY (position)
);

CREATE TABLE denials (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	first_at TEXT NOT NULL, 
	last_at TEXT NOT NULL, 
	status INTEGER NOT NULL, 
	method TEXT NOT NULL, 
	path TEXT NOT NULL, 
	actor TEXT NOT NULL, 
	address TEXT NOT NULL, 
	user_agent TEXT NOT NULL, 
	flow_id TEXT NOT NULL, 
	count BIGINT NOT NULL
);

CREATE TABLE ended_sessions (
	id TEXT NOT NULL, 
	until_s BIGINT NOT NULL, 
	PRIMARY KEY (id)
);

CREATE TABLE event_types (
	name TEXT NOT NULL, 
	owning_application TEXT NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (name)
);

CREATE TABLE generations (
	name TEXT NOT NULL, 
	tables TEXT NOT NULL, 
	created_at TEXT NOT NULL, 
	position BIGINT NOT NULL, 
	hash BLOB NOT NULL, 
	PRIMARY KEY (name)
);

CREATE TABLE head (
	id INTEGER NOT NULL, 
	position BIGINT NOT NULL, 
	hash BLOB NOT NULL, format INTEGER DEFAULT '1' NOT NULL, 
	PRIMARY KEY (id)
);

INSERT INTO "head" VALUES(1,0,X'0000000000000000000000000000000000000000000000000000000000000000',1);

CREATE TABLE log (
	position INTEGER NOT NULL, 
	stream TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	topic TEXT NOT NULL, 
	recorded_at TEXT NOT NULL, 
	actor TEXT NOT NULL, 
	client TEXT NOT NULL, 
	flow_id TEXT NOT NULL, 
	command_id TEXT NOT NULL, 
	data BLOB NOT NULL, 
	hash BLOB NOT NULL, 
	PRIMARY KEY (position), 
	CONSTRAINT uq_log_stream_version UNIQUE (stream, version)
);

CREATE TABLE log_cosignatures (
	witness TEXT NOT NULL, 
	size BIGINT NOT NULL, 
	text TEXT NOT NULL, 
	signature TEXT NOT NULL, 
	PRIMARY KEY (witness)
);

CREATE TABLE log_tiles (
	level INTEGER NOT NULL, 
	number BIGINT NOT NULL, 
	hashes BLOB NOT NULL, 
	root BLOB NOT NULL, 
	PRIMARY KEY (level, number)
);

CREATE TABLE marks (
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (name)
);

CREATE TABLE rebuild_tasks (
	rebuild TEXT NOT NULL, 
	task INTEGER NOT NULL, 
	batches INTEGER NOT NULL, 
	rows TEXT NOT NULL, 
	PRIMARY KEY (rebuild, task)
);

CREATE TABLE rebuilds (
	id TEXT NOT NULL, 
	started_at TEXT NOT NULL, 
	updated_at TEXT NOT NULL, 
	state TEXT NOT NULL, 
	phase TEXT NOT NULL, 
	done BIGINT NOT NULL, 
	total BIGINT NOT NULL, 
	detail TEXT NOT NULL, 
	"plan" TEXT NOT NULL, 
	PRIMARY KEY (id)
);

CREATE TABLE schemas (
	event_type TEXT NOT NULL, 
	version TEXT NOT NULL, 
	position BIGINT NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (event_type, version)
);

CREATE TABLE states (
	stream TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	state TEXT, 
	PRIMARY KEY (stream)
);

CREATE TABLE storages (
	id TEXT NOT NULL, 
	is_default BOOLEAN NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (id)
);

CREATE TABLE subscription_event_types (
	subscription_id TEXT NOT NULL, 
	event_type TEXT NOT NULL, 
	PRIMARY KEY (subscription_id, event_type)
);

CREATE TABLE subscriptions (
	id TEXT NOT NULL, 
	natural_key TEXT NOT NULL, 
	owning_application TEXT NOT NULL, 
	created_at TEXT NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (id)
);

CREATE TABLE timelines (
	event_type TEXT NOT NULL, 
	"order" INTEGER NOT NULL, 
	storage_id TEXT NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (event_type, "order")
);

CREATE TABLE tracking (
	name TEXT NOT NULL, 
	position BIGINT NOT NULL, fold INTEGER DEFAULT '0' NOT NULL, 
	PRIMARY KEY (name)
);

CREATE INDEX ix_log_command_id ON log (command_id);

CREATE INDEX ix_states_kind ON states (kind, "key");

CREATE INDEX ix_subscriptions_created_at ON subscriptions (created_at, id);

CREATE INDEX ix_subscription_event_types_event_type ON subscription_event_types (event_type);

CREATE INDEX ix_audit_log_actor ON audit_log (actor, position);

CREATE INDEX ix_audit_log_flow_id ON audit_log (flow_id, position);

CREATE INDEX ix_audit_log_kind ON audit_log (resource_type, position);

CREATE INDEX ix_audit_log_resource ON audit_log (resource_type, resource, position, topic);

CREATE INDEX ix_audit_log_topic ON audit_log (topic, position);

CREATE INDEX ix_ended_sessions_until_s ON ended_sessions (until_s);
