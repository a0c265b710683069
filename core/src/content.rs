//! Content of a result beside outputs and message: texts, images, sounds and resources.

use crate::json::RawJson;
use crate::json::write::Writer;

/// A piece of a result for people or for a model, not for programs. A handler adds it by
/// [`Context::content`](crate::Context::content).
///
/// The bytes of images, sounds and resources are written into the reply as base64 (RFC 4648 §4),
/// without a copy in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Content<'c> {
    /// Text.
    Text(&'c str),
    /// An image.
    Image {
        /// The media type of the image, such as `image/png`.
        mime_type: &'c str,
        /// The bytes of the image.
        data: &'c [u8],
    },
    /// A sound.
    Audio {
        /// The media type of the sound, such as `audio/wav`.
        mime_type: &'c str,
        /// The bytes of the sound.
        data: &'c [u8],
    },
    /// A resource whose content is text.
    TextResource {
        /// The URI of the resource.
        uri: &'c str,
        /// The media type of the resource, such as `text/plain`.
        mime_type: &'c str,
        /// The text.
        text: &'c str,
    },
    /// A resource whose content is bytes.
    BlobResource {
        /// The URI of the resource.
        uri: &'c str,
        /// The media type of the resource, such as `application/pdf`.
        mime_type: &'c str,
        /// The bytes of the resource.
        data: &'c [u8],
    },
    /// A block that another server has written: a JSON object with a member `type`. It is passed on
    /// unchanged.
    Block(RawJson<'c>),
}

impl Content<'_> {
    /// Writes it as a JSON string, for protocols that have outputs only: text as it is, bytes as a
    /// `data:` URI (RFC 2397).
    pub(crate) fn write_as_output(&self, out: &mut Writer<'_>) {
        match *self {
            Self::Text(text) | Self::TextResource { text, .. } => out.str(text),
            Self::Image { mime_type, data }
            | Self::Audio { mime_type, data }
            | Self::BlobResource { mime_type, data, .. } => {
                out.raw(b"\"data:");
                out.text_part(mime_type);
                out.raw(b";base64,");
                write_base64(out, data);
                out.byte(b'"');
            }
            Self::Block(block) => out.raw(block.as_str().as_bytes()),
        }
    }

    /// Writes it as an object with its `type`, for protocols that have lists of such blocks. Here,
    /// so that what has no content does not link it.
    pub(crate) fn write_as_block(&self, out: &mut Writer<'_>) {
        let (kind, uri, mime_type, text, data) = match *self {
            Self::Text(text) => ("text", "", "", text, None),
            Self::Image { mime_type, data } => ("image", "", mime_type, "", Some(data)),
            Self::Audio { mime_type, data } => ("audio", "", mime_type, "", Some(data)),
            Self::TextResource { uri, mime_type, text } => ("resource", uri, mime_type, text, None),
            Self::BlobResource { uri, mime_type, data } => ("resource", uri, mime_type, "", Some(data)),
            Self::Block(block) => return out.raw(block.as_str().as_bytes()),
        };
        let is_resource = kind == "resource";
        out.raw(b"{\"type\":\"");
        out.raw(kind.as_bytes());
        out.byte(b'"');
        if is_resource {
            out.raw(b",\"resource\":{\"uri\":");
            out.str(uri);
        }
        if !mime_type.is_empty() {
            out.raw(b",\"mimeType\":");
            out.str(mime_type);
        }
        match data {
            None => {
                out.raw(b",\"text\":");
                out.str(text);
            }
            Some(data) => {
                out.raw(if is_resource { b",\"blob\":\"" } else { b",\"data\":\"" });
                write_base64(out, data);
                out.byte(b'"');
            }
        }
        out.raw(if is_resource { b"}}" } else { b"}" });
    }
}

/// Writes bytes as base64, with padding.
fn write_base64(out: &mut Writer<'_>, data: &[u8]) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letter = |bits: u32| ALPHABET.get(bits as usize & 63).copied().unwrap_or_default();
    for group in data.chunks(3) {
        let byte = |place: usize| u32::from(group.get(place).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        out.byte(letter(bits >> 18));
        out.byte(letter(bits >> 12));
        out.byte(if group.len() > 1 { letter(bits >> 6) } else { b'=' });
        out.byte(if group.len() > 2 { letter(bits) } else { b'=' });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 4648 §10, and what has every kind of letter.
    #[test]
    fn bytes_are_written_as_base64() {
        for (data, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (b"fooba", "Zm9vYmE="),
            (b"foobar", "Zm9vYmFy"),
            (b"\x00\x10\xfb\xff", "ABD7/w=="),
            (b"\xfb\xef\xbe", "++++"),
        ] {
            let mut memory = [0; 16];
            let mut out = Writer::new(&mut memory);
            write_base64(&mut out, data);
            assert_eq!(out.as_written(), text.as_bytes());
        }
    }

    #[test]
    fn other_protocols_get_a_data_uri() {
        for (content, text) in [
            (Content::Text("a\"b"), r#""a\"b""#),
            (Content::Image { mime_type: "image/png", data: b"foo" }, r#""data:image/png;base64,Zm9v""#),
            (Content::TextResource { uri: "x:y", mime_type: "text/plain", text: "t" }, r#""t""#),
        ] {
            let mut memory = [0; 64];
            let mut out = Writer::new(&mut memory);
            content.write_as_output(&mut out);
            assert_eq!(core::str::from_utf8(out.as_written()).unwrap(), text);
        }
    }
}
