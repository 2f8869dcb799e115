//! The logical node of row patterns: `MATCH_RECOGNIZE` over one input. What a pattern is, is said by
//! [`crate::pattern`].

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion_common::{Column, DFSchema, DFSchemaRef, Result, TableReference, plan_err};
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan, UserDefinedLogicalNodeCore};

use crate::pattern::{
    AfterMatchSkip, Argument, Contiguity, End, Navigation, NavigationKind, PatternSpec, RowsPerMatch, navigation_column, navigation_index,
};

/// Rows that match a pattern. Its columns are [`PatternSpec::output`], without qualifier.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PatternNode {
    /// The rows.
    pub input: LogicalPlan,
    /// `PARTITION BY`: columns of the input.
    pub partition_by: Vec<Expr>,
    /// The event-time column that orders the rows.
    pub time: Expr,
    /// What orders rows of the same time: columns of the input, and whether ascending. NULL is smallest.
    pub order_by: Vec<(Expr, bool)>,
    /// The pattern and what is put out. Its expressions are typed: nothing may rewrite them any more.
    pub spec: PatternSpec,
    schema: DFSchemaRef,
}

impl PatternNode {
    /// A pattern over `input`.
    ///
    /// # Errors
    /// `time` is not a timestamp column; two columns of the output have the same name; an expression of
    /// the specification that is not over the input.
    pub fn try_new(
        input: LogicalPlan,
        partition_by: Vec<Expr>,
        time: Expr,
        order_by: Vec<(Expr, bool)>,
        spec: PatternSpec,
    ) -> Result<Self> {
        let Expr::Column(column) = &time else { return plan_err!("MATCH_RECOGNIZE is ordered by a column, not {time}") };
        let time_type = input.schema().field(input.schema().index_of_column(column)?).data_type();
        let DataType::Timestamp(..) = time_type else {
            return plan_err!("MATCH_RECOGNIZE: column '{}' must be a TIMESTAMP(3) or TIMESTAMP_LTZ(3), it is {time_type}", column.name);
        };
        let extended = spec.extended_schema(input.schema())?;
        let field = |(name, expression): &(String, Expr)| -> Result<(Option<TableReference>, Arc<Field>)> {
            let data_type = expression.get_type(&extended)?;
            let nullable = expression.nullable(&extended)?;
            Ok((None, Arc::new(Field::new(name, data_type, nullable))))
        };
        let fields = spec.output.iter().map(field).collect::<Result<Vec<_>>>()?;
        let schema = Arc::new(DFSchema::new_with_metadata(fields, input.schema().metadata().clone())?);
        Ok(PatternNode { input, partition_by, time, order_by, spec, schema })
    }

    /// Index of a column of the input.
    ///
    /// # Errors
    /// None in a plan that was built by [`PatternNode::try_new`].
    pub fn input_index(&self, expression: &Expr) -> Result<usize> {
        let Expr::Column(column) = expression else { return plan_err!("MATCH_RECOGNIZE: {expression} is not a column") };
        self.input.schema().index_of_column(column)
    }

    /// Whether a column of the output is the time of the match's last row, as `MATCH_ROWTIME()` gives it:
    /// event time again.
    pub fn is_match_time(&self, output: usize) -> bool {
        let Expr::Column(column) = &self.spec.output[output].1 else { return false };
        let Some(navigation) = navigation_index(column).and_then(|i| self.spec.navigations.get(i)) else { return false };
        let last_time = match &navigation.kind {
            NavigationKind::Value { argument: Argument::Input(argument), end: End::Last, offset: 0, shift: 0 } => *argument == self.time,
            _ => false,
        };
        last_time && navigation.symbols.is_none() && !navigation.running
    }

    /// The columns of the input that are used, each once.
    fn used(&self) -> Vec<Column> {
        let mut used = self.spec.input_columns();
        for expression in self.expressions() {
            for column in expression.column_refs() {
                if !used.contains(column) {
                    used.push(column.clone());
                }
            }
        }
        used
    }

