//! The traffic between a holder and the port of its rig, once the port is open: frames of bytes, in which no byte is looked at.
//!
//! The holder's frames begin with their kind, their length (`u32`), their number and the time after which they are not written any more (`u64` each,
//! little-endian). Those of the agent begin with their kind and their length.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::clock::BootTime;

/// How many bytes a frame has at most.
pub(crate) const PIECE: usize = 32 << 10;
/// The length of what the holder's frames begin with.
pub(crate) const HEAD: usize = 21;
/// The length of what the agent's frames begin with.
pub(crate) const HEAD_BACK: usize = 5;

/// A piece that a holder sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum PieceKind {
    /// Bytes that go to the rig.
    Bytes,
    /// The new state of the DTR line, as one byte: 0 or 1.
    Dtr,
    /// A request to drop the bytes that are queued in the port.
    Discard,
    /// The end of the holder's bytes.
    End,
}

/// The frames that the agent sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Back {
    /// The port is open. The data has the properties of the connection, as JSON.
    Opened,
    /// Bytes that the rig has sent.
    Bytes,
    /// Bytes that the rig has written to standard error, if it is a program.
    Errors,
    /// The port is closed. The data has the exit code and the reason, as JSON.
    Closed,
}

impl PieceKind {
    fn of(byte: u8) -> Option<Self> {
        [Self::Bytes, Self::Dtr, Self::Discard, Self::End].into_iter().find(|kind| *kind as u8 == byte)
    }
}

impl Back {
    fn of(byte: u8) -> Option<Self> {
        [Self::Opened, Self::Bytes, Self::Errors, Self::Closed].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// A frame of a holder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) kind: PieceKind,
    pub(crate) seq: u64,
    pub(crate) until: BootTime,
    pub(crate) bytes: Vec<u8>,
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn length(bytes: [u8; 4]) -> io::Result<usize> {
    match usize::try_from(u32::from_le_bytes(bytes)) {
        Ok(length) if length <= PIECE => Ok(length),
        _ => Err(invalid(format!("a frame of {} bytes, and it may have {PIECE}", u32::from_le_bytes(bytes)))),
    }
}

/// Reads a holder's frame; none at the end of what it sends.
///
/// # Errors
/// The connection is lost, or it is no frame.
pub(crate) async fn read(reader: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Piece>> {
    let mut kind = [0];
    if reader.read(&mut kind).await? == 0 {
        return Ok(None);
    }
    let [kind] = kind;
    let kind = PieceKind::of(kind).ok_or_else(|| invalid(format!("a frame of the unknown kind {kind}")))?;
    let mut four = [0; 4];
    reader.read_exact(&mut four).await?;
    let mut eight = [0; 8];
    reader.read_exact(&mut eight).await?;
    let seq = u64::from_le_bytes(eight);
    reader.read_exact(&mut eight).await?;
    let until = u64::from_le_bytes(eight);
    let mut bytes = vec![0; length(four)?];
    reader.read_exact(&mut bytes).await?;
    Ok(Some(Piece { kind, seq, until, bytes }))
}

/// Writes a holder's frame behind what is in `out`. It has at most [`PIECE`] bytes.
pub(crate) fn write(out: &mut Vec<u8>, kind: PieceKind, seq: u64, until: BootTime, bytes: &[u8]) {
    out.reserve(HEAD + bytes.len());
    out.push(kind as u8);
    out.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(seq.to_le_bytes());
    out.extend(until.to_le_bytes());
    out.extend(bytes);
}

/// A frame of the agent.
pub(crate) fn back(kind: Back, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BACK + bytes.len());
    out.push(kind as u8);
    out.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(bytes);
    out
}

/// The beginning of a frame of the agent: its kind, and how many bytes follow.
///
/// # Errors
/// It is no frame.
pub(crate) fn head_back(head: [u8; HEAD_BACK]) -> io::Result<(Back, usize)> {
    let [kind, a, b, c, d] = head;
    let kind = Back::of(kind).ok_or_else(|| invalid(format!("a frame of the unknown kind {kind}")))?;
    Ok((kind, length([a, b, c, d])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_are_read_as_they_were_written_and_others_are_refused_with_the_limit() {
        let mut wire = Vec::new();
        write(&mut wire, PieceKind::Bytes, 1, 77, b"hello\n");
        write(&mut wire, PieceKind::Dtr, 2, 78, &[1]);
        write(&mut wire, PieceKind::Bytes, 3, 79, &vec![b'x'; PIECE]);
        let mut reader = wire.as_slice();
        for (kind, seq, until, bytes) in [
            (PieceKind::Bytes, 1, 77, b"hello\n".to_vec()),
            (PieceKind::Dtr, 2, 78, vec![1]),
            (PieceKind::Bytes, 3, 79, vec![b'x'; PIECE]),
        ] {
            assert_eq!(read(&mut reader).await.unwrap(), Some(Piece { kind, seq, until, bytes }));
        }
        assert_eq!(read(&mut reader).await.unwrap(), None);
        // One that is cut off is an error, and no end.
        assert!(read(&mut wire.get(..HEAD + 3).unwrap()).await.is_err());
        let mut long = Vec::new();
        write(&mut long, PieceKind::Bytes, 1, 1, &vec![0; PIECE + 1]);
        assert!(read(&mut long.as_slice()).await.unwrap_err().to_string().contains("it may have 32768"));
        long[0] = 9;
        assert!(read(&mut long.as_slice()).await.unwrap_err().to_string().contains("unknown kind 9"));
        let said = back(Back::Bytes, b"abc");
        let head = <[u8; HEAD_BACK]>::try_from(&said[..HEAD_BACK]).unwrap();
        assert_eq!(head_back(head).unwrap(), (Back::Bytes, 3));
        assert!(head_back([7, 0, 0, 0, 0]).is_err());
        assert!(head_back([1, 1, 128, 0, 0]).is_err());
    }
}
