//! What the server says of a table that is to be followed, of its publication and its slot; and what is missing.

use super::super::table::{Described, TableColumn, describe_sql};
use super::super::types::{Form, PostgresDialect, literal, quote_part};
use crate::cdc::follow::{Followed, text_rows};
use crate::cdc::position::Offset;
use crate::driver::{Connection, DbError, Dialect};

/// The first version of PostgreSQL that sends changes in binary, as its setting `server_version_num` has it.
const VERSION_MIN: u32 = 140_000;

/// A column.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub described: TableColumn,
    /// The object identifier of its type.
    pub oid: u32,
}

/// A table.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub oid: u32,
    pub schema: String,
    pub name: String,
    pub columns: Vec<Column>,
    /// It has partitions, whose changes are published as those of the whole.
    pub partitioned: bool,
}

/// A replication slot.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// What was confirmed: the log is kept from here on.
    pub confirmed: Offset,
}

/// An LSN from its text.
///
/// # Errors
/// It is none.
pub(super) fn lsn(text: &str) -> Result<Offset, DbError> {
    let parsed = text
        .split_once('/')
        .and_then(|(high, low)| Some((u64::from_str_radix(high, 16).ok()? << 32) | u64::from(u32::from_str_radix(low, 16).ok()?)));
    parsed.map(Offset::at).ok_or_else(|| DbError::fatal(format!("the server gives '{text}' for a place in its log")))
}

fn text(row: &[Option<String>], at: usize) -> &str {
    row.get(at).and_then(|v| v.as_deref()).unwrap_or_default()
}

impl Table {
    /// Asks for a table and looks whether it can be followed.
    ///
    /// # Errors
    /// There is none; what the server or the table lacks.
    pub fn load(connection: &mut dyn Connection, followed: &Followed, upsert: bool) -> Result<Self, DbError> {
        let name = &followed.table;
        let server = text_rows(connection, "SELECT current_setting('wal_level'), current_setting('server_version_num')", 2)?;
        let server = server.first().map(Vec::as_slice).unwrap_or_default();
        if text(server, 1).parse().unwrap_or(0) < VERSION_MIN {
            return Err(DbError::fatal("changes are read from PostgreSQL 14 or later"));
        }
        if text(server, 0) != "logical" {
            return Err(DbError::fatal(format!(
                "the server's wal_level is {}; set wal_level = logical in its configuration and start it again",
                text(server, 0)
            )));
        }
        let quoted = literal(&PostgresDialect.quote(name));
        // The tree of a table that is neither partitioned nor a partition has nothing in it, not even the table.
        let sql = format!(
            "SELECT c.oid, n.nspname, c.relname, c.relkind, (SELECT count(*) FROM pg_catalog.pg_class l WHERE l.relkind = 'r' AND \
             (l.oid = c.oid OR l.oid IN (SELECT p.relid FROM pg_catalog.pg_partition_tree(c.oid) p)) AND l.relreplident <> 'f') \
             FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass({quoted})"
        );
        let rows = text_rows(connection, &sql, 5)?;
        let row = rows.first().ok_or_else(|| DbError::fatal(format!("there is no table {name}")))?;
        let partitioned = text(row, 3) == "p";
        if !partitioned && text(row, 3) != "r" {
            return Err(DbError::fatal(format!("{name} is no table, and only tables have changes")));
        }
        if !upsert && text(row, 4) != "0" {
            return Err(DbError::fatal(format!(
                "table {name} does not write old rows to the log; run ALTER TABLE {name} REPLICA IDENTITY FULL (on each partition, if \
                 it has \
                 some), or use 'changelog-mode' = 'upsert'"
            )));
        }
        let described = Described::of(&text_rows(connection, &describe_sql(name), 9)?);
        let described = described.ok_or_else(|| DbError::fatal(format!("there is no table {name}")))?;
        let types = format!(
            "SELECT a.atttypid FROM pg_catalog.pg_attribute a WHERE a.attrelid = {} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY \
             a.attnum",
            text(row, 0)
        );
        let types = text_rows(connection, &types, 1)?;
        let columns: Vec<Column> = described
            .columns
            .into_iter()
            .zip(&types)
            .map(|(described, row)| Column { described, oid: text(row, 0).parse().unwrap_or(0) })
            .collect();
        let oid = text(row, 0).parse().unwrap_or(0);
        Ok(Table { oid, schema: text(row, 1).into(), name: text(row, 2).into(), columns, partitioned })
    }

    /// The column of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn column(&self, name: &str) -> Result<&Column, DbError> {
        self.columns.iter().find(|c| c.described.name == name).ok_or_else(|| {
            let names: Vec<_> = self.columns.iter().map(|c| c.described.name.as_str()).collect();
            DbError::fatal(format!(
                "table {}.{} has no column \"{name}\" (upper and lower case differ); it has {}",
                self.schema,
                self.name,
                names.join(", ")
            ))
        })
    }

    /// How rows are read in the order that their keys have here.
    pub fn order(&self, followed: &Followed) -> Option<Vec<String>> {
        let expression = |column: &usize| {
            let name = followed.name(*column);
            let column = self.column(name).ok()?;
            let quoted = quote_part(name);
            match column.described.shape {
                shape if shape.element.is_some() => None,
                // Enumerations are text here and numbers there.
                shape if shape.form == Form::Text && Form::of(column.oid) != Form::Text => None,
                shape => match shape.form {
                    Form::Text => Some(format!("{quoted} COLLATE \"C\"")),
                    Form::Bool | Form::Int2 | Form::Int4 | Form::Int8 | Form::Numeric | Form::Bytea => Some(quoted),
                    Form::Date | Form::Time | Form::Timestamp | Form::TimestampTz | Form::Uuid => Some(quoted),
                    // Blanks behind `character(n)` compare in a way of their own.
                    Form::Char | Form::Float4 | Form::Float8 | Form::Json | Form::Jsonb | Form::Bit | Form::Other => None,
                },
            }
        };
        if followed.key.is_empty() { None } else { followed.key.iter().map(expression).collect() }
    }
}

