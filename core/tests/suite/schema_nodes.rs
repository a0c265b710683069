//! The JSON text of each kind of schema, rendered at run time: constants are rendered by the same functions.

use rigline::Schema;
use rigline::params::{Choice, Field, Keywords, OneOf, SchemaNode};

/// A node that lives as long as a constant.
fn kept(node: SchemaNode) -> &'static SchemaNode {
    Box::leak(Box::new(node))
}

fn field(name: &'static str, node: SchemaNode, keywords: Keywords) -> Field {
    Field::new(name, kept(node), keywords)
}

fn object(fields: impl Into<Vec<Field>>, closed: bool) -> SchemaNode {
    SchemaNode::Object { description: "", fields: fields.into().leak(), closed }
}

const ANY_LENGTH: SchemaNode = SchemaNode::String { min_length: 0, max_length: usize::MAX, pattern: "" };
const FROM_3_TO_8: SchemaNode = SchemaNode::String { min_length: 3, max_length: 8, pattern: "" };
const FLOAT: SchemaNode = SchemaNode::Number { multiple_of: "", minimum: "", maximum: "" };
const TENTHS: SchemaNode = SchemaNode::Number { multiple_of: "0.1", minimum: "-9.9", maximum: "9.9" };
const BYTE: SchemaNode = SchemaNode::Integer { minimum: -128, maximum: 127 };
const SWITCH: SchemaNode = SchemaNode::Enum { names: &["on", "off"], description: "a switch" };
const RAILS: OneOf =
    OneOf::Described(&[Choice::new("3V3", "the \"board\""), Choice::new("a\tb", ""), Choice::new("5V0", "the bus")]);
const RAIL: OneOf = OneOf::Described(&[Choice::new("3V3", "")]);
const FIVER: OneOf = OneOf::Described(&[Choice::new("fiver", "")]);
const UNSAID: Keywords = Keywords::NONE;

fn said(node: SchemaNode, keywords: Keywords) -> SchemaNode {
    SchemaNode::Said(kept(node), keywords)
}

fn nullable(node: SchemaNode) -> SchemaNode {
    SchemaNode::Nullable(kept(node))
}

/// The text is the node's: its length is told before, and each part of it can be had alone.
fn assert_text(node: &SchemaNode, text: &str) {
    let whole: [u8; 512] = node.render(0);
    let length = whole.iter().position(|byte| *byte == 0).unwrap();
    assert_eq!(str::from_utf8(&whole[..length]).unwrap(), text);
    assert_eq!(node.len(), text.len(), "{text}");
    serde_json::from_str::<serde_json::Value>(text).unwrap();
    for from in 0..=text.len() {
        let part = &whole[from..from + 7];
        assert_eq!(node.render::<7>(from), part, "{text} from {from}");
    }
}

