//! Which columns identify the rows of an updating query: all changes of one row have the same values there, and come in their order,
//! since they stay on one shard all the way.

use std::collections::BTreeSet;

use arrow::datatypes::DataType;
use datafusion_common::{Column, DFSchema, JoinType};
use datafusion_expr::expr::{Alias, Cast};
use datafusion_expr::{Expr as Logical, ExprSchemable, Join, LogicalPlan, Projection};
use tidemill_plan::LookupJoinNode;
use tidemill_plan::node::as_column;

use super::rank::{Ranking, below, upon_ranking};
use super::source::table_read;

/// Columns by their places.
type Key = BTreeSet<usize>;

/// Whether these columns of a plan's rows are a key of them. What is not known to be one is none.
pub(super) fn identify(plan: &LogicalPlan, columns: &[usize]) -> bool {
    let columns: Key = columns.iter().copied().collect();
    keys(plan).contains(&columns)
}

/// The keys of a plan's rows that are known.
fn keys(plan: &LogicalPlan) -> Vec<Key> {
    if let Some((table, columns)) = table_read(plan) {
        let place = |name: &String| columns.iter().position(|column| column == name);
        let key: Option<Key> = table.primary_key.iter().map(place).collect();
        return key.into_iter().filter(|key| !key.is_empty()).collect();
    }
    match plan {
        LogicalPlan::SubqueryAlias(alias) => keys(&alias.input),
        LogicalPlan::Filter(filter) => match (Ranking::find(filter), filter.input.as_ref()) {
            (Some(ranking), _) => ranked(&ranking, true),
            // As they are planned.
            (None, LogicalPlan::Projection(projection)) => match below(filter, projection) {
                Ok(Some(swapped)) => keys(&swapped),
                _ => keys(&filter.input),
            },
            (None, input) => keys(input),
        },
        LogicalPlan::Sort(sort) => keys(&sort.input),
        LogicalPlan::Limit(limit) => keys(&limit.input),
        LogicalPlan::Projection(projection) => projected(projection),
        LogicalPlan::Aggregate(aggregate) => {
            let sets = aggregate.group_expr.iter().any(|e| matches!(e, Logical::GroupingSet(_)));
            if sets { Vec::new() } else { vec![(0..aggregate.group_expr.len()).collect()] }
        }
        LogicalPlan::Join(join) => joined(join),
        LogicalPlan::Extension(extension) => {
            let lookup = extension.node.as_any().downcast_ref::<LookupJoinNode>();
            lookup.map_or_else(Vec::new, |lookup| keys(&lookup.input))
        }
        _ => Vec::new(),
    }
}

/// Keys of ranked rows. With its number among the columns a row is that of a place, whoever holds it; a rank may be held by several
/// rows. Without, it is the row of the input.
fn ranked(ranking: &Ranking<'_>, rank_seen: bool) -> Vec<Key> {
    let input = &ranking.window.input;
    let place = |e: &Logical| as_column(e).and_then(|column| input.schema().index_of_column(column).ok());
    let partition: Option<Key> = ranking.call.params.partition_by.iter().map(place).collect();
    let Some(partition) = partition else { return Vec::new() };
    let mut found = Vec::new();
    if ranking.is_first_only() {
        found.push(partition.clone());
    }
    if rank_seen {
        if ranking.call.fun.name() == "row_number" {
            found.push(partition.into_iter().chain([input.schema().fields().len()]).collect());
        }
    } else {
        // A row that changed its partition came by way of two shards.
        found.extend(keys(input).into_iter().filter(|key| key.is_superset(&partition)));
    }
    found
}

