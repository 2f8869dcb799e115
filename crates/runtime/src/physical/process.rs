//! From calls of user functions to the operators that make them, for streams and batches alike.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion_physical_expr::expressions::Column as BoundColumn;
use tidemill_operator::map::Expr;
use tidemill_operator::process::{
    Conversation, NativeSpec, ProcessCall, ProcessCallSpec, ProcessFactory, ProcessNative, ProcessTable, ProcessTableSpec, answer_schema,
};
use tidemill_operator::{Operator, OperatorError};
use tidemill_plan::process::{Body, Function, Kind};
use tidemill_plan::{ProcessCallNode, ProcessTableNode};

use super::Factory;
use super::aggregate::bind_all;
use crate::JobError;
use crate::process::{ChildSpec, FunctionOptions, Semantics, Talk, TalkSpec, ask_schema, find, split};

/// The name of the operator of a function, for people and errors.
pub(crate) fn operator_name(function: &Function) -> String {
    format!("Process {}", function.name)
}

/// Makes the operator of a function of values.
///
/// # Errors
/// An option or the command is wrong; the program is not there.
pub(crate) fn call(node: &ProcessCallNode, schema: &SchemaRef) -> Result<Factory, JobError> {
    let Kind::Value { parameters, returns } = &node.function.kind else {
        return Err(JobError::refused([&node.function.name], format!("function {} gives a table, not a value", node.function.name)));
    };
    let fields: Vec<Field> = parameters.iter().map(|(name, t)| Field::new(name, t.clone(), true)).collect();
    let parameters = Arc::new(Schema::new(fields));
    let answer = Arc::new(Schema::new(vec![Field::new(&node.function.name, returns.clone(), true)]));
    let name = &node.function.name;
    let ask = ask_schema(&parameters, name, false, &[], None);
    let (talk, options) = talk(&node.function, ask, answer, false)?;
    if options.semantics != Semantics::Set {
        return Err(JobError::usage(format!("function '{name}': option 'semantics' is for functions that return a TABLE")));
    }
    let arguments = bind_all(&node.arguments, node.input.schema())?;
    let schema = schema.clone();
    let factory: Factory = Arc::new(move || {
        let spec =
            ProcessCallSpec { arguments: arguments.clone(), ask: parameters.clone(), schema: schema.clone(), rows_max: options.batch_rows };
        let talks = (0..options.processes).map(|_| Box::new(Talk::new(talk.clone())) as Box<dyn Conversation>);
        Ok(Box::new(ProcessCall::new(spec, talks.collect())) as Box<dyn Operator>)
    });
    Ok(factory)
}

/// A function of tables, planned.
pub(crate) struct TableCall {
    /// Makes its operator.
    pub factory: Factory,
    /// The keys that its rows are divided by.
    pub keys: Vec<Expr>,
    /// Rows may go to any shard.
    pub anywhere: bool,
}

/// Makes the operator of a function of tables, whose input has the columns `input`.
///
/// # Errors
/// An option or the command is wrong; the program is not there.
pub(crate) fn table(node: &ProcessTableNode, input: SchemaRef, schema: &SchemaRef) -> Result<TableCall, JobError> {
    let name = &node.function.name;
    let keys = node.partition_by.iter().map(|k| node.input_index(k)).collect::<Result<Vec<_>, _>>()?;
    let time = node.time.as_ref().map(|t| node.input_index(t)).transpose()?;
    let bound = keys.iter().map(|k| Arc::new(BoundColumn::new(input.field(*k).name(), *k)) as Expr).collect();
    let (schema, of_input) = (schema.clone(), input.clone());
    let (factory, anywhere): (Factory, bool) = match &node.function.body {
        Body::Native(native) => {
            let Some(make) = native.downcast_ref::<Arc<dyn ProcessFactory>>().cloned() else {
                return Err(JobError::failed(format!("internal error: function {name} was registered as something else than a function")));
            };
            let spec = NativeSpec { input: of_input, keys, time, schema };
            let factory: Factory = Arc::new(move || {
                let operator = ProcessNative::new(spec.clone(), make.create()?)?;
                Ok::<_, OperatorError>(Box::new(operator) as Box<dyn Operator>)
            });
            (factory, false)
        }
        Body::Command { .. } => {
            let names: Vec<String> = keys.iter().map(|k| input.field(*k).name().clone()).collect();
            let ask = ask_schema(&ProcessTable::ask_schema(&input), name, true, &names, time.map(|t| input.field(t).name().as_str()));
            let (talk, options) = talk(&node.function, ask, answer_schema(&schema), true)?;
            if options.processes != 1 {
                return Err(JobError::usage(format!(
                    "function '{name}': option 'processes' is for functions of values; one that returns a TABLE has a process a shard"
                )));
            }
            let anywhere = options.semantics == Semantics::Row;
            if anywhere && !keys.is_empty() {
                return Err(JobError::usage(format!(
                    "function '{name}' has the option 'semantics' = 'row': each row is by itself, so there is nothing to PARTITION BY; leave one of them out"
                )));
            }
            let spec = ProcessTableSpec { input: of_input, keys, time, schema, rows_max: options.batch_rows };
            let factory: Factory =
                Arc::new(move || Ok(Box::new(ProcessTable::new(spec.clone(), Box::new(Talk::new(talk.clone())))) as Box<dyn Operator>));
            (factory, anywhere)
        }
    };
    Ok(TableCall { factory, keys: bound, anywhere })
}

/// How the process of a function is started and talked to.
fn talk(function: &Function, ask: SchemaRef, answer: SchemaRef, named: bool) -> Result<(TalkSpec, FunctionOptions), JobError> {
    let name = &function.name;
    let Body::Command { command, options } = &function.body else {
        return Err(JobError::refused([name], format!("function {name} of this program gives a table, and is called in FROM")));
    };
    let options = FunctionOptions::read(name, options)?;
    let wrong = |why: String| JobError::usage(format!("function '{name}': the command '{command}': {why}"));
    let words = split(command).map_err(wrong)?;
    let directory = options.directory.as_ref().map(PathBuf::from);
    find(&words[0], directory.as_deref()).map_err(wrong)?;
    let child =
        ChildSpec { function: name.clone(), command: command.clone(), words, directory, ask, answer, named, in_flight: options.in_flight };
    Ok((TalkSpec { child, timeout: options.timeout }, options))
}
