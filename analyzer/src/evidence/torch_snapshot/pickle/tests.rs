use proptest::prelude::*;

use super::*;

fn value(bytes: &[u8]) -> Result<Value, PickleError> {
    read(&[b"\x80\x02", bytes].concat()).map(|(_, value)| value)
}

fn reason(bytes: &[u8]) -> (u64, Reason) {
    let error = value(bytes).expect_err("it is refused");
    (error.offset, error.reason)
}

#[test]
fn numbers() {
    for (bytes, expected) in [
        (&b"K\x07."[..], Value::Int(7)),
        (b"M\x01\x02.", Value::Int(513)),
        (b"J\xff\xff\xff\xff.", Value::Int(-1)),
        (b"\x8a\x00.", Value::Int(0)),
        (b"\x8a\x01\xff.", Value::Int(-1)),
        (b"\x8a\x06\x00\x00\x00\x00\x10\x7f.", Value::Int(0x7f10_0000_0000)),
        (b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00.", Value::Unsigned(u64::MAX)),
        (b"\x8a\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01.", Value::Unsigned(u64::MAX)),
        (b"\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80.", Value::Int(i64::MIN)),
        (b"\x8a\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80.", Value::Int(i64::MIN)),
        (b"\x8b\x01\x00\x00\x00\x05.", Value::Int(5)),
        (b"G\x3f\xf8\x00\x00\x00\x00\x00\x00.", Value::Float(1.5)),
        (b"N.", Value::Nothing),
        (b"\x88.", Value::Bool(true)),
    ] {
        assert_eq!(value(bytes), Ok(expected), "{bytes:x?}");
    }
}

#[test]
fn what_would_run_code_is_refused_by_name_and_place() {
    assert_eq!(reason(b"cos\nsystem\n("), (2, Reason::Refused { name: "GLOBAL" }));
    assert_eq!(reason(b"N\x93."), (3, Reason::Refused { name: "STACK_GLOBAL" }));
    assert_eq!(reason(b"NR."), (3, Reason::Refused { name: "REDUCE" }));
    assert_eq!(reason(b"\xff"), (2, Reason::Unknown { byte: 0xff }));
    let error = value(b"NR.").unwrap_err().to_string();
    assert_eq!(
        error,
        "offset 3: the opcode REDUCE makes Python look up or call things, which a memory snapshot never needs; the file \
         is refused"
    );
}

#[test]
fn damaged_pickles_say_what_is_wrong() {
    assert_eq!(read(b"").unwrap_err().reason, Reason::NoPickle);
    assert_eq!(read(b"PK\x03\x04").unwrap_err().reason, Reason::NoPickle);
    assert_eq!(reason(b""), (2, Reason::Truncated));
    assert_eq!(reason(b"."), (2, Reason::Underflow));
    assert_eq!(reason(b"\x8c\x05ab"), (2, Reason::Truncated));
    assert_eq!(reason(b"\x8b\xff\xff\xff\xff"), (2, Reason::Truncated));
    assert_eq!(reason(b"\x8c\x01\xff."), (2, Reason::NoText));
    assert_eq!(reason(b"h\x00."), (2, Reason::NoMemo));
    assert_eq!(reason(b"Nr\xff\xff\xff\xff."), (3, Reason::NoMemo));
    assert_eq!(reason(b"N(e"), (4, Reason::WrongKind));
    assert_eq!(reason(b"}(Nu"), (5, Reason::WrongKind));
    assert_eq!(reason(b"N(."), (4, Reason::Underflow));
    assert_eq!(reason(&b"(".repeat(5000)), (1002, Reason::TooDeep));
    assert_eq!(reason(&b"]".repeat(5000)).1, Reason::TooMany);
}

#[test]
fn containers_and_what_they_share() {
    // [("a", [1, 2]), "a"], and a list that lies in itself.
    let bytes = b"\x80\x04](\x8c\x01a\x94](K\x01K\x02e\x86h\x00e.";
    let (arena, value) = read(bytes).unwrap();
    let items = arena.list(value).unwrap();
    let pair = arena.list(items[0]).unwrap();
    assert_eq!(arena.text(pair[0]), Some("a"));
    assert_eq!(arena.list(pair[1]), Some(&[Value::Int(1), Value::Int(2)][..]));
    assert_eq!(items[1], pair[0]);
    let (arena, value) = read(b"\x80\x04]\x94h\x00a.").unwrap();
    assert_eq!(arena.list(value), Some(&[value][..]));
}

#[test]
fn dictionaries_keep_the_last_value_of_a_key() {
    let (arena, dict) = read(b"\x80\x04}(\x8c\x01aK\x01\x8c\x01bK\x02u\x8c\x01aK\x03s.").unwrap();
    assert_eq!(arena.get(dict, "a"), Some(Value::Int(3)));
    assert_eq!(arena.get(dict, "b"), Some(Value::Int(2)));
    assert_eq!(arena.get(dict, "c"), None);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = read(&bytes);
        let _ = value(&bytes);
    }

    /// Mostly opcodes that are known, so that it gets further.
    #[test]
    fn no_opcodes_make_it_panic(opcodes in prop::collection::vec(prop::sample::select(
        &b"\x80\x95.N\x88\x89JKM\x8aGX\x8c(012]})\x85\x86\x87tldaesuqr\x94hj\x00\x01\x02abc"[..]), 0..300)) {
        if let Ok((arena, value)) = read(&[b"\x80\x04", &opcodes[..]].concat()) {
            arena.get(value, "a");
            arena.list(value);
        }
    }
}