/// Looks whether a publication has all changes of a table; makes it if there is none.
///
/// # Errors
/// It does not, with what to run.
pub(super) fn publication(connection: &mut dyn Connection, name: &str, table: &Table) -> Result<(), DbError> {
    let (quoted, whole) = (literal(name), format!("{}.{}", quote_part(&table.schema), quote_part(&table.name)));
    let found = text_rows(
        connection,
        &format!(
            "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot FROM pg_catalog.pg_publication WHERE pubname = \
             {quoted}"
        ),
        2,
    )?;
    let Some(row) = found.first() else {
        let sql = format!("CREATE PUBLICATION {} FOR TABLE {whole} WITH (publish_via_partition_root = true)", quote_part(name));
        return connection.execute(&sql).map(drop).map_err(|e| {
            let why = format!("making the publication (have somebody run: {sql}): {}", e.message);
            DbError { message: why, ..e }
        });
    };
    if text(row, 0) != "true" {
        return Err(DbError::fatal(format!(
            "the publication {name} has not all changes; it needs publish = 'insert, update, delete, truncate'"
        )));
    }
    if table.partitioned && text(row, 1) != "true" {
        return Err(DbError::fatal(format!(
            "the publication {name} has the changes of a table's partitions apart; run ALTER PUBLICATION {} SET \
             (publish_via_partition_root = true)",
            quote_part(name)
        )));
    }
    let of_table = format!(
        "SELECT 1 FROM pg_catalog.pg_publication_tables WHERE pubname = {quoted} AND schemaname = {} AND tablename = {}",
        literal(&table.schema),
        literal(&table.name)
    );
    if text_rows(connection, &of_table, 1)?.is_empty() {
        return Err(DbError::fatal(format!(
            "the publication {name} does not have the table; run ALTER PUBLICATION {} ADD TABLE {whole}",
            quote_part(name)
        )));
    }
    Ok(())
}

impl Slot {
    /// Asks for a slot, and looks whether it can serve.
    ///
    /// # Errors
    /// It is of another kind, of another database, or what it kept is gone; it is not ready yet.
    pub fn load(connection: &mut dyn Connection, name: &str) -> Result<Option<Self>, DbError> {
        let sql = format!(
            "SELECT plugin, database = current_database(), confirmed_flush_lsn, wal_status FROM pg_catalog.pg_replication_slots \
             WHERE slot_name = {}",
            literal(name)
        );
        let rows = text_rows(connection, &sql, 4)?;
        let Some(row) = rows.first() else { return Ok(None) };
        let wrong = |why: &str| DbError::fatal(format!("the replication slot {name} {why}"));
        if text(row, 0) != "pgoutput" {
            return Err(wrong("is not one of the plugin pgoutput; name another with 'slot.name'"));
        }
        if text(row, 1) != "true" {
            return Err(wrong("is one of another database; name another with 'slot.name'"));
        }
        if text(row, 3) == "lost" {
            return Err(wrong(&format!(
                "was given up by the server, which keeps only so much of its log (max_slot_wal_keep_size): changes are lost; run SELECT \
                 pg_drop_replication_slot('{name}') and start without the checkpoint"
            )));
        }
        if text(row, 2).is_empty() {
            // Who began it may have been killed: the server goes on until transactions that are open have ended.
            return Err(DbError::connection(format!("the replication slot {name} is still being made")));
        }
        Ok(Some(Slot { confirmed: lsn(text(row, 2))? }))
    }

    /// Makes a slot. Waits until transactions that are open have ended.
    ///
    /// # Errors
    /// Of the server.
    pub fn create(connection: &mut dyn Connection, name: &str) -> Result<Self, DbError> {
        let sql = format!("SELECT lsn FROM pg_catalog.pg_create_logical_replication_slot({}, 'pgoutput')", literal(name));
        let rows = text_rows(connection, &sql, 1)?;
        Ok(Slot { confirmed: lsn(rows.first().map(|row| text(row, 0)).unwrap_or_default())? })
    }
}

/// How far the log is.
///
/// # Errors
/// Of the server.
pub(super) fn now(connection: &mut dyn Connection) -> Result<Offset, DbError> {
    let rows = text_rows(connection, "SELECT pg_catalog.pg_current_wal_lsn()", 1)?;
    lsn(rows.first().map(|row| text(row, 0)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        assert_eq!(lsn("16/B374D848").unwrap(), Offset::at(0x16_B374_D848));
        assert_eq!(lsn("0/0").unwrap(), Offset::at(0));
        for wrong in ["", "16", "x/1", "1/100000000"] {
            assert!(lsn(wrong).is_err(), "{wrong}");
        }
    }
}