    fn symbols_text(&self, symbols: &[usize]) -> String {
        symbols.iter().map(|s| self.spec.symbols[*s].name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// A navigation as people read it.
    fn navigation_text(&self, navigation: &Navigation) -> String {
        let mut text = match &navigation.kind {
            NavigationKind::Value { argument, end, offset, shift } => {
                let argument = match argument {
                    Argument::Input(expression) => expression.to_string(),
                    Argument::Classifier => "CLASSIFIER()".to_string(),
                };
                let end = match end {
                    End::First => "FIRST",
                    End::Last => "LAST",
                };
                match shift {
                    0 => format!("{end}({argument}, {offset})"),
                    back if *back < 0 => format!("PREV({end}({argument}, {offset}), {})", -back),
                    on => format!("NEXT({end}({argument}, {offset}), {on})"),
                }
            }
            NavigationKind::Aggregate { call } => call.to_string(),
            NavigationKind::MatchNumber => "MATCH_NUMBER()".to_string(),
        };
        if let Some(symbols) = &navigation.symbols {
            text += &format!(" OF {}", self.symbols_text(symbols));
        }
        format!("{}{text}", if navigation.running { "RUNNING " } else { "" })
    }
}

impl PartialOrd for PatternNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.input.partial_cmp(&other.input)
    }
}

impl fmt::Debug for PatternNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_for_explain(f)
    }
}

impl UserDefinedLogicalNodeCore for PatternNode {
    fn name(&self) -> &str {
        "MatchRecognize"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    /// The expressions of the specification are not among them: they are over other columns than the
    /// input's.
    fn expressions(&self) -> Vec<Expr> {
        let order = self.order_by.iter().map(|(e, _)| e.clone());
        self.partition_by.iter().cloned().chain([self.time.clone()]).chain(order).collect()
    }

    /// Each row of the input may decide over the matches of others.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        self.schema.fields().iter().map(|f| f.name().clone()).collect()
    }

