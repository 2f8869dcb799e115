//! The statements of a script as the planner gets them. Expressions and queries are sqlparser's
//! trees with their positions; everything else is here, with byte spans into the script.

use std::collections::BTreeMap;

use arrow::datatypes::DataType;
use sqlparser::ast::{Expr, Ident, ObjectName, Query};
use sqlparser::tokenizer::Location;

use crate::diagnostic::Span;

/// One statement of a script.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// What it says.
    pub kind: StatementKind,
    /// Its text, without the semicolon.
    pub span: Span,
    /// The hints `/*+ … */` in it, in order of the text. Those of an explained statement are here and
    /// in the inner statement.
    pub hints: Vec<Hint>,
}

impl Statement {
    /// The name of the table, view or function that it creates.
    pub fn declares(&self) -> Option<&str> {
        let name = match &self.kind {
            StatementKind::CreateTable(table) => &table.name,
            StatementKind::CreateView { name, .. } => name,
            StatementKind::CreateFunction(function) => &function.name,
            _ => return None,
        };
        name.0.last()?.as_ident().map(|ident| ident.value.as_str())
    }
}

/// The kinds of statement.
#[derive(Clone, Debug, PartialEq)]
pub enum StatementKind {
    /// `CREATE TABLE`.
    CreateTable(CreateTable),
    /// `CREATE [TEMPORARY] VIEW [IF NOT EXISTS] name [(columns)] AS query`.
    CreateView {
        /// Written `TEMPORARY`.
        temporary: bool,
        /// Nothing happens if the view is there.
        if_not_exists: bool,
        /// Its name.
        name: ObjectName,
        /// New names for the query's columns; empty keeps them.
        columns: Vec<Ident>,
        /// What it stands for.
        query: Box<Query>,
    },
    /// `DROP [TEMPORARY] TABLE [IF EXISTS] name`.
    DropTable {
        /// Nothing happens if there is none.
        if_exists: bool,
        /// Its name.
        name: ObjectName,
    },
    /// `DROP [TEMPORARY] VIEW [IF EXISTS] name`.
    DropView {
        /// Nothing happens if there is none.
        if_exists: bool,
        /// Its name.
        name: ObjectName,
    },
    /// `CREATE FUNCTION … LANGUAGE PROCESS`.
    CreateFunction(Box<CreateFunction>),
    /// `DROP [TEMPORARY] FUNCTION [IF EXISTS] name`.
    DropFunction {
        /// Nothing happens if there is none.
        if_exists: bool,
        /// Its name.
        name: ObjectName,
    },
    /// `INSERT INTO|OVERWRITE`.
    Insert(Insert),
    /// Several inserts that run as one job: `EXECUTE STATEMENT SET BEGIN … END` or
    /// `BEGIN STATEMENT SET; … END;`. Never empty.
    StatementSet(Vec<Insert>),
    /// `SET 'key' = 'value'`.
    Set {
        /// The option.
        key: String,
        /// Its value, unquoted.
        value: String,
    },
    /// `RESET ['key']`; without key, all.
    Reset {
        /// The option.
        key: Option<String>,
    },
    /// A query on its own.
    Query(Box<Query>),
    /// `EXPLAIN`.
    Explain {
        /// `ESTIMATED_COST`, `CHANGELOG_MODE` and so on, upper case, as written.
        details: Vec<String>,
        /// A query, an insert or a statement set.
        statement: Box<Statement>,
    },
    /// `DESCRIBE name`.
    Describe {
        /// A table or view.
        name: ObjectName,
    },
    /// `SHOW TABLES`.
    ShowTables,
    /// `SHOW CREATE TABLE name`.
    ShowCreateTable {
        /// The table.
        name: ObjectName,
    },
    /// `COPY source TO 'path' [(options)]`, as in DuckDB.
    Copy {
        /// What is copied.
        source: CopySource,
        /// The path or URL.
        to: String,
        /// Option names in lower case unless quoted; a flag without value is `true`.
        options: Vec<(String, String)>,
    },
}

/// What `COPY` copies.
#[derive(Clone, Debug, PartialEq)]
pub enum CopySource {
    /// `COPY t` or `COPY 'file.csv'` (a single identifier whose quote is `'`).
    Table(ObjectName),
    /// `COPY (SELECT …)`.
    Query(Box<Query>),
}

/// `INSERT INTO|OVERWRITE table [(columns)] query [ON CONFLICT DO DEDUPLICATE]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Insert {
    /// The sink.
    pub table: ObjectName,
    /// The columns written, in order of the query's; empty means all. Others become NULL.
    pub columns: Vec<Ident>,
    /// `OVERWRITE`: what is there goes first.
    pub overwrite: bool,
    /// Where the rows come from.
    pub query: Box<Query>,
    /// Where `ON CONFLICT DO DEDUPLICATE` stands: of rows with one key the newest stays, as it does without.
    pub deduplicate: Option<Span>,
    /// The text of the insert.
    pub span: Span,
}

