//! Requests and answers byte by byte.

use super::*;

fn answer(body: &[u8]) -> Answer<std::io::Cursor<Vec<u8>>> {
    let bytes = [&(body.len() as i32).to_be_bytes()[..], body].concat();
    let mut answer = Answer::new(std::io::Cursor::new(bytes), "here".into());
    answer.begin().unwrap();
    answer
}

fn asked(topic: &str, partition: i32, offset: i64) -> Asked {
    Asked { topic: topic.into(), partition, epoch: 3, offset }
}

#[test]
fn partitions_are_asked_for_under_their_topics() {
    let extent = Extent { wait_ms: 1, bytes_min: 2, bytes_max: 3, partition_bytes_max: 4, committed: true };
    let body = fetch_body(&extent, &[asked("a", 0, 5), asked("a", 1, 6), asked("b", 0, 7)]).0;
    let partition = |number: u8, offset: u8| {
        let mut bytes = vec![0, 0, 0, number, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, offset];
        bytes.extend([0xff; 8]);
        bytes.extend([0, 0, 0, 4]);
        bytes
    };
    let head = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 2];
    let expect = [
        &head[..],
        &[0, 1, b'a', 0, 0, 0, 2],
        &partition(0, 5),
        &partition(1, 6),
        &[0, 1, b'b', 0, 0, 0, 1],
        &partition(0, 7),
        &[0, 0, 0, 0, 0, 0],
    ];
    assert_eq!(body, expect.concat());
}

#[test]
fn records_are_read_where_they_come() {
    let mut body = vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 2];
    for (partition, code, aborted) in [(0u8, 0u8, 2u8), (1, 6, 0)] {
        body.extend([0, 0, 0, partition, 0, code]);
        for number in [30i64, 20, 10] {
            body.extend(number.to_be_bytes());
        }
        if code == 0 {
            body.extend([0, 0, 0, aborted]);
            for number in [1i64, 9, 2, 8] {
                body.extend(number.to_be_bytes());
            }
        } else {
            body.extend([0xff; 4]);
        }
        body.extend([0xff; 4]);
        body.extend(if code == 0 { vec![0, 0, 0, 3, b'x', b'y', b'z'] } else { vec![0xff; 4] });
    }
    for (committed, end) in [(true, 20), (false, 30)] {
        let mut found = Vec::new();
        fetched(&mut answer(&body), committed, |answer, topic, front| {
            let mut bytes = Vec::new();
            answer.bytes(front.bytes, &mut bytes)?;
            found.push((topic.to_string(), front, bytes));
            Ok(())
        })
        .unwrap();
        let first = Front { partition: 0, code: 0, end, aborted: vec![(8, 2), (9, 1)], bytes: 3 };
        let second = Front { partition: 1, code: 6, end, aborted: Vec::new(), bytes: 0 };
        assert_eq!(found, [("t".to_string(), first, b"xyz".to_vec()), ("t".to_string(), second, Vec::new())]);
    }
    for length in 4..body.len() {
        let cut = fetched(&mut answer(&body[..length]), true, |answer, _, front| answer.bytes(front.bytes, &mut Vec::new()));
        assert!(cut.is_err(), "{length}");
    }
    assert!(fetched(&mut answer(&[0, 0, 0, 0, 0, 29, 0, 0, 0, 0]), true, |_, _, _| Ok(())).unwrap_err().contains("uthoriz"));
}

#[test]
fn leaders_are_found() {
    let mut body = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 7, 0, 1, b'h', 0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 7];
    body.extend([0, 0, 0, 2, 0, 3, 0, 1, b'u', 0, 0, 0, 0, 0, 0, 0, 0, 1, b't', 0, 0, 0, 0, 1]);
    body.extend([0, 0, 0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 0]);
    let found = read_leaders(&mut answer(&body)).unwrap();
    assert_eq!(found.brokers, BTreeMap::from([(7, "h:9".to_string())]));
    assert_eq!(found.topics["u"], (3, BTreeMap::new()));
    assert_eq!(found.topics["t"], (0, BTreeMap::from([(4, Leader { code: 0, node: 7, epoch: 5 })])));
    for length in 4..body.len() {
        assert!(read_leaders(&mut answer(&body[..length])).is_err(), "{length}");
    }
}

#[test]
fn what_a_broker_lacks_is_named() {
    let known = |fetch: u8, offsets: u8, metadata: u8| {
        let ranges = [[1, fetch], [2, offsets], [3, metadata], [23, 4]].map(|[key, most]| [0, key, 0, 0, 0, most]);
        let body = [&[0, 0, 0, 0, 0, 4][..], &ranges.concat()].concat();
        lacking(&mut answer(&body)).unwrap()
    };
    assert_eq!(known(11, 5, 7), None);
    assert_eq!(known(17, 9, 13), None);
    assert!(known(10, 5, 7).unwrap().contains("version 11 of request 1"));
    assert!(known(11, 5, 6).unwrap().contains("version 7 of request 3"));
}

#[test]
fn codes_have_names() {
    assert_eq!(named(code::OFFSET_OUT_OF_RANGE), RDKafkaErrorCode::OffsetOutOfRange);
    assert_eq!(named(12_345), RDKafkaErrorCode::Unknown);
    assert!(code::passing(code::NOT_LEADER) && !code::passing(code::OFFSET_OUT_OF_RANGE));
}
