//! The ids of topics. A topic that is deleted and created anew under its name has another one; by name
//! and offsets alone it could be taken for the old one.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::time::Duration;

use rdkafka::bindings as rd;
use rdkafka::types::{RDKafka, RDKafkaRespErr};

/// The ids of those topics that brokers tell an id of; brokers before 2.8 tell none.
pub fn ids(client: *mut RDKafka, topics: &[String], timeout: Duration) -> BTreeMap<String, String> {
    let names: Vec<CString> = topics.iter().filter_map(|t| CString::new(t.as_str()).ok()).collect();
    if names.is_empty() {
        return BTreeMap::new();
    }
    let mut pointers: Vec<*const c_char> = names.iter().map(|n| n.as_ptr()).collect();
    let mut found = BTreeMap::new();
    let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: everything made here is destroyed here; results live as long as the event, and are copied.
    unsafe {
        let queue = rd::rd_kafka_queue_new(client);
        let options = rd::rd_kafka_AdminOptions_new(client, rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS);
        rd::rd_kafka_AdminOptions_set_request_timeout(options, timeout_ms, ptr::null_mut(), 0);
        let collection = rd::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len());
        rd::rd_kafka_DescribeTopics(client, collection, options, queue);
        let event = rd::rd_kafka_queue_poll(queue, timeout_ms);
        if !event.is_null() {
            let result = rd::rd_kafka_event_DescribeTopics_result(event);
            if !result.is_null() {
                let mut count = 0;
                let descriptions = rd::rd_kafka_DescribeTopics_result_topics(result, &mut count);
                for index in 0..count {
                    let description = *descriptions.add(index);
                    let error = rd::rd_kafka_TopicDescription_error(description);
                    if !error.is_null() && rd::rd_kafka_error_code(error) != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
                        continue;
                    }
                    let id = rd::rd_kafka_TopicDescription_topic_id(description);
                    let (name, id) = (rd::rd_kafka_TopicDescription_name(description), text_of(id));
                    if let Some(id) = id {
                        found.insert(CStr::from_ptr(name).to_string_lossy().into_owned(), id);
                    }
                }
            }
            rd::rd_kafka_event_destroy(event);
        }
        rd::rd_kafka_TopicCollection_destroy(collection);
        rd::rd_kafka_AdminOptions_destroy(options);
        rd::rd_kafka_queue_destroy(queue);
    }
    found
}

/// The id in base 64, as Kafka's tools write it; none where there is none.
///
/// # Safety
/// `id` is null or an id that lives.
unsafe fn text_of(id: *const rd::rd_kafka_Uuid_t) -> Option<String> {
    if id.is_null() {
        return None;
    }
    // SAFETY: the caller's. The text belongs to the id.
    unsafe {
        let zero = rd::rd_kafka_Uuid_least_significant_bits(id) == 0 && rd::rd_kafka_Uuid_most_significant_bits(id) == 0;
        (!zero).then(|| CStr::from_ptr(rd::rd_kafka_Uuid_base64str(id)).to_string_lossy().into_owned())
    }
}