    /// Complete: parts of a job with the same text become one operator.
    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = &self.spec;
        let name = |symbol: usize| spec.symbols[symbol].name.clone();
        write!(f, "MatchRecognize:")?;
        if !self.partition_by.is_empty() {
            let keys: Vec<String> = self.partition_by.iter().map(ToString::to_string).collect();
            write!(f, " PARTITION BY {}", keys.join(", "))?;
        }
        write!(f, " ORDER BY {}", self.time)?;
        for (expression, ascending) in &self.order_by {
            write!(f, ", {expression}{}", if *ascending { "" } else { " DESC" })?;
        }
        write!(f, " PATTERN ({})", spec.pattern.to_sql(&name))?;
        if let Some(within) = spec.within_ms {
            write!(f, " WITHIN {within} ms")?;
        }
        if spec.contiguity == Contiguity::Relaxed {
            write!(f, " RELAXED")?;
        }
        if !spec.every {
            write!(f, " ONCE")?;
        }
        match spec.rows {
            RowsPerMatch::One => write!(f, " ONE ROW PER MATCH")?,
            RowsPerMatch::All { empty, unmatched } => write!(
                f,
                " ALL ROWS PER MATCH{}{}",
                if empty { "" } else { " OMIT EMPTY MATCHES" },
                if unmatched { " WITH UNMATCHED ROWS" } else { "" }
            )?,
        }
        match &spec.skip {
            AfterMatchSkip::PastLastRow => write!(f, " SKIP PAST LAST ROW")?,
            AfterMatchSkip::ToNextRow => write!(f, " SKIP TO NEXT ROW")?,
            AfterMatchSkip::ToFirst(symbols) => write!(f, " SKIP TO FIRST {}", self.symbols_text(symbols))?,
            AfterMatchSkip::ToLast(symbols) => write!(f, " SKIP TO LAST {}", self.symbols_text(symbols))?,
        }
        for (i, symbol) in spec.symbols.iter().enumerate() {
            write!(f, "{} {}", if i == 0 { " DEFINE" } else { "," }, symbol.name)?;
            if symbol.input != 0 {
                write!(f, " OF INPUT {}", symbol.input)?;
            }
            match &symbol.condition {
                Some(condition) => write!(f, " AS {condition}")?,
                None => write!(f, " AS TRUE")?,
            }
        }
        for (i, navigation) in spec.navigations.iter().enumerate() {
            let start = if i == 0 { " WHERE" } else { "," };
            write!(f, "{start} {} = {}", navigation_column(i), self.navigation_text(navigation))?;
        }
        let output: Vec<String> = spec.output.iter().map(|(name, expression)| format!("{expression} AS {name}")).collect();
        write!(f, " OUTPUT {}", output.join(", "))
    }

    fn with_exprs_and_inputs(&self, mut exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        let order = exprs.split_off(self.partition_by.len() + 1);
        let time = exprs.pop().expect("the time column");
        let order_by = order.into_iter().zip(&self.order_by).map(|(e, (_, ascending))| (e, *ascending)).collect();
        PatternNode::try_new(inputs.pop().expect("one input"), exprs, time, order_by, self.spec.clone())
    }

    /// What is put out is computed whole, so the columns wanted above make no difference.
    fn necessary_children_exprs(&self, _output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let schema = self.input.schema();
        let mut needed = self.used().iter().map(|c| schema.index_of_column(c).ok()).collect::<Option<Vec<usize>>>()?;
        needed.sort_unstable();
        needed.dedup();
        Some(vec![needed])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::{Bounds, Pattern, Symbol, navigation_expr};
    use arrow::datatypes::{Schema, TimeUnit};
    use datafusion_expr::logical_plan::table_scan;
    use datafusion_expr::{col, lit};

    fn node() -> PatternNode {
        let schema = Schema::new(vec![
            Field::new("unused", DataType::Int64, true),
            Field::new("k", DataType::Utf8, true),
            Field::new("price", DataType::Float64, true),
            Field::new("rt", DataType::Timestamp(TimeUnit::Millisecond, None), true),
        ]);
        let input = table_scan(Some("t"), &schema, None).and_then(|b| b.build()).expect("a scan");
        let value = |argument: Expr, symbols, data_type| Navigation {
            kind: NavigationKind::Value { argument: Argument::Input(argument), end: End::Last, offset: 0, shift: 0 },
            symbols,
            running: false,
            data_type,
        };
        let spec = PatternSpec {
            symbols: vec![
                Symbol { name: "A".into(), input: 0, condition: Some(col("t.price").gt(lit(1.0))) },
                Symbol { name: "B".into(), input: 0, condition: None },
            ],
            pattern: Pattern::Concat(vec![Pattern::Symbol(0), Pattern::Symbol(1)]),
            contiguity: Contiguity::Strict,
            every: true,
            skip: AfterMatchSkip::PastLastRow,
            within_ms: Some(1000),
            rows: RowsPerMatch::One,
            navigations: vec![
                value(col("t.price"), Some(vec![0]), DataType::Float64),
                value(col("t.rt"), None, DataType::Timestamp(TimeUnit::Millisecond, None)),
            ],
            output: vec![("k".into(), col("t.k")), ("p".into(), navigation_expr(0)), ("mrt".into(), navigation_expr(1))],
            bounds: Bounds::default(),
        };
        PatternNode::try_new(input, vec![col("t.k")], col("t.rt"), Vec::new(), spec).expect("a node")
    }

    #[test]
    fn columns() {
        let node = node();
        let columns: Vec<String> = node.schema().fields().iter().map(|f| format!("{} {}", f.name(), f.data_type())).collect();
        assert_eq!(columns, ["k Utf8", "p Float64", "mrt Timestamp(ms)"]);
        assert_eq!((0..3).map(|i| node.is_match_time(i)).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!(node.necessary_children_exprs(&[]), Some(vec![vec![1, 2, 3]]));
        assert_eq!(node.prevent_predicate_push_down_columns().len(), 3);
    }

    #[test]
    fn is_shown_whole() {
        let node = node();
        let again = node.with_exprs_and_inputs(node.expressions(), vec![node.input.clone()]).expect("the same");
        assert!(again == node);
        assert_eq!(
            format!("{node:?}"),
            "MatchRecognize: PARTITION BY t.k ORDER BY t.rt PATTERN (A B) WITHIN 1000 ms ONE ROW PER MATCH SKIP PAST LAST ROW \
             DEFINE A AS t.price > Float64(1), B AS TRUE \
             WHERE $navigation0 = LAST(t.price, 0) OF A, $navigation1 = LAST(t.rt, 0) \
             OUTPUT t.k AS k, $navigation0 AS p, $navigation1 AS mrt"
        );
    }
}
