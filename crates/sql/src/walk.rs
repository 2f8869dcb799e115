//! Walks over sqlparser's trees: a function is called with each node that one of our passes looks at.
//!
//! sqlparser's own walk is generic over its visitor, and each visitor is about two thousand functions, some
//! for every type of the tree. So the visitors here are two, [`Walk`] and [`WalkMut`], and what they call is a
//! `dyn` function: passes come here instead of implementing sqlparser's `Visitor`. Which nodes are worth
//! looking at is known to the passes, in `parse::refuse`, `query::error`, `query::rewrite_sql` and others.

use std::ops::ControlFlow;

use sqlparser::ast::{Expr, ObjectName, Query, Select, TableFactor, Visit, VisitMut, Visitor, VisitorMut};

/// A node, as a walk comes to it: before what it holds.
pub(crate) enum Node<'n> {
    Query(&'n Query),
    Select(&'n Select),
    TableFactor(&'n TableFactor),
    /// The name of a table, or of what else is in FROM.
    Relation(&'n ObjectName),
    Expr(&'n Expr),
}

/// A node that may be changed or replaced. What it holds is walked as it is after the change.
pub(crate) enum NodeMut<'n> {
    /// Before what it holds.
    Select(&'n mut Select),
    /// Before what it holds.
    Expr(&'n mut Expr),
    /// Behind what it holds.
    AfterQuery(&'n mut Query),
    /// Behind what it holds.
    AfterTableFactor(&'n mut TableFactor),
    /// Behind what it holds.
    AfterExpr(&'n mut Expr),
}

/// Calls `step` with the nodes of a query, in the order of sqlparser's fields.
///
/// # Errors
/// The first of `step`; the walk ends there.
pub(crate) fn query<E>(query: &Query, step: &mut dyn FnMut(Node<'_>) -> Result<(), E>) -> Result<(), E> {
    let mut result = Ok(());
    visit_query(query, &mut |node| {
        result = step(node);
        flow(&result)
    });
    result
}

/// Calls `step` with the nodes of an expression, itself first.
///
/// # Errors
/// The first of `step`; the walk ends there.
pub(crate) fn expr<E>(expr: &Expr, step: &mut dyn FnMut(Node<'_>) -> Result<(), E>) -> Result<(), E> {
    let mut result = Ok(());
    visit_expr(expr, &mut |node| {
        result = step(node);
        flow(&result)
    });
    result
}

/// Calls `step` with the nodes of a query to change them.
///
/// # Errors
/// The first of `step`; the walk ends there, and what was changed stays so.
pub(crate) fn query_mut<E>(query: &mut Query, step: &mut dyn FnMut(NodeMut<'_>) -> Result<(), E>) -> Result<(), E> {
    let mut result = Ok(());
    visit_query_mut(query, &mut |node| {
        result = step(node);
        flow(&result)
    });
    result
}

/// Calls `step` with the nodes of an expression to change them.
///
/// # Errors
/// The first of `step`; the walk ends there, and what was changed stays so.
pub(crate) fn expr_mut<E>(expr: &mut Expr, step: &mut dyn FnMut(NodeMut<'_>) -> Result<(), E>) -> Result<(), E> {
    let mut result = Ok(());
    visit_expr_mut(expr, &mut |node| {
        result = step(node);
        flow(&result)
    });
    result
}

/// Calls `step` with an expression and those in it, outer ones first, to change them.
///
/// # Errors
/// The first of `step`; the walk ends there, and what was changed stays so.
pub(crate) fn outer_first_mut<E>(expr: &mut Expr, step: &mut dyn FnMut(&mut Expr) -> Result<(), E>) -> Result<(), E> {
    expr_mut(expr, &mut |node| match node {
        NodeMut::Expr(expr) => step(expr),
        _ => Ok(()),
    })
}

fn flow<E>(result: &Result<(), E>) -> ControlFlow<()> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    }
}

// From here on nothing is generic: this is what there is once.

fn visit_query(query: &Query, step: &mut dyn FnMut(Node<'_>) -> ControlFlow<()>) {
    let _ = Visit::visit(query, &mut Walk(step));
}

fn visit_expr(expr: &Expr, step: &mut dyn FnMut(Node<'_>) -> ControlFlow<()>) {
    let _ = Visit::visit(expr, &mut Walk(step));
}

fn visit_query_mut(query: &mut Query, step: &mut dyn FnMut(NodeMut<'_>) -> ControlFlow<()>) {
    let _ = VisitMut::visit(query, &mut WalkMut(step));
}

fn visit_expr_mut(expr: &mut Expr, step: &mut dyn FnMut(NodeMut<'_>) -> ControlFlow<()>) {
    let _ = VisitMut::visit(expr, &mut WalkMut(step));
}

/// The one visitor that reads.
struct Walk<'w>(&'w mut dyn FnMut(Node<'_>) -> ControlFlow<()>);

impl Visitor for Walk<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        (self.0)(Node::Query(query))
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        (self.0)(Node::Select(select))
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        (self.0)(Node::TableFactor(factor))
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        (self.0)(Node::Relation(relation))
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        (self.0)(Node::Expr(expr))
    }
}

/// The one visitor that changes.
struct WalkMut<'w>(&'w mut dyn FnMut(NodeMut<'_>) -> ControlFlow<()>);

impl VisitorMut for WalkMut<'_> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        (self.0)(NodeMut::Select(select))
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        (self.0)(NodeMut::Expr(expr))
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        (self.0)(NodeMut::AfterQuery(query))
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        (self.0)(NodeMut::AfterTableFactor(factor))
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        (self.0)(NodeMut::AfterExpr(expr))
    }
}

#[cfg(test)]
mod tests;
