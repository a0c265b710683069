//! Files that the command line names. `-` is a stream, and so is what a shell hands over as `<(…)`; everything else is read and
//! written by [`rigline_std::files`]: nothing blocks, and nothing is written through a link or into what somebody else wrote.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::path::Path;

use rigline::json::{Json, Kind};
use rigline_std::files;

use crate::connect::Failure;
use crate::out;

/// The longest file that is read as a whole, in bytes.
const LONGEST: u64 = 64 << 20;

/// Opens a file to be read piece by piece.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    if is_stream(path) { File::open(path) } else { files::open(path) }
}

/// The text of a file.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    if is_stream(path) { io::read_to_string(File::open(path)?.take(LONGEST)) } else { files::read_text(path, LONGEST) }
}

/// Writes a whole file; `-` is standard output.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if path == Path::new("-") || path == Path::new("/dev/stdout") {
        out::print_file(text);
        return Ok(());
    }
    files::write(path, text.as_bytes()).map_err(|error| failed(path, &error))
}

/// A log of JSON lines that lines are added to. Its folder is made. A link is not followed, and what is no such log is left as it
/// is.
pub(crate) fn append(path: &Path) -> Result<File, Failure> {
    match files::first_line(path).map_err(|error| failed(path, &error))? {
        Some(first) if !Json::parse(first.as_bytes()).is_ok_and(|json| json.kind() == Kind::Object) => {
            let text = format!("{} exists, and is not a log of JSON lines; nothing was changed", path.display());
            return Err(Failure::usage(text));
        }
        Some(_) => {}
        None => files::write(path, b"").map_err(|error| failed(path, &error))?,
    }
    files::open_with(OpenOptions::new().append(true), path).map_err(|error| failed(path, &error))
}

fn is_stream(path: &Path) -> bool {
    ["/dev/fd", "/dev/stdin", "/proc/self/fd"].iter().any(|place| path.starts_with(place))
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("{}: {error}", path.display()))
}
