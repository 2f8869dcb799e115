//! The functions by name, Flink's names for aggregates, and the special syntax that becomes a call
//! (`EXTRACT`, `POSITION`, `SUBSTRING`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use datafusion_common::Result;
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::planner::{ExprPlanner, PlannerResult};
use datafusion_expr::{AggregateUDF, Expr, ScalarUDF, WindowUDF};
use datafusion_functions::core::planner::CoreFunctionPlanner;
use datafusion_functions_nested::planner::{FieldAccessPlanner, NestedFunctionPlanner};
use tidemill_plan::function::{SessionSettings, scalar_functions};
use tidemill_plan::process::{Body, Function, Kind};

use super::cast_names::{NAMED_CAST, NamedCast};
use crate::diagnostic::SqlError;

/// Flink's names for aggregates that DataFusion has under another.
const AGGREGATE_NAMES: &[(&str, &str)] = &[
    ("approx_count_distinct", "approx_distinct"),
    ("listagg", "string_agg"),
    ("stddev_samp", "stddev"),
    ("variance", "var"),
    ("var_samp", "var"),
];

/// Names that calls are turned into, not meant to be written.
const INTERNAL: &[&str] = &["flink_cast", "flink_cast_string", "flink_try_cast", "floor_time", "ceil_time", NAMED_CAST];

/// The functions of tables that are syntax.
const TABLE_FUNCTIONS: &[&str] = &["tumble", "hop", "cumulate", "session"];

/// All functions, by lower-case name.
#[derive(Clone, Debug)]
pub(crate) struct Functions {
    settings: SessionSettings,
    scalar: HashMap<String, Arc<ScalarUDF>>,
    aggregate: HashMap<String, Arc<AggregateUDF>>,
    window: HashMap<String, Arc<WindowUDF>>,
    /// What the user has declared.
    user: BTreeMap<String, Arc<Function>>,
    /// How many functions of a name were declared so far.
    declared: BTreeMap<String, u32>,
}

impl Functions {
    /// The functions of a session.
    pub fn new(settings: &SessionSettings) -> Self {
        let mut scalar = HashMap::new();
        // Later names win: ours.
        for f in datafusion_functions_nested::all_default_nested_functions().into_iter().chain(scalar_functions(settings)) {
            for name in f.aliases() {
                scalar.insert(name.clone(), f.clone());
            }
            scalar.insert(f.name().to_string(), f);
        }
        scalar.insert(NAMED_CAST.to_string(), Arc::new(ScalarUDF::new_from_impl(NamedCast::new())));
        let mut aggregate = HashMap::new();
        // Ours come last, so that they win.
        let ours = tidemill_plan::exact::aggregate_functions().into_iter().chain(tidemill_plan::aggregate::aggregate_functions());
        for f in datafusion_functions_aggregate::all_default_aggregate_functions().into_iter().chain(ours) {
            for name in f.aliases() {
                aggregate.insert(name.clone(), f.clone());
            }
            aggregate.insert(f.name().to_string(), f);
        }
        for (flink, theirs) in AGGREGATE_NAMES {
            if let Some(f) = aggregate.get(*theirs).cloned() {
                aggregate.insert((*flink).to_string(), f);
            }
        }
        let mut window = HashMap::new();
        for f in datafusion_functions_window::all_default_window_functions() {
            for name in f.aliases() {
                window.insert(name.clone(), f.clone());
            }
            window.insert(f.name().to_string(), f);
        }
        Functions { settings: settings.clone(), scalar, aggregate, window, user: BTreeMap::new(), declared: BTreeMap::new() }
    }

    /// With what the user has declared in `other`.
    pub fn with_user_of(self, other: &Functions) -> Self {
        Functions { user: other.user.clone(), declared: other.declared.clone(), ..self }
    }

    /// Declares a function of the user.
    ///
    /// # Errors
    /// There is one of its name.
    pub fn declare(&mut self, name: &str, kind: Kind, body: Body) -> std::result::Result<(), SqlError> {
        let key = name.to_ascii_lowercase();
        if self.user.contains_key(&key) {
            return Err(SqlError::new(format!("there is a function {name} already"))
                .with_help(format!("DROP FUNCTION {name} first, or write IF NOT EXISTS to keep the one that is there")));
        }
        let built_in = self.scalar.contains_key(&key) || self.aggregate.contains_key(&key) || self.window.contains_key(&key);
        if built_in || TABLE_FUNCTIONS.contains(&key.as_str()) {
            return Err(SqlError::new(format!("{} is a built-in function", name.to_ascii_uppercase())).with_help("choose another name"));
        }
        let generation = self.declared.entry(key.clone()).or_default();
        self.user.insert(key, Arc::new(Function { name: name.to_string(), generation: *generation, kind, body }));
        *generation += 1;
        Ok(())
    }

    /// Forgets a function of the user; whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        self.user.remove(&name.to_ascii_lowercase()).is_some()
    }

    /// A function of the user.
    pub fn user(&self, name: &str) -> Option<&Arc<Function>> {
        self.user.get(&name.to_ascii_lowercase())
    }

    /// The names of the user's functions of tables.
    pub fn user_tables(&self) -> impl Iterator<Item = &str> {
        self.user.values().filter(|f| matches!(f.kind, Kind::Table { .. })).map(|f| f.name.as_str())
    }

    /// What they were made for.
    pub fn settings(&self) -> &SessionSettings {
        &self.settings
    }

    pub fn scalar(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        get(&self.scalar, name).or_else(|| self.user(name)?.scalar())
    }

    pub fn aggregate(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        get(&self.aggregate, name)
    }

    pub fn window(&self, name: &str) -> Option<Arc<WindowUDF>> {
        get(&self.window, name)
    }

    /// All names that may be written.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.scalar.keys().chain(self.aggregate.keys()).chain(self.window.keys()).chain(self.user.keys());
        names.map(String::as_str).filter(|n| !INTERNAL.contains(n))
    }

    /// A call of a scalar function that is there.
    pub fn call(&self, name: &str, args: Vec<Expr>) -> Expr {
        let function = self.scalar.get(name).unwrap_or_else(|| panic!("function {name} is built in"));
        Expr::ScalarFunction(ScalarFunction::new_udf(function.clone(), args))
    }

    /// The planners of expressions, in the order in which they are asked.
    pub fn planners(self: &Arc<Self>) -> Vec<Arc<dyn ExprPlanner>> {
        vec![
            Arc::new(SyntaxPlanner { functions: self.clone() }),
            Arc::new(CoreFunctionPlanner::default()),
            Arc::new(NestedFunctionPlanner),
            Arc::new(FieldAccessPlanner),
            // COUNT(*) and COUNT() become COUNT(1).
            Arc::new(datafusion_functions_aggregate::planner::AggregateFunctionPlanner),
            Arc::new(datafusion_functions_window::planner::WindowFunctionPlanner),
        ]
    }
}

fn get<F>(functions: &HashMap<String, Arc<F>>, name: &str) -> Option<Arc<F>> {
    functions.get(name).or_else(|| functions.get(&name.to_ascii_lowercase())).cloned()
}

/// Syntax that is a call.
#[derive(Debug)]
struct SyntaxPlanner {
    functions: Arc<Functions>,
}

impl ExprPlanner for SyntaxPlanner {
    /// `EXTRACT(unit FROM moment)`: the unit as text, then the moment.
    fn plan_extract(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(self.functions.call("extract", args)))
    }

    /// `POSITION(part IN text)`: the text, then the part.
    fn plan_position(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(self.functions.call("instr", args)))
    }

    fn plan_substring(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(self.functions.call("substr", args)))
    }
}
