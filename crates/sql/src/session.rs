//! A session: the catalog, the settings, and what each statement does to them or asks for. Nothing is
//! run here: inserts and queries come back as plans, typed but not optimised.
//!
//! Not here: how a query is planned (`query`), how `CREATE TABLE` is resolved (`query::create`).

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion_common::config::ConfigOptions;
use datafusion_expr::LogicalPlan;
use tidemill_plan::Table;
use tidemill_plan::function::SessionSettings;
use tidemill_plan::process::{Body, Kind};

use crate::ast::{CopySource, Statement, StatementKind};
use crate::diagnostic::{Span, SqlError};
use crate::query::catalog::{Catalog, Relation, TableText, View, plain_name};
use crate::query::functions::Functions;
use crate::query::hints::Hints;
use crate::query::{Planner, config, create, insert, process, show};

/// The setting that says in which time zone TIMESTAMP_LTZ is shown and read.
pub const LOCAL_TIME_ZONE: &str = "table.local-time-zone";

/// Files that a query names: `'logs/*.csv'`, or `read_csv('logs/*.csv', filename = true)`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileRequest {
    /// Paths, directories, globs, URLs; one if the query names it in quotes.
    pub paths: Vec<String>,
    /// The format that the function's name says.
    pub format: Option<String>,
    /// What stands in the call beside the paths, names in lower case.
    pub options: BTreeMap<String, String>,
}

impl FileRequest {
    /// A path in quotes.
    pub fn path(path: impl Into<String>) -> Self {
        FileRequest { paths: vec![path.into()], ..FileRequest::default() }
    }
}

/// Makes a table of files that a query names; may read them to find their columns. Several tables are read as
/// one, their columns put together by name. The error is one sentence without full stop.
pub type FileResolver = Arc<dyn Fn(&FileRequest) -> Result<Vec<Table>, String> + Send + Sync>;

/// Says whether a table can be looked up (`FOR SYSTEM_TIME AS OF` a processing time). The error is one
/// sentence without full stop.
pub type LookupResolver = Arc<dyn Fn(&Table) -> Result<(), String> + Send + Sync>;

/// An insert, ready to be optimised and run.
#[derive(Clone, Debug)]
pub struct InsertPlan {
    /// The sink; its options include those of a hint.
    pub table: Arc<Table>,
    /// The rows: exactly the columns of [`Table::sink_schema`], in order, by name and type.
    pub plan: LogicalPlan,
    /// The text of the insert.
    pub span: Span,
    /// Written `OVERWRITE`: what is there goes first.
    pub overwrite: bool,
}

/// A line of `DESCRIBE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// The column.
    pub name: String,
    /// Its type as Flink writes it.
    pub data_type: String,
    /// Whether NULL may stand in it.
    pub nullable: bool,
    /// Part of the primary key.
    pub key: bool,
    /// `AS …` of a computed column, `METADATA …`; empty for the others.
    pub extra: String,
    /// The watermark strategy of the event-time column; empty for the others.
    pub watermark: String,
}

/// What a statement asks for.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Nothing more: the session has changed.
    Done,
    /// Run these as one job.
    Inserts(Vec<InsertPlan>),
    /// Run this and show its rows.
    Query(LogicalPlan),
    /// Show the plan of this, [`Outcome::Inserts`] or [`Outcome::Query`]; nothing has changed.
    Explain {
        /// `CHANGELOG_MODE` and so on, as written.
        details: Vec<String>,
        /// What is explained.
        what: Box<Outcome>,
    },
    /// Show the columns of a table or view.
    Describe(Vec<Described>),
    /// Show these names.
    Tables(Vec<String>),
    /// Show this statement.
    ShowCreate(String),
    /// Run this and write its rows to a file.
    Copy {
        /// The rows.
        plan: LogicalPlan,
        /// The path or URL.
        to: String,
        /// As written, see [`StatementKind::Copy`].
        options: Vec<(String, String)>,
    },
}

/// A session. Cheap to clone; a clone goes its own way.
#[derive(Clone)]
pub struct Session {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) functions: Arc<Functions>,
    pub(crate) config: Arc<ConfigOptions>,
    pub(crate) files: Option<FileResolver>,
    pub(crate) lookups: Option<LookupResolver>,
    pub(crate) script: Arc<str>,
    settings: BTreeMap<String, String>,
}

impl Default for Session {
    fn default() -> Self {
        Session::new()
    }
}

impl Session {
    /// A session without tables and settings.
    pub fn new() -> Self {
        Session {
            catalog: Arc::default(),
            functions: Arc::new(Functions::new(&SessionSettings::default())),
            config: Arc::new(config()),
            files: None,
            lookups: None,
            script: Arc::from(""),
            settings: BTreeMap::new(),
        }
    }

    /// What was `SET`.
    pub fn settings(&self) -> &BTreeMap<String, String> {
        &self.settings
    }

