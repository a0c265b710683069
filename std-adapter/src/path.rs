//! Paths as hosts mean them.

use std::path::{Path, PathBuf};

use rigline::CallContext;
use rigline::protocol::gevals::TaskContext;

/// Resolves a path of a host. A relative path starts at the call's `workdir` (gevals "Context
/// Object"), not at the process's own directory, since hosts start the process in any directory.
///
/// An absolute path stays as it is. Without a `workdir`, a relative path stays relative to the
/// process's directory.
///
/// ```
/// use rigline::{Call, Context, Failure, FailureKind, Outcome};
///
/// async fn apply(mut call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
///     let file: std::collections::BTreeMap<String, String> = call.args()?;
///     let path = rigline_std::path::resolve(&call.context, file.get("file").map_or("deployment.yaml", |file| file));
///     match std::fs::read(&path) {
///         Ok(bytes) => cx.done(format_args!("{} has {} bytes", path.display(), bytes.len())),
///         Err(error) => cx.failed(format_args!("{}: {error}", path.display())),
///     }
/// }
/// ```
pub fn resolve(context: &CallContext<'_>, path: impl AsRef<Path>) -> PathBuf {
    match TaskContext::of(context).workdir {
        Some(workdir) => Path::new(&*workdir.to_cow()).join(path),
        None => path.as_ref().to_path_buf(),
    }
}
