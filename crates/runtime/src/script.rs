//! A job file: its statements in order, its inserts gathered into jobs, or all of it into one job of a
//! server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_expr::LogicalPlan;
use tidemill_operator::process::ProcessFactory;
use tidemill_plan::catalog::RawTable;
use tidemill_plan::process::{Body, Columns, Kind};
use tidemill_plan::{LookupJoinNode, Table};
use tidemill_sql::session::{InsertPlan, Outcome};
use tidemill_sql::{Session, Span, SqlError};

use crate::batch::BatchRunner;
use crate::connector::{self, stream_name};
use crate::job::ProgressReport;
use crate::metrics::Summary;
use crate::physical::{Graph, Planner, explain};
use crate::place::Places;
use crate::settings::{RuntimeMode, Settings};
use crate::{Job, JobError, JobOptions, Stop, copy, describe, reference};

/// A script that has been read.
pub struct Script {
    text: String,
    name: String,
    session: Session,
    places: Places,
    /// Settings from outside; they win over the script's.
    overrides: BTreeMap<String, String>,
}

/// Something that a script does, in order.
pub enum Step {
    /// Run these inserts as one job.
    Run(Vec<InsertPlan>, Box<Settings>),
    /// Run this query and show its rows.
    Query(LogicalPlan, Box<Settings>),
    /// Show this text.
    Show(String),
}

impl Script {
    /// A script with the given text; `name` names the job unless the script does.
    pub fn new(name: impl Into<String>, text: impl Into<String>, overrides: BTreeMap<String, String>) -> Self {
        let mut session = Session::new();
        session.set_lookup_resolver(Arc::new(|table: &Table| connector::lookup(table).map(drop).map_err(|e| e.to_string())));
        overrides.iter().for_each(|(k, v)| session.set(k, v));
        Script { text: text.into(), name: name.into(), session, places: Places::default(), overrides }
    }

    /// Takes further statements in place of the text; tables, views and settings stay.
    pub fn go_on(&mut self, text: impl Into<String>) {
        self.text = text.into();
        self.places.clear();
    }

    /// The tables and views there are, with their columns.
    pub fn relations(&self) -> Vec<(String, Vec<String>)> {
        self.session.relations()
    }

    /// Lets queries name files.
    pub fn resolve_files(&mut self, resolver: tidemill_sql::session::FileResolver) {
        self.session.set_file_resolver(resolver);
    }