/// `CREATE TABLE`.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateTable {
    /// Written `TEMPORARY`.
    pub temporary: bool,
    /// Nothing happens if the table is there.
    pub if_not_exists: bool,
    /// Its name.
    pub name: ObjectName,
    /// What stands between the parentheses, in order. No column twice, at most one watermark and one
    /// primary key. Empty when there are no parentheses.
    pub items: Vec<TableItem>,
    /// `COMMENT '…'`.
    pub comment: Option<String>,
    /// `PARTITIONED BY (…)`.
    pub partitioned_by: Vec<Ident>,
    /// `WITH (…)`, in order, no key twice.
    pub options: Vec<TableOption>,
    /// `LIKE …`; never together with `query`.
    pub like: Option<LikeClause>,
    /// `AS query`.
    pub query: Option<Box<Query>>,
}

impl CreateTable {
    /// The watermark's column and expression.
    pub fn watermark(&self) -> Option<(&Ident, &Expr)> {
        self.items.iter().find_map(|item| match &item.kind {
            ItemKind::Watermark { column, expr } => Some((column, expr.as_ref())),
            _ => None,
        })
    }

    /// The names of the primary key, wherever it is written; empty without one.
    pub fn primary_key(&self) -> Vec<&Ident> {
        for item in &self.items {
            match &item.kind {
                ItemKind::PrimaryKey { columns } => return columns.iter().collect(),
                ItemKind::Physical { name, primary_key: true, .. } => return vec![name],
                _ => {}
            }
        }
        Vec::new()
    }

    /// The value of an option.
    pub fn option(&self, key: &str) -> Option<&str> {
        self.options.iter().find(|o| o.key == key).map(|o| o.value.as_str())
    }
}

/// A line of a table definition.
#[derive(Clone, Debug, PartialEq)]
pub struct TableItem {
    /// What it defines.
    pub kind: ItemKind,
    /// Its text.
    pub span: Span,
}

impl TableItem {
    /// The column it defines, if it does.
    pub fn column(&self) -> Option<&Ident> {
        match &self.kind {
            ItemKind::Physical { name, .. } | ItemKind::Metadata { name, .. } | ItemKind::Computed { name, .. } => Some(name),
            ItemKind::Watermark { .. } | ItemKind::PrimaryKey { .. } => None,
        }
    }
}

/// The kinds of line in a table definition.
#[derive(Clone, Debug, PartialEq)]
pub enum ItemKind {
    /// `name type [NOT NULL] [PRIMARY KEY NOT ENFORCED] [COMMENT '']`.
    Physical {
        /// The column.
        name: Ident,
        /// Its type.
        data_type: DataType,
        /// Whether NULL may stand in it; false for `NOT NULL` and for a primary key.
        nullable: bool,
        /// The column alone is the primary key.
        primary_key: bool,
        /// `COMMENT '…'`.
        comment: Option<String>,
    },
    /// `name type METADATA [FROM 'key'] [VIRTUAL]`.
    Metadata {
        /// The column.
        name: Ident,
        /// Its type, to which the connector's value is cast.
        data_type: DataType,
        /// Whether NULL may stand in it.
        nullable: bool,
        /// The connector's name of it: the column's unless `FROM` says otherwise.
        key: String,
        /// Read only: left out when the table is written.
        is_virtual: bool,
        /// `COMMENT '…'`.
        comment: Option<String>,
    },
    /// `name AS expr`.
    Computed {
        /// The column.
        name: Ident,
        /// How it is computed.
        expr: Box<Expr>,
        /// `COMMENT '…'`.
        comment: Option<String>,
    },
    /// `WATERMARK FOR column AS expr`.
    Watermark {
        /// The event-time column.
        column: Ident,
        /// The watermark of a row.
        expr: Box<Expr>,
    },
    /// `[CONSTRAINT n] PRIMARY KEY (columns) NOT ENFORCED`.
    PrimaryKey {
        /// The key; never empty.
        columns: Vec<Ident>,
    },
}

/// An option of a table: `'key' = 'value'`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOption {
    /// The option.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Both in the text.
    pub span: Span,
}

/// `LIKE table [(…)]`.
#[derive(Clone, Debug, PartialEq)]
pub struct LikeClause {
    /// The model.
    pub table: ObjectName,
    /// What is taken from it; Flink's default where nothing is said: INCLUDING ALL, OVERWRITING OPTIONS.
    pub options: Vec<LikeOption>,
    /// Its text.
    pub span: Span,
}

/// One of the choices of `LIKE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LikeOption {
    /// How.
    pub strategy: LikeStrategy,
    /// What.
    pub feature: LikeFeature,
}

