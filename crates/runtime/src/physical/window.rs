//! Finds the window table function below an aggregate, so that both become one operator.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, DFSchemaRef};
use datafusion_expr::{Expr, LogicalPlan, Projection};
use tidemill_plan::{WindowKind, WindowNode};

use crate::JobError;

/// What a column above a window table function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// `window_start`, `window_end` or `window_time` (0, 1, 2).
    Window(usize),
    /// A column of the windowed input.
    Input(usize),
}

/// A window table function pulled out from under projections.
pub(super) struct Windowed {
    /// The rows, with everything computed that the projections compute.
    pub input: LogicalPlan,
    pub kind: WindowKind,
    /// Index of the time column in `input`.
    pub time: usize,
    /// Session keys as columns of `input`.
    pub partition_by: Vec<usize>,
    /// The schema of the plan that was taken apart, and what each of its columns is.
    schema: DFSchemaRef,
    origins: Vec<Origin>,
}

const TIME_COLUMN: &str = "__rowtime";

impl Windowed {
    /// Takes a plan apart if it is a window table function below nothing but aliases and
    /// projections.
    pub fn find(plan: &LogicalPlan) -> Result<Option<Windowed>, JobError> {
        match plan {
            LogicalPlan::Extension(extension) => {
                let Some(node) = extension.node.as_any().downcast_ref::<WindowNode>() else { return Ok(None) };
                let width = node.input.schema().fields().len();
                let index = |e: &Expr| -> Result<usize, JobError> {
                    let Expr::Column(column) = e else {
                        return Err(JobError::refused(["SESSION"], "the PARTITION BY of a SESSION takes columns"));
                    };
                    Ok(node.input.schema().index_of_column(column)?)
                };
                Ok(Some(Windowed {
                    time: node.time_index()?,
                    partition_by: node.partition_by.iter().map(index).collect::<Result<_, _>>()?,
                    kind: node.kind,
                    schema: plan.schema().clone(),
                    origins: (0..width).map(Origin::Input).chain((0..3).map(Origin::Window)).collect(),
                    input: node.input.clone(),
                }))
            }
            LogicalPlan::SubqueryAlias(alias) => {
                Ok(Self::find(&alias.input)?.map(|inner| Windowed { schema: alias.schema.clone(), ..inner }))
            }
            LogicalPlan::Projection(projection) => match Self::find(&projection.input)? {
                Some(inner) => inner.project(projection),
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// Moves a projection below the window; `None` if it computes with the window's bounds.
    fn project(self, projection: &Projection) -> Result<Option<Windowed>, JobError> {
        let mut origins = Vec::new();
        let mut below: Vec<Expr> = Vec::new();
        for (i, expression) in projection.expr.iter().enumerate() {
            if let Some(window) = self.window_column(expression) {
                origins.push(Origin::Window(window));
                continue;
            }
            let Some(rewritten) = self.rewrite(expression)? else { return Ok(None) };
            origins.push(Origin::Input(below.len()));
            // Names must stay distinct below as well.
            below.push(rewritten.unalias().alias(format!("__{i}")));
        }
        let schema = self.input.schema().clone();
        let column = |i: usize| Expr::Column(Column::from(schema.qualified_field(i)));
        // The time and the session keys must be there below, once.
        let mut place = |expression: Expr, name: String| match below.iter().position(|b| b.clone().unalias() == expression) {
            Some(at) => at,
            None => {
                below.push(expression.alias(name));
                below.len() - 1
            }
        };
        let time = place(column(self.time), TIME_COLUMN.to_string());
        let partition_by = self.partition_by.iter().enumerate().map(|(n, i)| place(column(*i), format!("__key{n}"))).collect();
        let input = LogicalPlan::Projection(Projection::try_new(below, Arc::new(self.input))?);
        Ok(Some(Windowed { input, kind: self.kind, time, partition_by, schema: projection.schema.clone(), origins }))
    }

    /// Which window column an expression is, if it is one.
    pub fn window_column(&self, expression: &Expr) -> Option<usize> {
        let column = tidemill_plan::node::as_column(expression)?;
        match self.origins[self.schema.index_of_column(column).ok()?] {
            Origin::Window(which) => Some(which),
            Origin::Input(_) => None,
        }
    }

    /// An expression over the taken-apart plan as one over `input`; `None` if it uses the window's
    /// bounds.
    pub fn rewrite(&self, expression: &Expr) -> Result<Option<Expr>, JobError> {
        let mut map: HashMap<Column, Column> = HashMap::new();
        for column in expression.column_refs() {
            match self.origins[self.schema.index_of_column(column)?] {
                Origin::Window(_) => return Ok(None),
                Origin::Input(i) => drop(map.insert(column.clone(), Column::from(self.input.schema().qualified_field(i)))),
            }
        }
        let rewritten = expression.clone().transform(|e| {
            Ok(match &e {
                Expr::Column(c) if map.contains_key(c) => Transformed::yes(Expr::Column(map[c].clone())),
                _ => Transformed::no(e),
            })
        })?;
        Ok(Some(rewritten.data))
    }
}
