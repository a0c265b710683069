//! JSON Schemas (Draft 2020-12) as constants, rendered at compile time.
//!
//! A type's schema is a [`SchemaNode`]: a tree of `&'static` nodes, because the length of a generic
//! type's schema text is not known. Where a manifest needs the text, the compiler renders it. The
//! image contains neither the tree nor code that walks it.

mod literal;
mod render;
mod tree;

use core::fmt;

use crate::json::write::Writer;
use literal::is_schema;
pub(crate) use literal::numeric;
pub(crate) use render::escaped_len;
pub use tree::{Choice, Field, Keywords, OneOf, SchemaNode};

/// A JSON Schema in a manifest: JSON text in flash, ready to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Schema(Text);

#[derive(Debug, Clone, Copy)]
enum Text {
    Whole(&'static str),
    Pieces(&'static [&'static [u8]; PIECES]),
}

impl Schema {
    /// The schema that accepts any value: `{}`.
    pub const ANY: Self = Self(Text::Whole("{}"));
    /// The schema of an object without declared members: `{"type":"object","properties":{}}`.
    pub const OBJECT: Self = Self(Text::Whole(r#"{"type":"object","properties":{}}"#));

    /// A schema from its text: a JSON object or a boolean on one line.
    ///
    /// # Panics
    /// If `text` is not JSON, or has several lines. In a constant, where schemas belong, that is an
    /// error of the compiler.
    pub const fn text(text: &'static str) -> Self {
        assert!(is_schema(text.as_bytes()), "a schema must be a JSON object or boolean, on one line");
        Self(Text::Whole(text))
    }

    /// The schema of `T`, rendered by the compiler.
    pub(crate) const fn rendered_from<T: HasNode>() -> Self {
        Self(Text::Pieces(const { &Pieces::<T>::ALL }))
    }

    /// A schema from the whole text that [`SchemaNode::render`] has made.
    #[doc(hidden)]
    pub const fn rendered(text: &'static [u8]) -> Self {
        match str::from_utf8(text) {
            Ok(text) => Self(Text::Whole(text)),
            Err(_) => Self::ANY,
        }
    }

    /// Writes the JSON text of the schema.
    pub fn write(&self, out: &mut Writer<'_>) {
        match self.0 {
            Text::Whole(text) => out.raw(text.as_bytes()),
            Text::Pieces(pieces) => pieces.iter().for_each(|piece| out.raw(piece)),
        }
    }

    /// The pieces of the JSON text; one in `whole`, if it is in one piece.
    fn pieces<'a>(&self, whole: &'a mut [&'static [u8]; 1]) -> &'a [&'static [u8]] {
        match self.0 {
            Text::Whole(text) => {
                *whole = [text.as_bytes()];
                whole
            }
            Text::Pieces(pieces) => pieces,
        }
    }

    /// Writes the schema without its descriptions. Members of that name in a default, in an example or
    /// in a constant are data, and stay.
    #[inline(never)]
    pub(crate) fn write_without_descriptions(&self, out: &mut Writer<'_>) {
        let mut filter = Filter { string: None, is_left_out: false, depth: 0, data: usize::MAX };
        for byte in self.pieces(&mut [&[]]).iter().copied().flatten() {
            filter.byte(*byte, out);
        }
    }

    /// The length of the JSON text, in bytes.
    #[allow(clippy::len_without_is_empty, reason = "no schema is empty")]
    pub const fn len(&self) -> usize {
        match self.0 {
            Text::Whole(text) => text.len(),
            Text::Pieces(pieces) => {
                let mut rest = pieces.as_slice();
                let mut length = 0;
                while let [piece, tail @ ..] = rest {
                    length += piece.len();
                    rest = tail;
                }
                length
            }
        }
    }

    /// Whether a member of this name stands anywhere in the schema. The name is what stands between
    /// its quotes in JSON.
    pub(crate) fn has_name(&self, name: &[u8]) -> bool {
        // How much of the name, its quotes and the colon was found.
        let mut found = 0usize;
        for piece in self.pieces(&mut [&[]]) {
            for byte in *piece {
                let wanted = match name.get(found.wrapping_sub(1)) {
                    Some(byte) => *byte,
                    None if found > name.len().wrapping_add(1) => b':',
                    None => b'"',
                };
                // There may be space before the colon.
                if wanted == b':' && matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                    continue;
                }
                found = if *byte == wanted { found.wrapping_add(1) } else { usize::from(*byte == b'"') };
                if found == name.len().wrapping_add(3) {
                    return true;
                }
            }
        }
        false
    }

    /// The text of a schema that was made from text.
    pub(crate) const fn written_out(self) -> &'static str {
        match self.0 {
            Text::Whole(text) => text,
            Text::Pieces(_) => "{}",
        }
    }
}

/// The text in pieces.
impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Text::Whole(text) => f.write_str(text),
            // A piece may end within a character.
            Text::Pieces(pieces) => {
                let mut rest = pieces.iter().flat_map(|piece| piece.iter().copied());
                while let Some(first) = rest.next() {
                    let more = match first {
                        0..0xc0 => 0,
                        0xc0..0xe0 => 1,
                        0xe0..0xf0 => 2,
                        0xf0.. => 3,
                    };
                    let mut bytes = [first, 0, 0, 0];
                    bytes.iter_mut().skip(1).take(more).for_each(|byte| *byte = rest.next().unwrap_or_default());
                    let character = bytes.get(..=more).and_then(|bytes| str::from_utf8(bytes).ok());
                    f.write_str(character.unwrap_or_default())?;
                }
                Ok(())
            }
        }
    }
}