/// How `LIKE` merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LikeStrategy {
    /// Taken over; the same thing twice is an error.
    Including,
    /// Left out.
    Excluding,
    /// Taken over; the new table's definition wins.
    Overwriting,
}

/// What `LIKE` merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LikeFeature {
    All,
    Constraints,
    Distribution,
    Generated,
    Metadata,
    Options,
    Partitions,
    Watermarks,
}

/// A hint `/*+ … */`.
#[derive(Clone, Debug, PartialEq)]
pub struct Hint {
    /// The table in front of it, parts joined by `.`, without quotes; empty after `SELECT`.
    pub table: String,
    /// Where the table's first identifier (or `SELECT`) begins: equals `span.start` of that
    /// identifier in the tree, so that two uses of one table are told apart.
    pub at: Location,
    /// What it says.
    pub kind: HintKind,
    /// The comment.
    pub span: Span,
}

/// What a hint says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HintKind {
    /// `OPTIONS('k'='v', …)`: replaces options of the table.
    Options(BTreeMap<String, String>),
    /// `STATE_TTL('alias'='1d', …)`.
    StateTtl(BTreeMap<String, String>),
    /// `LOOKUP('table'='alias', …)`: how a lookup join asks.
    Lookup(BTreeMap<String, String>),
    /// Any other, in upper case.
    Other(String),
}

/// A call of a window function in `FROM`.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowCall {
    /// Which one.
    pub kind: WindowKind,
    /// The rows that get windows.
    pub input: TableArg,
    /// The session's key; empty for the others.
    pub partition_by: Vec<Ident>,
    /// `DESCRIPTOR(column)`.
    pub time_column: Ident,
    /// The lengths; which are there depends on the kind.
    pub intervals: WindowIntervals,
    /// The call.
    pub span: Option<Span>,
}

/// The window functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowKind {
    /// Fixed windows side by side: `size`, `offset`.
    Tumble,
    /// Overlapping windows: `slide`, `size`, `offset`.
    Hop,
    /// Windows that grow: `step`, `size`, `offset`.
    Cumulate,
    /// Windows between pauses: `gap`.
    Session,
}

impl WindowKind {
    /// Its name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            WindowKind::Tumble => "TUMBLE",
            WindowKind::Hop => "HOP",
            WindowKind::Cumulate => "CUMULATE",
            WindowKind::Session => "SESSION",
        }
    }
}

/// A table given to a window function.
#[derive(Clone, Debug, PartialEq)]
pub enum TableArg {
    /// `TABLE name`.
    Name(ObjectName),
    /// `TABLE (query)` or `(query)`.
    Query(Box<Query>),
}

/// The lengths of a window call. Each is an INTERVAL literal, the offset perhaps with a minus sign.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WindowIntervals {
    /// The length: all but SESSION.
    pub size: Option<Expr>,
    /// The distance of starts: HOP.
    pub slide: Option<Expr>,
    /// The growth: CUMULATE.
    pub step: Option<Expr>,
    /// The pause that ends a session: SESSION.
    pub gap: Option<Expr>,
    /// The shift of all windows against the epoch: all but SESSION, optional.
    pub offset: Option<Expr>,
}

/// `CREATE [TEMPORARY] FUNCTION [IF NOT EXISTS] name [(a TYPE, …)] RETURNS … LANGUAGE PROCESS AS 'command' [WITH (…)]`.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateFunction {
    /// Written `TEMPORARY`.
    pub temporary: bool,
    /// Nothing happens if the function is there.
    pub if_not_exists: bool,
    /// Its name.
    pub name: ObjectName,
    /// Names and types of its arguments; empty for a function of tables.
    pub parameters: Vec<(Ident, DataType)>,
    /// What it gives.
    pub returns: FunctionReturns,
    /// The program and its arguments.
    pub command: String,
    /// `WITH (…)`, in order, no key twice.
    pub options: Vec<TableOption>,
}

/// What a function gives.
#[derive(Clone, Debug, PartialEq)]
pub enum FunctionReturns {
    /// `RETURNS type`: a value for each row.
    Value(DataType),
    /// `RETURNS TABLE (a TYPE, …)`: rows for the rows of a table.
    Table(Vec<(Ident, DataType)>),
}

/// A call of a function of tables in `FROM`.
#[derive(Clone, Debug, PartialEq)]
pub struct TableCall {
    /// The function.
    pub name: ObjectName,
    /// The rows that it gets.
    pub input: TableArg,
    /// The keys by which they are divided.
    pub partition_by: Vec<Ident>,
    /// `on_time => DESCRIPTOR(column)`: the event time by which they are brought in order.
    pub on_time: Option<Ident>,
    /// `uid => '…'`: names its state.
    pub uid: Option<String>,
    /// The call.
    pub span: Option<Span>,
}