    /// The text, for messages that point into it.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn settings(&self) -> Result<Settings, JobError> {
        let mut map = self.session.settings().clone();
        map.extend(self.overrides.clone());
        let mut settings = Settings::from_map(&map)?;
        settings.name.get_or_insert_with(|| self.name.clone());
        Ok(settings)
    }

    /// Adds a function of tables in Rust, which the script calls `SELECT * FROM name(TABLE t PARTITION BY k)`.
    ///
    /// # Errors
    /// There is a function of its name.
    pub fn register_process(&mut self, name: &str, factory: Arc<dyn ProcessFactory>) -> Result<(), JobError> {
        let columns = factory.clone();
        let kind = Kind::Table { columns: Columns::Of(Arc::new(move |input: &arrow::datatypes::Schema| columns.columns(input))) };
        Ok(self.session.register_function(name, kind, Body::Native(Arc::new(factory)))?)
    }

    /// Plans every statement. Inserts that follow one another become one job that reads each source
    /// once, unless a setting changes between them or one reads what another writes.
    ///
    /// # Errors
    /// The first statement that is wrong.
    pub fn steps(&mut self) -> Result<Vec<Step>, JobError> {
        let text = self.text.clone();
        let statements = self.session.parse(&text)?;
        let mut steps: Vec<Step> = Vec::new();
        let mut previous: Option<BTreeMap<String, String>> = None;
        for statement in &statements {
            let outcome = self.session.execute(statement)?;
            self.places.note(statement);
            let settings = Box::new(self.settings()?);
            match outcome {
                Outcome::Done => {}
                Outcome::Inserts(inserts) => {
                    let now = self.session.settings().clone();
                    let joins = previous.as_ref() == Some(&now);
                    match steps.last_mut() {
                        Some(Step::Run(earlier, _)) if joins && !reads_what_is_written(&inserts, earlier) => earlier.extend(inserts),
                        _ => steps.push(Step::Run(inserts, settings)),
                    }
                    previous = Some(now);
                }
                Outcome::Query(plan) => steps.push(Step::Query(plan, settings)),
                Outcome::Explain { what, .. } => steps.push(Step::Show(self.explain(*what, &settings)?.trim_end().to_string())),
                Outcome::Describe(columns) => steps.push(Step::Show(describe::text(&columns))),
                Outcome::Tables(names) if names.is_empty() => steps.push(Step::Show("(no tables)".into())),
                Outcome::Tables(names) => steps.push(Step::Show(names.join("\n"))),
                Outcome::ShowCreate(text) => steps.push(Step::Show(text)),
                Outcome::Copy { plan, to, options } => {
                    let insert = copy_insert(plan, &to, &options, statement.span)?;
                    let mut settings = settings;
                    settings.runtime_mode = RuntimeMode::Batch;
                    steps.push(Step::Run(vec![insert], settings));
                }
            }
        }
        Ok(steps)
    }

    /// Plans the whole script as one job of a server: its inserts, and for each view that is not
    /// TEMPORARY one that writes it to the stream of its name.
    ///
    /// # Errors
    /// The first statement that is wrong or has no place in a served job; a script with nothing to
    /// serve; what the stream runtime cannot do, with the view's name.
    pub fn served(&mut self) -> Result<(Vec<InsertPlan>, Settings), JobError> {
        let text = self.text.clone();
        let statements = self.session.parse(&text)?;
        let mut inserts: Vec<InsertPlan> = Vec::new();
        let mut settled: Option<BTreeMap<String, String>> = None;
        for statement in &statements {
            let outcome = self.session.execute(statement)?;
            self.places.note(statement);
            match outcome {
                Outcome::Done => {}
                Outcome::Inserts(more) => inserts.extend(more),
                other => return Err(not_served(&other).or_at(Some(statement.span)).into()),
            }
            match &settled {
                Some(settings) if settings != self.session.settings() => {
                    return Err(SqlError::at(statement.span, "a served job has one set of settings, and this changes it after an INSERT")
                        .with_help("write SET and RESET in front of the first INSERT")
                        .into());
                }
                None if !inserts.is_empty() => settled = Some(self.session.settings().clone()),
                _ => {}
            }
        }
        let settings = self.settings()?;
        if settings.runtime_mode == RuntimeMode::Batch {
            return Err(JobError::usage(
                "a served job is a stream; leave out SET 'execution.runtime-mode' = 'batch', or run the job with `tidemill run`",
            ));
        }
        let views = self.session.served_views()?;
        if inserts.is_empty() && views.is_empty() {
            return Err(JobError::usage(
                "the script has neither an INSERT nor a view, so there is nothing to serve; add INSERT INTO … or CREATE VIEW …",
            ));
        }
        no_overwrite(&inserts)?;
        settings.apply();
        if let Some(insert) = inserts.iter().find(|i| reads_what_is_written(std::slice::from_ref(i), &inserts)) {
            return Err(SqlError::at(insert.span, "this reads a table that the job itself writes, and its inserts run at the same time")
                .with_help("put the query between them into a view and let both use it; or serve two jobs")
                .into());
        }
        self.graph(&inserts, &settings)?;
        for (name, plan) in views {
            let insert = InsertPlan { span: self.places.declaration(&name), ..view_insert(&name, plan) };
            // Each by itself, so that an error can name it.
            self.graph(std::slice::from_ref(&insert), &settings).map_err(|e| in_view(&name, e))?;
            inserts.push(insert);
        }
        Ok((inserts, settings))
    }

    /// Runs the inserts of one step.
    ///
    /// # Errors
    /// What cannot be planned or run.
    pub fn run(
        &self,
        inserts: &[InsertPlan],
        settings: &Settings,
        options: &JobOptions,
        stop: &Stop,
        progress: impl FnMut(&ProgressReport),
    ) -> Result<Summary, JobError> {
        let name = settings.name.clone().unwrap_or_default();
        settings.apply();
        if settings.runtime_mode == RuntimeMode::Batch {
            // What is wrong with a table has its place in the declaration, whichever insert needs it.
            let whose = if let [insert] = inserts { insert.span } else { Span::default() };
            let run = BatchRunner::new(settings)?.run(&name, inserts, stop);
            return run.map_err(|e| self.places.place(&self.text, whose, e));
        }
        no_overwrite(inserts)?;
        let graph = self.graph(inserts, settings)?;
        Job::new(name, graph, settings.clone(), options.clone()).run(stop, progress)
    }

    fn graph(&self, inserts: &[InsertPlan], settings: &Settings) -> Result<Graph, JobError> {
        self.planned(inserts, &self.optimized(inserts)?, settings)
    }

    fn optimized(&self, inserts: &[InsertPlan]) -> Result<Vec<(Arc<Table>, LogicalPlan)>, JobError> {
        let config = self.session.config();
        let optimized = |insert: &InsertPlan| match tidemill_plan::optimize::optimize_stream(insert.plan.clone(), &config) {
            Ok(plan) => Ok((insert.table.clone(), plan)),
            Err(e) => Err(self.places.place(&self.text, insert.span, e.into())),
        };
        inserts.iter().map(optimized).collect()
    }

    /// The graph of inserts whose optimised plans are `plans`.
    fn planned(&self, inserts: &[InsertPlan], plans: &[(Arc<Table>, LogicalPlan)], settings: &Settings) -> Result<Graph, JobError> {
        let tables = |name: &str| self.session.table(name);
        let graph = Planner::new(settings, &tables).plan(plans);
        graph.map_err(|(number, error)| self.places.place(&self.text, inserts[number].span, error))
    }

    /// The plan of inserts or of a query as text, and what of the job Flink does not know.
    ///
    /// # Errors
    /// What cannot be planned.
    pub fn explain(&self, what: Outcome, settings: &Settings) -> Result<String, JobError> {
        let mut out = String::new();
        let used: Vec<Arc<Table>> = match &what {
            Outcome::Inserts(inserts) => inserts.iter().flat_map(|i| [vec![i.table.clone()], tables_read(&i.plan)].concat()).collect(),
            Outcome::Query(plan) => tables_read(plan),
            _ => Vec::new(),
        };
        match what {
            Outcome::Inserts(inserts) if settings.runtime_mode == RuntimeMode::Batch => {
                let runner = BatchRunner::new(settings)?;
                for insert in &inserts {
                    out += &format!("== INSERT INTO {} (batch) ==\n{}\n", insert.table.name, runner.explain(&insert.plan)?);
                }
            }
            Outcome::Inserts(inserts) => {
                let plans = self.optimized(&inserts)?;
                for (table, plan) in &plans {
                    out += &format!("== INSERT INTO {} ==\n{}\n", table.name, plan.display_indent());
                }
                let graph = self.planned(&inserts, &plans, settings)?;
                out += &format!("\n== Operators ==\n{}", explain::text(&graph, settings.shards()));
            }
            Outcome::Query(plan) => {
                out +=
                    &format!("== Query ==\n{}\n\n== Batch plan ==\n{}", plan.display_indent(), BatchRunner::new(settings)?.explain(&plan)?);
            }
            other => return Err(JobError::usage(format!("EXPLAIN of {other:?} is not supported"))),
        }
        out += &self.unknown_to_flink(used);
        Ok(out)
    }

    /// The options of the declared tables and the settings that Flink does not know; `used` are the tables as they are
    /// used, with the options of hints.
    fn unknown_to_flink(&self, used: Vec<Arc<Table>>) -> String {
        let mut ours: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        // A file that a query names is no table of Flink's anyway.
        let used = used.into_iter().filter(|table| self.session.table(&table.name).is_some());
        for table in self.session.tables().into_iter().chain(used) {
            ours.entry(table.name.clone()).or_default().extend(reference::unknown_to_flink(&table));
        }
        let mut out = String::new();
        for (table, options) in ours.into_iter().filter(|(_, options)| !options.is_empty()) {
            let options = options.into_iter().collect::<Vec<_>>().join(", ");
            out += &format!("\nFlink does not know these options of table '{table}': {options}\n");
        }
        let set: BTreeSet<&String> = self.session.settings().keys().chain(self.overrides.keys()).collect();
        let settings = reference::settings_unknown_to_flink(set.into_iter());
        if !settings.is_empty() {
            out += &format!("\nFlink does not know these settings: {}\n", settings.join(", "));
        }
        out
    }
}

