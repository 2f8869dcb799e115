//! Messages as other libraries write them, cut anywhere.

use tonic::Code;

use super::*;

/// A message as gRPC sends it.
fn framed(message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.put_u32(message.len() as u32);
    bytes.extend_from_slice(message);
    bytes
}

fn data(path: Option<&str>, header: &[u8], metadata: &[u8], body: &[u8]) -> FlightData {
    let descriptor = path.map(|path| FlightDescriptor::new_path(vec![path.to_string()]));
    FlightData {
        flight_descriptor: descriptor,
        data_header: header.to_vec().into(),
        app_metadata: metadata.to_vec().into(),
        data_body: body.to_vec().into(),
    }
}

fn samples() -> Vec<FlightData> {
    let body: Vec<u8> = (0..1000).map(|n| n as u8).collect();
    vec![
        data(Some("a stream"), b"schema", b"{}", b""),
        data(None, b"a header", b"", &body),
        data(None, b"", b"metadata alone", b""),
        data(None, b"", b"", b""),
        data(None, &body[..300], &body[..200], &body[..1]),
    ]
}

/// What is taken of bytes that come in pieces of `size`; whether nothing is left over.
fn taken(bytes: &[u8], size: usize) -> Result<(Vec<Message>, bool), Status> {
    let (mut parser, mut messages) = (Parser::new(1 << 20), Vec::new());
    for piece in bytes.chunks(size) {
        let mut piece = Bytes::copy_from_slice(piece);
        while let Some(message) = parser.take(&mut piece)? {
            messages.push(message);
        }
        assert!(piece.is_empty());
    }
    Ok((messages, parser.is_between()))
}

#[test]
fn messages_come_back_however_they_are_cut() {
    let bytes: Vec<u8> = samples().iter().flat_map(|m| framed(&m.encode_to_vec())).collect();
    for size in [1, 2, 7, 64, 1024, bytes.len()] {
        let (messages, whole) = taken(&bytes, size).unwrap();
        assert!(whole && messages.len() == samples().len(), "pieces of {size}");
        for (message, sample) in messages.iter().zip(samples()) {
            assert_eq!(message.descriptor, sample.flight_descriptor);
            assert_eq!((&message.header, &message.metadata), (&sample.data_header, &sample.app_metadata));
            assert_eq!(message.body.as_slice(), sample.data_body.as_ref());
            assert_eq!(message.body.as_ptr().align_offset(64), 0);
        }
    }
    assert!(!taken(&bytes[..bytes.len() - 1], 64).unwrap().1, "the last is not whole");
}

/// Fields in another order, some that are not known, and one twice, of which the last counts.
#[test]
fn fields_stand_in_any_order() {
    let mut message = Vec::new();
    let fields: [(u64, u64, &[u8]); 6] = [
        (1000, 2, b"\x03old"),
        (77, 0, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        (78, 1, &[1; 8]),
        (79, 5, &[2; 4]),
        (1000, 2, b"\x03new"),
        (2, 2, b"\x02hi"),
    ];
    for (field, kind, value) in fields {
        encode_varint((field << 3) | kind, &mut message);
        message.extend_from_slice(value);
    }
    for size in [1, 3, 100] {
        let (messages, whole) = taken(&framed(&message), size).unwrap();
        let expected = Message { header: Bytes::from_static(b"hi"), body: Buffer::from(b"new"), ..Message::default() };
        assert_eq!((messages, whole), (vec![expected], true));
    }
}

#[test]
fn what_cannot_be_read_is_an_error() {
    let error = |bytes: &[u8]| taken(bytes, 3).unwrap_err();
    assert!(error(&[1, 0, 0, 0, 0]).message().contains("compressed"));
    assert!(error(&[7, 0, 0, 0, 0]).message().contains("does not know"));
    let large = error(&[0, 0, 32, 0, 0]);
    assert_eq!((large.code(), large.message()), (Code::OutOfRange, "a message of 2097152 bytes, at most 1048576 are taken"));
    assert!(error(&framed(&[0x12, 9, 1])).message().contains("longer than it"));
    assert!(error(&framed(&[0x12])).message().contains("ends within a field"));
    assert!(error(&framed(&[0x80])).message().contains("ends within a field"));
    assert!(error(&framed(&[0x29, 1, 2])).message().contains("ends within a field"), "a number of eight bytes");
    assert!(error(&framed(&[0xff; 12])).message().contains("too large"));
    assert!(error(&framed(&[0x13])).message().contains("of a kind"));
    assert!(error(&framed(&[0x0a, 1, 0xff])).message().contains("cannot be read"), "no descriptor");
}

/// Whatever byte is wrong, there are messages or an error, never a panic.
#[test]
fn wrong_bytes_are_errors() {
    let bytes: Vec<u8> = samples()[3..].iter().flat_map(|m| framed(&m.encode_to_vec())).collect();
    for at in 0..bytes.len() {
        for byte in [0x00, 0x01, 0x7f, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            let _ = taken(&bytes, 50);
        }
    }
}

/// A few bytes that announced a block of 64 MB had memory for it set aside.
#[test]
fn what_a_length_says_is_not_believed() {
    let mut message = Vec::new();
    encode_varint((1000 << 3) | 2, &mut message);
    encode_varint(60 << 20, &mut message);
    let length = message.len() + (60 << 20);
    let bytes = [&[0u8][..], &(length as u32).to_be_bytes()[..], &message[..]].concat();
    let (mut parser, mut bytes) = (Parser::new(64 << 20), Bytes::from(bytes));
    assert_eq!(parser.announced(&mut bytes).unwrap(), Some(length));
    assert!(parser.take(&mut bytes).unwrap().is_none());
    assert!(parser.body.capacity() <= BODY_BYTES_AHEAD);
}
