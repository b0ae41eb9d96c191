package outbox

import "strings"

// Schema returns the statements that create the tables of an outbox. Each ends with a semicolon and
// has IF NOT EXISTS, so existing tables are left alone. An empty table means [DefaultTable]. The
// tables are:
//
//   - table: the waiting events
//   - table_refused: the events that the bus refused for good
//   - table_relay: one row, the lease of the active relay
//   - table_inbox: the deliveries that [Inbox.First] has seen
func Schema(dialect Dialect, table string) (string, error) {
	d, err := dialectOf(dialect)
	if err != nil {
		return "", err
	}
	o := Options{Table: table}.withDefaults()
	if err := checkTable(o.Table); err != nil {
		return "", err
	}
	t := d.tables(o.Table)
	schema, bare, found := strings.Cut(t.inbox, ".")
	if !found {
		schema, bare = "", t.inbox
	}
	index, on := strings.TrimSuffix(bare, d.quote)+"_created"+d.quote, t.inbox
	if found && d.name == SQLite { // there the schema belongs to the name of the index
		index, on = schema+"."+index, bare
	}
	return strings.NewReplacer(
		"{waiting}", t.waiting, "{refused}", t.refused, "{relay}", t.relay, "{inbox}", t.inbox, "{index}", index, "{on}", on,
	).Replace(schemas[d.name]), nil
}

// Event IDs and keys are in binary columns, because these accept any text, even control
// characters, and compare it exactly.
var schemas = map[Dialect]string{
	Postgres: `CREATE TABLE IF NOT EXISTS {waiting} (
  id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  topic     text   NOT NULL,
  event_id  bytea  NOT NULL,
  event_key bytea  NOT NULL,
  headers   text   NOT NULL, -- a JSON object
  payload   bytea  NOT NULL,
  created   bigint NOT NULL  -- milliseconds since 1970
);
CREATE TABLE IF NOT EXISTS {refused} (
  id        bigint PRIMARY KEY,
  topic     text   NOT NULL,
  event_id  bytea  NOT NULL,
  event_key bytea  NOT NULL,
  headers   text   NOT NULL,
  payload   bytea  NOT NULL,
  created   bigint NOT NULL,
  refused   bigint NOT NULL, -- milliseconds since 1970
  reason    text   NOT NULL
);
CREATE TABLE IF NOT EXISTS {relay} (
  id      bigint PRIMARY KEY,
  owner   text   NOT NULL,
  expires bigint NOT NULL, -- milliseconds since 1970
  span    bigint NOT NULL  -- milliseconds
);
CREATE TABLE IF NOT EXISTS {inbox} (
  topic        text   NOT NULL,
  member_group text   NOT NULL,
  event_id     bytea  NOT NULL,
  created      bigint NOT NULL, -- milliseconds since 1970
  PRIMARY KEY (topic, member_group, event_id)
);
CREATE INDEX IF NOT EXISTS {index} ON {on} (created);
`,
	MySQL: `CREATE TABLE IF NOT EXISTS {waiting} (
  id        BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
  topic     VARBINARY(200) NOT NULL,
  event_id  VARBINARY(512) NOT NULL,
  event_key VARBINARY(512) NOT NULL,
  headers   MEDIUMBLOB     NOT NULL, -- a JSON object
  payload   MEDIUMBLOB     NOT NULL,
  created   BIGINT         NOT NULL  -- milliseconds since 1970
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS {refused} (
  id        BIGINT          NOT NULL PRIMARY KEY,
  topic     VARBINARY(200)  NOT NULL,
  event_id  VARBINARY(512)  NOT NULL,
  event_key VARBINARY(512)  NOT NULL,
  headers   MEDIUMBLOB      NOT NULL,
  payload   MEDIUMBLOB      NOT NULL,
  created   BIGINT          NOT NULL,
  refused   BIGINT          NOT NULL, -- milliseconds since 1970
  reason    VARBINARY(2000) NOT NULL
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS {relay} (
  id      BIGINT         NOT NULL PRIMARY KEY,
  owner   VARBINARY(200) NOT NULL,
  expires BIGINT         NOT NULL, -- milliseconds since 1970
  span    BIGINT         NOT NULL  -- milliseconds
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS {inbox} (
  topic        VARBINARY(200) NOT NULL,
  member_group VARBINARY(200) NOT NULL,
  event_id     VARBINARY(512) NOT NULL,
  created      BIGINT         NOT NULL, -- milliseconds since 1970
  PRIMARY KEY (topic, member_group, event_id),
  KEY {index} (created)
) ENGINE = InnoDB;
`,
	// AUTOINCREMENT never gives the number of a deleted row to another one.
	SQLite: `CREATE TABLE IF NOT EXISTS {waiting} (
  id        INTEGER PRIMARY KEY AUTOINCREMENT,
  topic     TEXT    NOT NULL,
  event_id  BLOB    NOT NULL,
  event_key BLOB    NOT NULL,
  headers   TEXT    NOT NULL, -- a JSON object
  payload   BLOB    NOT NULL,
  created   INTEGER NOT NULL  -- milliseconds since 1970
);
CREATE TABLE IF NOT EXISTS {refused} (
  id        INTEGER PRIMARY KEY,
  topic     TEXT    NOT NULL,
  event_id  BLOB    NOT NULL,
  event_key BLOB    NOT NULL,
  headers   TEXT    NOT NULL,
  payload   BLOB    NOT NULL,
  created   INTEGER NOT NULL,
  refused   INTEGER NOT NULL, -- milliseconds since 1970
  reason    TEXT    NOT NULL
);
CREATE TABLE IF NOT EXISTS {relay} (
  id      INTEGER PRIMARY KEY,
  owner   TEXT    NOT NULL,
  expires INTEGER NOT NULL, -- milliseconds since 1970
  span    INTEGER NOT NULL  -- milliseconds
);
CREATE TABLE IF NOT EXISTS {inbox} (
  topic        TEXT    NOT NULL,
  member_group TEXT    NOT NULL,
  event_id     BLOB    NOT NULL,
  created      INTEGER NOT NULL, -- milliseconds since 1970
  PRIMARY KEY (topic, member_group, event_id)
);
CREATE INDEX IF NOT EXISTS {index} ON {on} (created);
`,
}