/// The streams of the process that inserts write, by name, each once.
pub fn streams_written(inserts: &[InsertPlan]) -> BTreeSet<String> {
    inserts.iter().filter_map(|insert| stream_name(&insert.table)).collect()
}

/// A stream replaces nothing.
fn no_overwrite(inserts: &[InsertPlan]) -> Result<(), JobError> {
    match inserts.iter().find(|i| i.overwrite) {
        None => Ok(()),
        Some(insert) => {
            Err(SqlError::at(insert.span, "INSERT OVERWRITE needs batch mode: a stream has no end at which to replace a table")
                .with_help("SET 'execution.runtime-mode' = 'batch', or use INSERT INTO")
                .into())
        }
    }
}

/// The error for a statement that shows something, or ends.
fn not_served(outcome: &Outcome) -> SqlError {
    match outcome {
        Outcome::Query(_) => SqlError::new("a served job has nobody to show the rows of a query to")
            .with_help("CREATE VIEW name AS SELECT … makes them a stream that clients subscribe to"),
        Outcome::Explain { .. } => SqlError::new("a served job has nobody to show a plan to")
            .with_help("leave EXPLAIN out; CREATE VIEW name AS SELECT … serves the query, and the server tells the plan of a job"),
        Outcome::Copy { .. } => SqlError::new("COPY ends, and a served job does not")
            .with_help("INSERT INTO a table with 'connector' = 'filesystem' instead, or run the script with `tidemill run`"),
        _ => SqlError::new("a served job has nobody to show this to").with_help("leave the statement out"),
    }
}

