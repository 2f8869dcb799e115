//! The entry of the registry: from a table's options to its source or sink.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tidemill_connect::registry::Connector;
use tidemill_connect::{ConnectError, Sink, Source};
use tidemill_format::message::MessageFormat;
use tidemill_format::options::{OptionSet, RawOptions};

use crate::options::MqttOptions;
use crate::rows::TOPIC;
use crate::sink::{Layout, MqttSink, Route};
use crate::source::MqttSource;
use crate::target::Target;
use crate::topic::{check_name, filters};

/// The connector.
pub static CONNECTOR: Connector = Connector {
    name: "mqtt",
    help: "Subscribes to topics of a broker of MQTT 5, or publishes each row as a message. With 'qos' = '1' a source with a 'client-id' \
           acknowledges a message when a checkpoint holds it, and a sink completes a checkpoint when the broker has acknowledged its \
           messages: at least once, both. Formats: json, csv, raw, avro, debezium-json and others.",
    specs: MqttOptions::specs,
    takes_format: true,
    source: Some(make_source),
    sink: Some(make_sink),
    lookup: None,
};

/// What only the table knows and not its options: the keys of its writable metadata, and their columns.
fn metadata(raw: &mut RawOptions) -> Vec<(String, String)> {
    let facts = raw.take_prefixed("#").into_iter();
    facts.filter_map(|(name, column)| Some((name.strip_prefix("metadata.")?.to_string(), column))).collect()
}

/// The format of the messages.
fn format(raw: &mut RawOptions) -> Result<MessageFormat, ConnectError> {
    let format = MessageFormat::take(raw, "")?;
    let format = format.ok_or_else(|| ConnectError::new(format!("{}: option 'format' is required", raw.owner())))?;
    if format.registry_options().is_some() {
        let text = format!(
            "{}: option 'format' = '{}': the connector 'mqtt' asks no schema registry; 'avro' needs none",
            raw.owner(),
            format.name()
        );
        return Err(ConnectError::new(text));
    }
    Ok(format)
}

fn make_source(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Source>, ConnectError> {
    metadata(raw);
    let options = MqttOptions::checked(raw)?;
    let owner = raw.owner().to_string();
    let wrong = |why: String| ConnectError::new(format!("{owner}: {why}"));
    let text = options.topic.as_deref().ok_or_else(|| wrong("option 'topic' is required".into()))?;
    let filters = filters(text).map_err(|why| wrong(format!("option 'topic': {why}")))?;
    let format = format(raw)?;
    // So that a column that cannot be read is found now.
    format.decoder(schema, &[]).map_err(|e| ConnectError::from(e).at(&owner))?;
    let target = Target::new(&options).map_err(|e| e.at(&owner))?;
    Ok(Box::new(MqttSource::new(options, format, target, filters)))
}

fn make_sink(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Sink>, ConnectError> {
    let metadata = metadata(raw);
    let options = MqttOptions::checked(raw)?;
    let owner = raw.owner().to_string();
    let wrong = |why: String| ConnectError::new(format!("{owner}: {why}"));
    if let Some((key, column)) = metadata.iter().find(|(key, _)| key != TOPIC) {
        return Err(wrong(format!("column '{column}': the metadata '{key}' cannot be written, only '{TOPIC}' can; declare it VIRTUAL")));
    }
    let column = metadata.first().and_then(|(_, column)| schema.index_of(column).ok());
    let route = match (&options.topic, column) {
        (Some(_), Some(_)) => {
            return Err(wrong(
                "option 'topic': the metadata column 'topic' says it row by row; declare it VIRTUAL, or leave the option out".into(),
            ));
        }
        (None, None) => return Err(wrong("option 'topic' is required, or a metadata column 'topic' that is not VIRTUAL".into())),
        (None, Some(index)) if *schema.field(index).data_type() != DataType::Utf8 => {
            return Err(wrong(format!("column '{}' FROM 'topic': expected STRING", schema.field(index).name())));
        }
        (None, Some(index)) => Route::Column(index),
        (Some(topic), None) => {
            check_name(topic).map_err(|why| wrong(format!("option 'topic' = '{topic}': {why}")))?;
            Route::Fixed(Arc::from(topic.as_str()))
        }
    };
    let columns: Vec<usize> = (0..schema.fields().len()).filter(|i| Some(*i) != column).collect();
    let fields: Vec<Arc<Field>> = columns.iter().map(|i| schema.fields()[*i].clone()).collect();
    let layout = Layout { format: format(raw)?, schema: Arc::new(Schema::new(fields)), columns, route };
    layout.format.encoder(&layout.schema).map_err(|e| ConnectError::from(e).at(&owner))?;
    let target = Target::new(&options).map_err(|e| e.at(&owner))?;
    Ok(Box::new(MqttSink::new(options, target, layout)))
}
