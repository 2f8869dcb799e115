//! A job file: its statements in order, its inserts gathered into jobs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use datafusion_expr::LogicalPlan;
use tidemill_plan::Table;
use tidemill_plan::catalog::RawTable;
use tidemill_sql::session::{InsertPlan, Outcome};
use tidemill_sql::{Session, SqlError};

use crate::batch::BatchRunner;
use crate::job::ProgressReport;
use crate::metrics::Summary;
use crate::physical::{Planner, explain};
use crate::settings::{RuntimeMode, Settings};
use crate::{Job, JobError, JobOptions, Stop, describe};

/// A script that has been read.
pub struct Script {
    text: String,
    name: String,
    session: Session,
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
        overrides.iter().for_each(|(k, v)| session.set(k, v));
        Script { text: text.into(), name: name.into(), session, overrides }
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
                    let table = copy_target(&plan, &to, &options)?;
                    let insert = InsertPlan { table: Arc::new(table), plan, span: statement.span, on_conflict: None, overwrite: false };
                    let mut settings = settings;
                    settings.runtime_mode = RuntimeMode::Batch;
                    steps.push(Step::Run(vec![insert], settings));
                }
            }
        }
        Ok(steps)
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
        if settings.runtime_mode == RuntimeMode::Batch {
            return BatchRunner::new(settings)?.run(&name, inserts, stop);
        }
        if let Some(insert) = inserts.iter().find(|i| i.overwrite) {
            return Err(SqlError::at(insert.span, "INSERT OVERWRITE needs batch mode: a stream has no end at which to replace a table")
                .with_help("SET 'execution.runtime-mode' = 'batch', or use INSERT INTO")
                .into());
        }
        let plans = self.optimized(inserts)?;
        let tables = |name: &str| self.session.table(name);
        let graph = Planner::new(settings, &tables).plan(&plans)?;
        Job::new(name, graph, settings.clone(), options.clone()).run(stop, progress)
    }

    fn optimized(&self, inserts: &[InsertPlan]) -> Result<Vec<(Arc<Table>, LogicalPlan)>, JobError> {
        let config = self.session.config();
        inserts.iter().map(|i| Ok((i.table.clone(), tidemill_plan::optimize::optimize_stream(i.plan.clone(), &config)?))).collect()
    }

    /// The plan of inserts or of a query as text.
    ///
    /// # Errors
    /// What cannot be planned.
    pub fn explain(&self, what: Outcome, settings: &Settings) -> Result<String, JobError> {
        let mut out = String::new();
        match what {
            Outcome::Inserts(inserts) => {
                if settings.runtime_mode == RuntimeMode::Batch {
                    let runner = BatchRunner::new(settings)?;
                    for insert in &inserts {
                        out += &format!("== INSERT INTO {} (batch) ==\n{}\n", insert.table.name, runner.explain(&insert.plan)?);
                    }
                    return Ok(out);
                }
                let plans = self.optimized(&inserts)?;
                for (table, plan) in &plans {
                    out += &format!("== INSERT INTO {} ==\n{}\n", table.name, plan.display_indent());
                }
                let tables = |name: &str| self.session.table(name);
                let graph = Planner::new(settings, &tables).plan(&plans)?;
                out += &format!("\n== Operators ==\n{}", explain::text(&graph, settings.shards()));
            }
            Outcome::Query(plan) => {
                out +=
                    &format!("== Query ==\n{}\n\n== Batch plan ==\n{}", plan.display_indent(), BatchRunner::new(settings)?.explain(&plan)?);
            }
            other => return Err(JobError::usage(format!("EXPLAIN of {other:?} is not supported"))),
        }
        for table in self.session.tables() {
            let ours = crate::reference::unknown_to_flink(&table);
            if !ours.is_empty() {
                out += &format!("\nFlink does not know these options of table '{}': {}\n", table.name, ours.join(", "));
            }
        }
        Ok(out)
    }
}

/// Whether any of `inserts` reads a table that any of `earlier` writes.
fn reads_what_is_written(inserts: &[InsertPlan], earlier: &[InsertPlan]) -> bool {
    use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
    let mut found = false;
    for insert in inserts {
        let _ = insert.plan.apply(|node| {
            if let LogicalPlan::TableScan(scan) = node
                && let Some(raw) = scan.source.downcast_ref::<RawTable>()
            {
                let path = |t: &Table| t.options.get("path").cloned();
                found |= earlier
                    .iter()
                    .any(|e| e.table.name == raw.table.name || (path(&raw.table).is_some() && path(&e.table) == path(&raw.table)));
            }
            Ok(TreeNodeRecursion::Continue)
        });
    }
    found
}

/// The table that `COPY … TO 'path'` writes.
fn copy_target(plan: &LogicalPlan, to: &str, options: &[(String, String)]) -> Result<Table, JobError> {
    let mut with: BTreeMap<String, String> = BTreeMap::from([("connector".into(), "filesystem".into()), ("path".into(), to.into())]);
    let extension = Path::new(to).extension().map(|e| e.to_string_lossy().into_owned());
    let format = match extension.as_deref() {
        Some("json" | "jsonl" | "ndjson") => "json",
        Some("parquet") => "parquet",
        _ => "csv",
    };
    with.insert("format".into(), format.into());
    for (key, value) in options {
        match key.as_str() {
            "format" => drop(with.insert("format".into(), value.to_lowercase())),
            "header" => drop(with.insert("csv.header".into(), value.to_lowercase())),
            "delimiter" | "delim" | "sep" => drop(with.insert("csv.field-delimiter".into(), value.clone())),
            "compression" => drop(with.insert("compression".into(), value.to_lowercase())),
            other => drop(with.insert(other.into(), value.clone())),
        }
    }
    let columns = plan
        .schema()
        .fields()
        .iter()
        .map(|f| tidemill_plan::Column {
            name: f.name().clone(),
            data_type: f.data_type().clone(),
            nullable: true,
            kind: tidemill_plan::ColumnKind::Physical,
        })
        .collect();
    Ok(Table { name: to.to_string(), columns, watermark: None, primary_key: Vec::new(), options: with })
}

/// Shows an error in its text, as for a terminal.
pub fn render(error: &JobError, file: &str, text: &str, color: bool) -> String {
    match error {
        JobError::Sql(e) => SqlError::render(e, file, text, color),
        other => format!("error: {other}"),
    }
}