/// The insert that writes a view to the stream of its name.
fn view_insert(name: &str, plan: LogicalPlan) -> InsertPlan {
    let options = [("connector", "stream"), ("stream.name", name), ("stream.snapshot", "updating")];
    let table = Table {
        name: name.to_string(),
        columns: physical_columns(&plan),
        watermark: None,
        primary_key: Vec::new(),
        options: options.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
    };
    InsertPlan { table: Arc::new(table), plan, span: Default::default(), overwrite: false }
}

/// An error in planning a view.
fn in_view(name: &str, error: JobError) -> JobError {
    let named = |message: &str| format!("view '{name}': {message}");
    match error {
        JobError::Sql(mut e) => {
            e.message = named(&e.message);
            JobError::Sql(e)
        }
        JobError::Usage(message) => JobError::Usage(named(&message)),
        JobError::Refused(refusal) => JobError::Usage(named(&refusal.message)),
        JobError::Failed(message) => JobError::Failed(named(&message)),
    }
}

/// The columns of a plan as those of a table.
fn physical_columns(plan: &LogicalPlan) -> Vec<tidemill_plan::Column> {
    let column = |f: &arrow::datatypes::FieldRef| tidemill_plan::Column {
        name: f.name().clone(),
        data_type: f.data_type().clone(),
        nullable: true,
        kind: tidemill_plan::ColumnKind::Physical,
    };
    plan.schema().fields().iter().map(column).collect()
}

/// The tables that a plan reads, with the options of hints.
fn tables_read(plan: &LogicalPlan) -> Vec<Arc<Table>> {
    let mut tables = Vec::new();
    let _ = plan.apply_with_subqueries(|node| {
        let read = match node {
            LogicalPlan::TableScan(scan) => scan.source.downcast_ref::<RawTable>().map(|raw| &raw.table),
            LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref::<LookupJoinNode>().map(|join| &join.table),
            _ => None,
        };
        tables.extend(read.cloned());
        Ok(TreeNodeRecursion::Continue)
    });
    tables
}