#[test]
fn each_kind_of_schema_has_its_text() {
    for (node, text) in [
        (SchemaNode::Any, "{}"),
        (nullable(SchemaNode::Any), "{}"),
        (SchemaNode::Bool, r#"{"type":"boolean"}"#),
        (nullable(SchemaNode::Bool), r#"{"type":["boolean","null"]}"#),
        (BYTE, r#"{"type":"integer","minimum":-128,"maximum":127}"#),
        (nullable(BYTE), r#"{"type":["integer","null"],"minimum":-128,"maximum":127}"#),
        (
            SchemaNode::Integer { minimum: i128::MIN, maximum: u128::MAX },
            r#"{"type":"integer","minimum":-170141183460469231731687303715884105728,"maximum":340282366920938463463374607431768211455}"#,
        ),
        (FLOAT, r#"{"type":"number"}"#),
        (
            SchemaNode::Number { multiple_of: "", minimum: "-1.5", maximum: "2.5" },
            r#"{"type":"number","minimum":-1.5,"maximum":2.5}"#,
        ),
        (TENTHS, r#"{"type":"number","minimum":-9.9,"maximum":9.9,"description":"at most 1 digit behind the point"}"#),
        (
            SchemaNode::Number { multiple_of: "0.001", minimum: "", maximum: "" },
            r#"{"type":"number","description":"at most 3 digits behind the point"}"#,
        ),
        (ANY_LENGTH, r#"{"type":"string"}"#),
        (FROM_3_TO_8, r#"{"type":"string","minLength":3,"maxLength":8}"#),
        (
            SchemaNode::String { min_length: 1, max_length: usize::MAX, pattern: "^[a-z]\\\\.$" },
            r#"{"type":"string","minLength":1,"pattern":"^[a-z]\\.$"}"#,
        ),
        (SWITCH, r#"{"enum":["on","off"],"description":"a switch"}"#),
        (nullable(SWITCH), r#"{"enum":["on","off",null],"description":"a switch"}"#),
        (SchemaNode::Enum { names: &["\"one\""], description: "" }, r#"{"enum":["\"one\""]}"#),
        (
            SchemaNode::Array { items: kept(SchemaNode::Bool), min_items: 0, max_items: usize::MAX },
            r#"{"type":"array","items":{"type":"boolean"}}"#,
        ),
        (
            nullable(SchemaNode::Array { items: kept(nullable(BYTE)), min_items: 2, max_items: 4 }),
            r#"{"type":["array","null"],"items":{"type":["integer","null"],"minimum":-128,"maximum":127},"minItems":2,"maxItems":4}"#,
        ),
        (
            SchemaNode::Map { max_key: usize::MAX, values: kept(SchemaNode::Bool), max_members: usize::MAX },
            r#"{"type":"object","additionalProperties":{"type":"boolean"}}"#,
        ),
        (
            nullable(SchemaNode::Map { max_key: 16, values: kept(SchemaNode::Any), max_members: 3 }),
            r#"{"type":["object","null"],"propertyNames":{"maxLength":16},"additionalProperties":{},"maxProperties":3}"#,
        ),
        (*SchemaNode::OBJECT, r#"{"type":"object","properties":{}}"#),
        (
            SchemaNode::Object { description: "closed", fields: &[], closed: true },
            r#"{"type":"object","properties":{},"additionalProperties":false,"description":"closed"}"#,
        ),
        (
            object([field("a\\b", SchemaNode::Bool, UNSAID).optional(true)], false),
            r#"{"type":"object","properties":{"a\\b":{"type":"boolean"}}}"#,
        ),
        (
            object(
                [
                    field("a", SchemaNode::Bool, UNSAID).optional(false),
                    field("b", SchemaNode::Any, UNSAID.description("what?")).optional(true),
                    field("c", object([field("d", SchemaNode::Bool, UNSAID)], true), UNSAID),
                ],
                false,
            ),
            r#"{"type":"object","properties":{"a":{"type":"boolean"},"b":{"description":"what?"},"c":{"type":"object","properties":{"d":{"type":"boolean"}},"required":["d"],"additionalProperties":false}},"required":["a","c"]}"#,
        ),
        (
            nullable(object([field("last", SchemaNode::Bool, UNSAID)], false)),
            r#"{"type":["object","null"],"properties":{"last":{"type":"boolean"}},"required":["last"]}"#,
        ),
    ] {
        assert_text(&node, text);
    }
}

#[test]
fn what_is_said_of_a_value_stands_in_its_schema() {
    let lengths = |least, most| UNSAID.min_length(least).max_length(most);
    for (node, text) in [
        (said(SchemaNode::Any, UNSAID.description("as it is")), r#"{"description":"as it is"}"#),
        (
            said(nullable(SchemaNode::Bool), UNSAID.default("true").description("a switch")),
            r#"{"type":["boolean","null"],"description":"a switch","default":true}"#,
        ),
        (said(SchemaNode::Any, UNSAID.examples(&["1"])), r#"{"examples":[1]}"#),
        (
            said(SchemaNode::Any, UNSAID.default("3").examples(&["1", "[2]", "null"])),
            r#"{"default":3,"examples":[1,[2],null]}"#,
        ),
        // The bounds that are said take the place of the type's.
        (said(BYTE, UNSAID.minimum("-3")), r#"{"type":"integer","minimum":-3,"maximum":127}"#),
        (said(BYTE, UNSAID.maximum("3")), r#"{"type":"integer","minimum":-128,"maximum":3}"#),
        (said(FLOAT, UNSAID.minimum("0.5")), r#"{"type":"number","minimum":0.5}"#),
        (said(FLOAT, UNSAID.maximum("1e3")), r#"{"type":"number","maximum":1e3}"#),
        // Of two bounds of a length, the stricter one.
        (said(FROM_3_TO_8, lengths(2, 9)), r#"{"type":"string","minLength":3,"maxLength":8}"#),
        (said(FROM_3_TO_8, lengths(4, 7)), r#"{"type":"string","minLength":4,"maxLength":7}"#),
        (said(FROM_3_TO_8, UNSAID.max_length(0)), r#"{"type":"string","minLength":3,"maxLength":0}"#),
        (said(ANY_LENGTH, lengths(0, usize::MAX)), r#"{"type":"string"}"#),
        (
            said(SchemaNode::Array { items: kept(SchemaNode::Any), min_items: 0, max_items: 4 }, lengths(1, 3)),
            r#"{"type":"array","items":{},"minItems":1,"maxItems":3}"#,
        ),
        (
            said(
                SchemaNode::Map { max_key: usize::MAX, values: kept(SchemaNode::Any), max_members: 4 },
                UNSAID.min_length(2),
            ),
            r#"{"type":"object","additionalProperties":{},"minProperties":2,"maxProperties":4}"#,
        ),
        // A type's own description is the one of a value that has none.
        (said(SWITCH, UNSAID.description("the light")), r#"{"enum":["on","off"],"description":"the light"}"#),
        (
            said(SchemaNode::Object { description: "own", fields: &[], closed: false }, UNSAID.default("{}")),
            r#"{"type":"object","properties":{},"description":"own","default":{}}"#,
        ),
        // The digits behind the point are told within the sentence, or in one of their own.
        (
            said(TENTHS, UNSAID.description("volts")),
            r#"{"type":"number","minimum":-9.9,"maximum":9.9,"description":"volts; at most 1 digit behind the point"}"#,
        ),
        (
            said(TENTHS, UNSAID.description("The volts.").minimum("0")),
            r#"{"type":"number","minimum":0,"maximum":9.9,"description":"The volts. At most 1 digit behind the point."}"#,
        ),
        // The texts that a string may be, and what they mean.
        (said(ANY_LENGTH, UNSAID.one_of(OneOf::Names(&["a\"b", "c"]))), r#"{"type":"string","enum":["a\"b","c"]}"#),
        (
            said(nullable(ANY_LENGTH), UNSAID.one_of(OneOf::Names(&["a"])).description("one")),
            r#"{"type":["string","null"],"enum":["a",null],"description":"one"}"#,
        ),
        (
            said(ANY_LENGTH, UNSAID.one_of(RAILS)),
            r#"{"type":"string","enum":["3V3","a\tb","5V0"],"description":": 3V3 (the \"board\"), a\tb, 5V0 (the bus)"}"#,
        ),
        (
            said(nullable(ANY_LENGTH), UNSAID.description("The rail").one_of(RAIL)),
            r#"{"type":["string","null"],"enum":["3V3",null],"description":"The rail: 3V3"}"#,
        ),
        (said(ANY_LENGTH, UNSAID.one_of(OneOf::Described(&[]))), r#"{"type":"string"}"#),
    ] {
        assert_text(&node, text);
    }
}

/// The attributes of a type's alias hold where the field has none of its own.
#[test]
fn what_is_said_outside_goes_before_what_is_said_inside() {
    let inner = UNSAID
        .description("inner")
        .min_length(4)
        .max_length(6)
        .default("\"dflt\"")
        .examples(&["\"four\""])
        .one_of(OneOf::Names(&["four", "fivee"]));
    let outer = UNSAID
        .description("outer")
        .min_length(5)
        .max_length(7)
        .default("\"other\"")
        .examples(&["\"fiver\""])
        .one_of(FIVER);
    let of_inner = r#"{"type":"string","enum":["four","fivee"],"minLength":4,"maxLength":6,"description":"inner","default":"dflt","examples":["four"]}"#;
    let of_outer = r#"{"type":"string","enum":["fiver"],"minLength":5,"maxLength":7,"description":"outer: fiver","default":"other","examples":["fiver"]}"#;
    for (keywords, text) in [(UNSAID, of_inner), (outer, of_outer)] {
        assert_text(&said(said(ANY_LENGTH, inner), keywords), text);
    }
    assert_text(&said(said(ANY_LENGTH, UNSAID), outer), of_outer);
    let bounds = UNSAID.minimum("1").maximum("9");
    for (keywords, text) in [
        (UNSAID, r#"{"type":"integer","minimum":1,"maximum":9}"#),
        (UNSAID.minimum("2"), r#"{"type":"integer","minimum":2,"maximum":9}"#),
        (UNSAID.maximum("8"), r#"{"type":"integer","minimum":1,"maximum":8}"#),
    ] {
        assert_text(&said(said(BYTE, bounds), keywords), text);
    }
}

#[test]
fn descriptions_are_escaped_as_replies_are() {
    let text = "\"\\\u{8}\u{c}\n\r\t\u{0}\u{1}\u{f}\u{10}\u{1f} /é\u{2027}\u{2028}\u{2029}\u{202a}😀\u{7f}";
    let escaped = "\\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u0001\\u000f\\u0010\\u001f /é\u{2027}\\u2028\\u2029\u{202a}😀\u{7f}";
    let mut memory = [0; 128];
    let mut out = rigline::json::write::Writer::new(&mut memory);
    out.text_part(text);
    assert_eq!(str::from_utf8(out.as_written()), Ok(escaped), "in a reply");
    assert_text(&said(SchemaNode::Any, UNSAID.description(text)), &format!(r#"{{"description":"{escaped}"}}"#));
}

/// A schema that is written out has the last word about itself.
#[test]
fn a_schema_that_is_written_out_gets_only_what_it_does_not_say_itself() {
    let all = UNSAID.description("said").default("1").examples(&["2"]);
    for (text, keywords, expected) in [
        ("true", UNSAID, "true"),
        ("false", UNSAID, "false"),
        ("{}", UNSAID, "{}"),
        ("true", all, r#"{"description":"said","default":1,"examples":[2]}"#),
        ("false", all, r#"{"not":{},"description":"said","default":1,"examples":[2]}"#),
        ("{}", all, r#"{"description":"said","default":1,"examples":[2]}"#),
        (r#"{"type":"null"}"#, UNSAID.default("1"), r#"{"type":"null","default":1}"#),
        (r#"{"type":"null"}"#, UNSAID.examples(&["1"]), r#"{"type":"null","examples":[1]}"#),
        (r#"{"type":"null"}"#, UNSAID.minimum("1").min_length(2), r#"{"type":"null"}"#),
        (
            r#"{"description":"own","minimum":1}"#,
            all,
            r#"{"description":"own","minimum":1,"default":1,"examples":[2]}"#,
        ),
        (r#"{"default":5}"#, all, r#"{"default":5,"description":"said","examples":[2]}"#),
        (r#"{"examples":[5]}"#, all, r#"{"examples":[5],"description":"said","default":1}"#),
        (
            r#"{"x":1,"default":5,"examples":[],"description":""}"#,
            all,
            r#"{"x":1,"default":5,"examples":[],"description":""}"#,
        ),
        // These are not the keywords.
        (
            r#"{"descriptions":1,"defaul":2}"#,
            UNSAID.description("said"),
            r#"{"descriptions":1,"defaul":2,"description":"said"}"#,
        ),
    ] {
        assert_text(&said(SchemaNode::text(text), keywords), expected);
        assert_eq!(Schema::text(text).to_string(), text);
    }
    for (text, keywords, expected) in [
        ("true", UNSAID, r#"{"anyOf":[true,{"type":"null"}]}"#),
        (
            r#"{"description":"own","type":"null"}"#,
            UNSAID.description("said"),
            r#"{"anyOf":[{"description":"own","type":"null"},{"type":"null"}],"description":"said"}"#,
        ),
    ] {
        assert_text(&said(nullable(SchemaNode::text(text)), keywords), expected);
    }
}

/// RFC 8259's grammar, of an object or a boolean, on one line.
#[test]
fn a_schema_that_is_written_out_must_be_json() {
    let nested = |depth: usize| format!("{{\"a\":{}1{}}}", "[".repeat(depth), "]".repeat(depth));
    let read = |text: &str| {
        let text: &'static str = text.to_owned().leak();
        std::panic::catch_unwind(|| Schema::text(text).len()).ok()
    };
    let good = [
        "true",
        "false",
        "{}",
        "{ }",
        "{\t}",
        r#"{"a":"","b":[],"c":[ ],"d":{}}"#,
        r#"{ "a" : [ 1 , 2 ] , "b" :	true }"#,
        r#"{"a":[0,-0,10,1.5,0.05,1e5,1E+5,2.5e-3,-1.0E0]}"#,
        r#"{"a":[true,false,null]}"#,
        r#"{"\"\\\/\b\f\n\r\t":"\u00e9\uD83d\uDe00 é😀"}"#,
        r#"{"a":{"b":{"c":[[{}]]}}}"#,
        "{\"\u{7f}\":1}",
    ];
    for text in good.into_iter().map(str::to_owned).chain([nested(63)]) {
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
        assert_eq!(read(&text), Some(text.len()), "{text}");
    }
    let bad = [
        "",
        "null",
        "1",
        "\"a\"",
        "[]",
        "{",
        "}",
        "{]",
        "{}}",
        "{},",
        " {}",
        "{} ",
        "truefalse",
        "{\n}",
        "{\r}",
        r#"{"a"}"#,
        r#"{"a":}"#,
        r#"{"a":1,}"#,
        r#"{,"a":1}"#,
        r#"{"a":1 "b":2}"#,
        r#"{"a":1:"b":2}"#,
        "{a:1}",
        "{1:1}",
        r#"{"a":1"#,
        r#"{"a":"#,
        r#"{"a":[1,]}"#,
        r#"{"a":[,1]}"#,
        r#"{"a":[1 2]}"#,
        r#"{"a":[1}}"#,
        r#"{"a":{"b":1]}"#,
        r#"{"a":[1"#,
        r#"{"a":01}"#,
        r#"{"a":-01}"#,
        r#"{"a":00}"#,
        r#"{"a":+1}"#,
        r#"{"a":-}"#,
        r#"{"a":.5}"#,
        r#"{"a":1.}"#,
        r#"{"a":1.e5}"#,
        r#"{"a":1e}"#,
        r#"{"a":1e+}"#,
        r#"{"a":1e-}"#,
        r#"{"a":--1}"#,
        r#"{"a":0x1}"#,
        r#"{"a":NaN}"#,
        r#"{"a":1e5.5}"#,
        r#"{"a":tru}"#,
        r#"{"a":True}"#,
        r#"{"a":nul}"#,
        r#"{"a":fals}"#,
        r#"{"a":"}"#,
        "{\"a\":\"\t\"}",
        "{\"a\":\"\u{1f}\"}",
        r#"{"a":"\x"}"#,
        r#"{"a":"\"}"#,
        r#"{"a":"\u12"}"#,
        r#"{"a":"\u"}"#,
        r#"{"a":"\ug000"}"#,
        r#"{"a":"\u0g00"}"#,
        r#"{"a":"\u00g0"}"#,
        r#"{"a":"\u000g"}"#,
    ];
    for text in bad.into_iter().map(str::to_owned).chain([nested(64)]) {
        assert_eq!(read(&text), None, "{text}");
    }
}
