//! The formats `avro` and `avro-confluent`: a message is an Avro record; the latter has the id of its
//! writer's schema in front of it, which a registry keeps.
//!
//! [`schema`] derives a table's schema as Flink does, [`read`] decodes, [`columns`] makes the table's types
//! of what was decoded, [`write`] encodes. Files of Avro records are [`crate::avro`]'s.

mod columns;
mod read;
mod schema;
mod write;

use crate::options;

pub(crate) use columns::adapt;
pub(super) use read::AvroMessages;
pub(crate) use schema::{names, schema_json};
pub(super) use write::AvroEncoder;
pub(crate) use write::Written;

options! {
    /// Options of the `avro` format in messages.
    pub struct AvroOptions {
        /// Whether a TIMESTAMP is Avro's `timestamp-millis` or `-micros`, as older versions of Flink have it,
        /// and not `local-timestamp-…`. A TIMESTAMP_LTZ is the former in both cases.
        flink "avro.timestamp_mapping.legacy" => timestamp_mapping_legacy: bool = true;
    }
}

options! {
    /// Options of the `avro-confluent` format.
    pub struct ConfluentOptions {
        /// The address of the schema registry, such as `http://localhost:8081`.
        flink "avro-confluent.url" => url: String;
        /// The subject under which the schema of a sink is registered; by default that of the topic.
        flink "avro-confluent.subject" => subject: Option<String>;
        /// Name and password for the registry as `name:password`.
        flink "avro-confluent.basic-auth.user-info" => user_info: Option<String>;
        /// Where name and password come from; only `USER_INFO` is known, which is what there is without it.
        flink "avro-confluent.basic-auth.credentials-source" => credentials_source: Option<String>;
        /// A token for the registry.
        flink "avro-confluent.bearer-auth.token" => bearer_token: Option<String>;
        /// Whether a TIMESTAMP is written as Avro's `timestamp-millis` or `-micros` and not
        /// `local-timestamp-…`. What is read goes by the writer's schema.
        flink "avro-confluent.timestamp_mapping.legacy" => timestamp_mapping_legacy: bool = true;
    }
}