    /// Sets an option, unchecked: a time zone that does not exist is an error of the first query that
    /// needs it. `SET` in a script checks it.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.settings.insert(key.into(), value.into());
        self.settings_changed();
    }

    fn settings_changed(&mut self) {
        let settings = self.function_settings();
        if settings != *self.functions.settings() {
            self.functions = Arc::new(Functions::new(&settings).with_user_of(&self.functions));
        }
    }

    /// What functions know of the session.
    pub fn function_settings(&self) -> SessionSettings {
        match self.settings.get(LOCAL_TIME_ZONE) {
            Some(zone) if zone != "default" => SessionSettings { time_zone: zone.clone() },
            _ => SessionSettings::default(),
        }
    }

    /// The DataFusion configuration that plans are made with; their optimiser should have it too.
    pub fn config(&self) -> Arc<ConfigOptions> {
        self.config.clone()
    }

    /// Called when `FROM` or `COPY` names a file (`'path/*.csv'`); it may do I/O.
    pub fn set_file_resolver(&mut self, resolver: FileResolver) {
        self.files = Some(resolver);
    }

    /// Called for each table that a lookup join asks, so that a mistake points at the text. Without it
    /// every table is taken for one that can be looked up.
    pub fn set_lookup_resolver(&mut self, resolver: LookupResolver) {
        self.lookups = Some(resolver);
    }

    /// Reads a script and keeps its text, so that errors of [`Session::execute`] can point at it.
    ///
    /// # Errors
    /// As [`crate::parse_script`].
    pub fn parse(&mut self, script: &str) -> Result<Vec<Statement>, SqlError> {
        self.set_script(script);
        crate::parse_script(script)
    }

    /// The text that the statements executed next come from. Without it errors point at whole
    /// statements.
    pub fn set_script(&mut self, script: &str) {
        self.script = Arc::from(script);
    }

    /// Adds a table.
    ///
    /// # Errors
    /// There is a table or view of its name.
    pub fn register_table(&mut self, table: Table) -> Result<(), SqlError> {
        let name = table.name.clone();
        let relation = Relation::Table { table: Arc::new(table), text: Arc::new(TableText::default()) };
        Arc::make_mut(&mut self.catalog).add(&name, relation)
    }

    /// Adds a function that the embedding program has.
    ///
    /// # Errors
    /// There is one of its name.
    pub fn register_function(&mut self, name: &str, kind: Kind, body: Body) -> Result<(), SqlError> {
        Arc::make_mut(&mut self.functions).declare(name, kind, body)
    }

    /// A declared table, by its exact name.
    pub fn table(&self, name: &str) -> Option<Arc<Table>> {
        match self.catalog.get(name)? {
            Relation::Table { table, .. } => Some(table.clone()),
            Relation::View(_) => None,
        }
    }

    /// All declared tables, by name.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        let mut names: Vec<&str> = self.catalog.names().collect();
        names.sort_unstable();
        names.into_iter().filter_map(|n| self.table(n)).collect()
    }

    /// All tables and views, by name, with their columns.
    pub fn relations(&self) -> Vec<(String, Vec<String>)> {
        let columns = |relation: &Relation| match relation {
            Relation::Table { table, .. } => table.columns.iter().map(|c| c.name.clone()).collect(),
            Relation::View(view) => view.plan.schema().fields().iter().map(|f| f.name().clone()).collect(),
        };
        self.catalog.names().filter_map(|name| Some((name.to_string(), columns(self.catalog.get(name)?)))).collect()
    }

    /// The views that are not `TEMPORARY`, by name, with plans whose columns have the types of stored
    /// ones.
    ///
    /// # Errors
    /// A column whose type cannot be stored.
    pub fn served_views(&self) -> Result<Vec<(String, LogicalPlan)>, SqlError> {
        let planner = self.planner(&Arc::default());
        let mut views = Vec::new();
        for name in self.catalog.names() {
            if let Some(Relation::View(view)) = self.catalog.get(name)
                && !view.temporary
            {
                let plan = insert::stored(&planner, view.plan.clone())?;
                views.push((name.to_string(), plan));
            }
        }
        Ok(views)
    }

    /// Carries out a statement as far as that can be done without running anything.
    ///
    /// # Errors
    /// What is wrong with the statement, with its place; the session is then unchanged.
    pub fn execute(&mut self, statement: &Statement) -> Result<Outcome, SqlError> {
        let hints = Hints::new(&statement.hints)?;
        let outcome = self.execute_kind(statement, &hints).map_err(|e| e.or_at(Some(statement.span)))?;
        hints.check_used(&self.catalog)?;
        Ok(outcome)
    }

    fn planner(&self, hints: &Arc<Hints>) -> Planner {
        Planner::new(self, hints.clone())
    }

    fn execute_kind(&mut self, statement: &Statement, hints: &Arc<Hints>) -> Result<Outcome, SqlError> {
        let span = statement.span;
        Ok(match &statement.kind {
            StatementKind::CreateTable(table) => {
                let planner = self.planner(hints);
                let name = self.catalog.new_name(&table.name, &planner.lines())?;
                if table.if_not_exists && self.catalog.get(&name).is_some() {
                    return Ok(Outcome::Done);
                }
                let created = create::create_table(&planner, table, &name, span)?;
                let sink = created.table.clone();
                Arc::make_mut(&mut self.catalog)
                    .add(&name, Relation::Table { table: created.table, text: created.text })
                    .map_err(|e| e.or_at(planner.lines().span(sqlparser::ast::Spanned::span(&table.name))))?;
                match created.query {
                    None => Outcome::Done,
                    Some((plan, columns)) => {
                        let plan = insert::fit(&planner, plan, &sink, Some(&columns), span, &|_| None)?;
                        Outcome::Inserts(vec![InsertPlan { table: sink, plan, span, overwrite: false }])
                    }
                }
            }
            StatementKind::CreateView { temporary, if_not_exists, name, columns, query } => {
                let planner = self.planner(hints);
                let place = planner.lines().span(sqlparser::ast::Spanned::span(name));
                let name = self.catalog.new_name(name, &planner.lines())?;
                if *if_not_exists && self.catalog.get(&name).is_some() {
                    return Ok(Outcome::Done);
                }
                let plan = create::create_view(&planner, &name, columns, query, span)?;
                let view = View {
                    plan,
                    text: query.to_string(),
                    columns: columns.iter().map(|c| c.value.clone()).collect(),
                    temporary: *temporary,
                };
                Arc::make_mut(&mut self.catalog).add(&name, Relation::View(Arc::new(view))).map_err(|e| e.or_at(place))?;
                Outcome::Done
            }
            StatementKind::DropTable { if_exists, name } => {
                let lines = crate::LineIndex::new(&self.script);
                let dropped = self.catalog.droppable(name, *if_exists, false, &lines)?;
                dropped.into_iter().for_each(|name| Arc::make_mut(&mut self.catalog).remove(&name));
                Outcome::Done
            }
            StatementKind::DropView { if_exists, name } => {
                let lines = crate::LineIndex::new(&self.script);
                let dropped = self.catalog.droppable(name, *if_exists, true, &lines)?;
                dropped.into_iter().for_each(|name| Arc::make_mut(&mut self.catalog).remove(&name));
                Outcome::Done
            }
            StatementKind::CreateFunction(function) => {
                let planner = self.planner(hints);
                process::create(&mut self.functions, &planner, function)?;
                Outcome::Done
            }
            StatementKind::DropFunction { if_exists, name } => {
                let lines = crate::LineIndex::new(&self.script);
                let plain = plain_name(name, &lines)?;
                if !Arc::make_mut(&mut self.functions).remove(&plain) && !if_exists {
                    return Err(SqlError::new(format!("there is no function {plain} that CREATE FUNCTION has made"))
                        .or_at(lines.span(sqlparser::ast::Spanned::span(name)))
                        .with_help("DROP FUNCTION IF EXISTS says nothing if there is none; built-in functions stay"));
                }
                Outcome::Done
            }
            StatementKind::Insert(insert) => Outcome::Inserts(vec![insert::plan_insert(&self.planner(hints), insert)?]),
            StatementKind::StatementSet(inserts) => {
                let planner = self.planner(hints);
                Outcome::Inserts(inserts.iter().map(|i| insert::plan_insert(&planner, i)).collect::<Result<_, _>>()?)
            }
            StatementKind::Set { key, value } => {
                if key == LOCAL_TIME_ZONE && value != "default" {
                    let settings = SessionSettings { time_zone: value.clone() };
                    settings.check().map_err(|e| SqlError::new(e.message().into_owned()))?;
                }
                self.set(key, value);
                Outcome::Done
            }
            StatementKind::Reset { key } => {
                match key {
                    Some(key) => drop(self.settings.remove(key)),
                    None => self.settings.clear(),
                }
                self.settings_changed();
                Outcome::Done
            }
            StatementKind::Query(query) => Outcome::Query(self.planner(hints).query(query, span)?),
            StatementKind::Explain { details, statement } => {
                let what = Box::new(self.clone().execute_kind(statement, hints)?);
                Outcome::Explain { details: details.clone(), what }
            }
            StatementKind::Describe { name } => Outcome::Describe(show::describe(self.catalog.find(name, &self.planner(hints).lines())?.1)),
            StatementKind::ShowTables => Outcome::Tables(self.catalog.names().map(str::to_string).collect()),
            StatementKind::ShowCreateTable { name } => {
                let planner = self.planner(hints);
                let (name, relation) = self.catalog.find(name, &planner.lines())?;
                Outcome::ShowCreate(show::create_statement(&name, relation))
            }
            StatementKind::Copy { source, to, options } => {
                let planner = self.planner(hints);
                let plan = match source {
                    CopySource::Query(query) => planner.query(query, span)?,
                    CopySource::Table(name) => planner.whole_table(name, span)?,
                };
                Outcome::Copy { plan, to: to.clone(), options: options.clone() }
            }
        })
    }
}