/// Takes the text of a schema, and writes it without descriptions.
struct Filter {
    /// In a string: whether the next byte is escaped.
    string: Option<bool>,
    /// Whether the string is a description.
    is_left_out: bool,
    depth: usize,
    /// The depth outside the value that is data, if there is one.
    data: usize,
}

impl Filter {
    fn byte(&mut self, byte: u8, out: &mut Writer<'_>) {
        const DESCRIPTION: &[u8] = b"\"description\":";
        const DATA: [&[u8]; 4] = [b"\"default\":", b"\"examples\":", b"\"enum\":", b"\"const\":"];
        let is_left_out = self.is_left_out;
        if let Some(is_escaped) = self.string {
            self.string = (byte != b'"' || is_escaped).then_some(byte == b'\\' && !is_escaped);
            self.is_left_out &= self.string.is_some();
        } else {
            let written = out.as_written();
            match byte {
                b'"' => {
                    self.string = Some(false);
                    if self.data == usize::MAX && written.ends_with(DESCRIPTION) {
                        self.is_left_out = true;
                        let start = written.len().saturating_sub(DESCRIPTION.len());
                        // With the comma before it; the one behind the first member follows below.
                        let has_comma = written.get(..start).is_some_and(|before| before.ends_with(b","));
                        return out.truncate(start.saturating_sub(usize::from(has_comma)));
                    }
                }
                b'{' | b'[' => {
                    if self.data == usize::MAX && DATA.iter().any(|name| written.ends_with(name)) {
                        self.data = self.depth;
                    }
                    self.depth = self.depth.wrapping_add(1);
                }
                b'}' | b']' => {
                    self.depth = self.depth.wrapping_sub(1);
                    if self.depth == self.data {
                        self.data = usize::MAX;
                    }
                }
                // Behind a first member that was left out.
                b',' if written.ends_with(b"{") => return,
                _ => {}
            }
        }
        if !is_left_out {
            out.byte(byte);
        }
    }
}

/// A generic type's text has a length that no array type can name (`[u8; T::LEN]`), so it is cut
/// into arrays of 2^15, 2^14, … 1 bytes: those whose bit is set in the length. A manifest fits
/// 65,535 bytes, and so does each schema in it.
const PIECES: usize = 16;

/// A type that has a schema, of arguments or of outputs.
pub(crate) trait HasNode {
    const NODE: &'static SchemaNode;
}

struct Piece<T, const SIZE: usize>(core::marker::PhantomData<T>);

impl<T: HasNode, const SIZE: usize> Piece<T, SIZE> {
    /// Where the piece starts: behind the larger ones.
    const FROM: usize = Pieces::<T>::LEN & !(2 * SIZE - 1);
    const BYTES: [u8; SIZE] = T::NODE.render(Self::FROM);
    const SLICE: &'static [u8] = if Pieces::<T>::LEN & SIZE == 0 { &[] } else { &Self::BYTES };
}

struct Pieces<T>(core::marker::PhantomData<T>);

impl<T: HasNode> Pieces<T> {
    const LEN: usize = {
        let length = T::NODE.len();
        assert!(length < 1 << PIECES, "a schema has at most 65,535 bytes");
        length
    };

    const ALL: [&'static [u8]; PIECES] = [
        Piece::<T, 0x8000>::SLICE,
        Piece::<T, 0x4000>::SLICE,
        Piece::<T, 0x2000>::SLICE,
        Piece::<T, 0x1000>::SLICE,
        Piece::<T, 0x800>::SLICE,
        Piece::<T, 0x400>::SLICE,
        Piece::<T, 0x200>::SLICE,
        Piece::<T, 0x100>::SLICE,
        Piece::<T, 0x80>::SLICE,
        Piece::<T, 0x40>::SLICE,
        Piece::<T, 0x20>::SLICE,
        Piece::<T, 0x10>::SLICE,
        Piece::<T, 8>::SLICE,
        Piece::<T, 4>::SLICE,
        Piece::<T, 2>::SLICE,
        Piece::<T, 1>::SLICE,
    ];
}

const fn contains(text: &str, part: &str) -> bool {
    let part = part.as_bytes();
    let mut rest = text.as_bytes();
    while let Some((start, _)) = rest.split_at_checked(part.len()) {
        if same(start, part) {
            return true;
        }
        let [_, tail @ ..] = rest else { return false };
        rest = tail;
    }
    false
}

const fn same(mut a: &[u8], mut b: &[u8]) -> bool {
    loop {
        match (a, b) {
            ([], []) => return true,
            ([x, a_tail @ ..], [y, b_tail @ ..]) if *x == *y => (a, b) = (a_tail, b_tail),
            _ => return false,
        }
    }
}

/// Whether `names` has `name`.
pub(crate) const fn has_name(names: &[&str], name: &str) -> bool {
    let mut rest = names;
    while let [known, tail @ ..] = rest {
        if same(known.as_bytes(), name.as_bytes()) {
            return true;
        }
        rest = tail;
    }
    false
}