/// Whether any of `inserts` reads a table that any of `earlier` writes.
fn reads_what_is_written(inserts: &[InsertPlan], earlier: &[InsertPlan]) -> bool {
    let path = |t: &Table| t.options.get("path").cloned();
    let written =
        |table: &Table| earlier.iter().any(|e| e.table.name == table.name || (path(table).is_some() && path(&e.table) == path(table)));
    inserts.iter().any(|insert| tables_read(&insert.plan).iter().any(|table| written(table)))
}

/// The insert that `COPY … TO 'path'` is.
fn copy_insert(plan: LogicalPlan, to: &str, options: &[(String, String)], span: Span) -> Result<InsertPlan, JobError> {
    let wrong = |message: String| JobError::from(SqlError::at(span, message));
    let target = copy::target(to, options).map_err(wrong)?;
    copy::check_free(&target, "the option OVERWRITE").map_err(wrong)?;
    let table =
        Table { name: to.to_string(), columns: physical_columns(&plan), watermark: None, primary_key: Vec::new(), options: target.options };
    Ok(InsertPlan { table: Arc::new(table), plan, span, overwrite: target.overwrite })
}

/// Shows an error in its text, as for a terminal.
pub fn render(error: &JobError, file: &str, text: &str, color: bool) -> String {
    match error {
        JobError::Sql(e) => SqlError::render(e, file, text, color),
        other => format!("error: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLES: &str = "CREATE TABLE t (a INT) WITH ('connector' = 'datagen'); CREATE TABLE o (a INT) WITH ('connector' = 'blackhole');";

    #[track_caller]
    fn refused(script: &str, expect: &str) {
        let mut script = Script::new("job", format!("{TABLES}{script}"), BTreeMap::new());
        let error = script.served().expect_err("it cannot be served").to_string();
        assert!(error.contains(expect), "{error}");
    }

    #[test]
    fn what_cannot_be_served() {
        refused("", "neither an INSERT nor a view");
        refused("CREATE TEMPORARY VIEW v AS SELECT a FROM t;", "neither an INSERT nor a view");
        refused("SELECT a FROM t;", "nobody to show the rows");
        refused("EXPLAIN SELECT a FROM t;", "nobody to show a plan");
        refused("SHOW TABLES;", "nobody to show this");
        refused("SET 'execution.runtime-mode' = 'batch'; INSERT INTO o SELECT a FROM t;", "a served job is a stream");
        refused("INSERT INTO o SELECT a FROM t; SET 'parallelism.default' = '2';", "one set of settings");
        refused("INSERT INTO o SELECT a FROM t; INSERT INTO o SELECT a FROM o;", "reads a table that the job itself writes");
        refused("INSERT OVERWRITE o SELECT a FROM t;", "INSERT OVERWRITE needs batch mode");
        // The connector `stream` is another crate's; the error names the view.
        refused("CREATE VIEW v AS SELECT a FROM t;", "view 'v': table 'v': there is no connector 'stream'");
    }

    #[test]
    fn streams_have_the_name_that_is_given_or_the_tables() {
        let insert = |name: &str, options: &[(&str, &str)]| {
            let mut insert = view_insert(name, LogicalPlan::default());
            let options = options.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
            insert.table = Arc::new(Table { options, ..insert.table.as_ref().clone() });
            insert
        };
        let stream = ("connector", "stream");
        let inserts = [
            view_insert("view", LogicalPlan::default()),
            insert("table", &[stream]),
            insert("table", &[stream, ("stream.name", "named")]),
            insert("again", &[stream, ("stream.name", "named")]),
            insert("file", &[("connector", "filesystem")]),
            insert("nothing", &[]),
        ];
        assert_eq!(streams_written(&inserts).into_iter().collect::<Vec<_>>(), ["named", "table", "view"]);
    }

    #[test]
    fn a_script_is_one_job() {
        let text = format!("{TABLES}INSERT INTO o SELECT a FROM t; INSERT INTO o SELECT a + 1 FROM t;");
        let (inserts, settings) = Script::new("job", text, BTreeMap::new()).served().unwrap();
        assert_eq!((inserts.len(), settings.name.as_deref()), (2, Some("job")));
    }
}