fn projected(projection: &Projection) -> Vec<Key> {
    if let Ok(Some(merged)) = upon_ranking(projection) {
        return keys(&merged);
    }
    let mut input = projection.input.as_ref();
    while let LogicalPlan::SubqueryAlias(alias) = input {
        input = &alias.input;
    }
    let keys_below = match input {
        LogicalPlan::Filter(filter) => match Ranking::find(filter) {
            Some(ranking) => ranked(&ranking, ranking.is_seen(filter, projection)),
            None => keys(input),
        },
        _ => keys(input),
    };
    let schema = projection.input.schema();
    let origins: Vec<Option<usize>> =
        projection.expr.iter().map(|e| origin(e, projection).and_then(|column| schema.index_of_column(column).ok())).collect();
    let constants: Key = (0..origins.len()).filter(|i| matches!(unaliased(&projection.expr[*i]), Logical::Literal(..))).collect();
    let place = |column: usize| origins.iter().position(|origin| *origin == Some(column));
    let mut found = Vec::new();
    for key in keys_below.into_iter().filter_map(|key| key.into_iter().map(place).collect::<Option<Key>>()) {
        if !constants.is_empty() {
            found.push(key.union(&constants).copied().collect());
        }
        found.push(key);
    }
    found
}

fn unaliased(expression: &Logical) -> &Logical {
    match expression {
        Logical::Alias(Alias { expr, .. }) => unaliased(expr),
        other => other,
    }
}

/// The column that an expression is, maybe in another type that tells all its values apart.
fn origin<'e>(expression: &'e Logical, projection: &Projection) -> Option<&'e Column> {
    match unaliased(expression) {
        Logical::Column(column) => Some(column),
        Logical::Cast(Cast { expr, field }) => {
            let from = expr.get_type(projection.input.schema()).ok()?;
            if tells_apart(&from, field.data_type()) { origin(expr, projection) } else { None }
        }
        _ => None,
    }
}

/// Whether different values of one type stay different in another.
fn tells_apart(from: &DataType, to: &DataType) -> bool {
    if from == to {
        return true;
    }
    match (from.is_integer(), to) {
        (true, DataType::Utf8) => true,
        // Numbers without a sign are ours, of rows and ranks, and far from their end.
        (true, to) if to.is_integer() => {
            (from.is_unsigned_integer() || to.is_signed_integer()) && from.primitive_width() <= to.primitive_width()
        }
        // Every integer of 64 bits has fewer digits than these before the point.
        (true, DataType::Decimal128(precision, scale)) => i16::from(*precision) - i16::from(*scale) >= 20,
        _ => false,
    }
}

/// Keys of joined rows: a row of one side that is changed must stay on its shard, so its key has to hold the columns joined by.
fn joined(join: &Join) -> Vec<Key> {
    let (left, right) = (join.left.schema(), join.right.schema());
    let place = |e: &Logical, schema: &DFSchema| as_column(e).and_then(|column| schema.index_of_column(column).ok());
    let by_left: Option<Key> = join.on.iter().map(|(e, _)| place(e, left)).collect();
    let by_right: Option<Key> = join.on.iter().map(|(_, e)| place(e, right)).collect();
    let (Some(by_left), Some(by_right)) = (by_left, by_right) else { return Vec::new() };
    let stay = |side: &LogicalPlan, by: &Key| keys(side).into_iter().filter(|key| key.is_superset(by)).collect::<Vec<_>>();
    let (of_left, of_right) = (stay(&join.left, &by_left), stay(&join.right, &by_right));
    let moved = |key: &Key| key.iter().map(|column| column + left.fields().len()).collect::<Key>();
    match join.join_type {
        JoinType::LeftSemi | JoinType::LeftAnti => of_left,
        JoinType::Inner | JoinType::Left => {
            let both = of_left.iter().flat_map(|l| of_right.iter().map(|r| l.union(&moved(r)).copied().collect()));
            // One row of the right side at most for each of the left, and the other way round.
            let one_right = of_right.contains(&by_right);
            let one_left = join.join_type == JoinType::Inner && of_left.contains(&by_left);
            let lefts = of_left.iter().filter(|_| one_right).cloned();
            let rights = of_right.iter().filter(|_| one_left).map(moved);
            both.chain(lefts).chain(rights).collect()
        }
        _ => Vec::new(),
    }
}
