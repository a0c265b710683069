//! An extension of which only some operations are offered.

use std::collections::BTreeMap;
use std::sync::Mutex;

use rigline::{Call, Config, Context, Event, Extension, Failure, Manifest, Operation, Outcome};

use crate::mutex::lock;

/// An extension that offers only selected operations of another one. Calls of the others are
/// refused as unknown.
#[derive(Debug)]
pub struct Selected<E> {
    inner: E,
    selection: OperationSelection,
    /// The selected part of each inner manifest that there was, by the address of the latter.
    manifests: Mutex<BTreeMap<usize, &'static Manifest>>,
}

/// A selection of operations.
#[derive(Debug, Clone, Default)]
pub struct OperationSelection {
    /// Whether only operations that are declared to be read-only are selected.
    pub read_only: bool,
    /// The names of the selected operations, or the names of their tools. An empty list selects
    /// all.
    pub allowed: Vec<String>,
}

impl<E: Extension> Selected<E> {
    /// The extension with the selected operations. Its manifest lives as long as the process.
    ///
    /// # Errors
    /// There is no operation of one of the names, or no operation is left.
    pub fn new(inner: E, selection: &OperationSelection) -> Result<Self, String> {
        let all = inner.manifest();
        let allowed = &selection.allowed;
        for name in allowed {
            if !all.operations.iter().any(|operation| is_named(all, operation, name)) {
                let known: Vec<&str> = all.operations.iter().map(|operation| operation.name).collect();
                return Err(format!("{} has no operation `{name}`; it has {}", all.name, known.join(", ")));
            }
        }
        let left = left(all, selection);
        if left.operations.is_empty() && selection.read_only && !all.operations.is_empty() {
            return Err(match allowed.as_slice() {
                [] => format!("{} marks no operation as read-only, so that none is left", all.name),
                names => {
                    format!(
                        "{} does not mark {} as read-only, so that no operation is left",
                        all.name,
                        names.join(", ")
                    )
                }
            });
        }
        Ok(Self { inner, selection: selection.clone(), manifests: Mutex::new(BTreeMap::from([(address(all), left)])) })
    }

    /// Selects operations as [`new`](Self::new) does, of an extension that may have other
    /// operations later. Names that it does not have are no error.
    pub fn of_what_comes(inner: E, selection: &OperationSelection) -> Self {
        let all = inner.manifest();
        let manifests = Mutex::new(BTreeMap::from([(address(all), left(all, selection))]));
        Self { inner, selection: selection.clone(), manifests }
    }
}

fn address(manifest: &'static Manifest) -> usize {
    std::ptr::from_ref(manifest).addr()
}

/// Whether a name means an operation. As the tools' names have `_` for `-`, either spelling will do, the exact one first.
fn is_named(all: &Manifest, operation: &Operation, name: &str) -> bool {
    let is = |operation: &Operation| operation.name == name || operation.identifier().eq(name.bytes());
    let dashed = |name: &str| name.replace('_', "-");
    is(operation) || (!all.operations.iter().any(is) && dashed(operation.name) == dashed(name))
}

/// The manifest with the operations that are chosen. It lasts as long as the process.
fn left(all: &'static Manifest, selection: &OperationSelection) -> &'static Manifest {
    let is_allowed = |operation: &&Operation| {
        let allowed = &selection.allowed;
        let is_harmless = operation.only_reads();
        (allowed.is_empty() || allowed.iter().any(|name| is_named(all, operation, name)))
            && (!selection.read_only || is_harmless)
    };
    if selection.allowed.is_empty() && !selection.read_only {
        return all;
    }
    let operations: Vec<_> = all.operations.iter().filter(is_allowed).copied().collect();
    Box::leak(Box::new(all.operations(Vec::leak(operations))))
}

impl<E: Extension> Extension for Selected<E> {
    fn manifest(&self) -> &'static Manifest {
        let all = self.inner.manifest();
        // Those that were there before last, too: a board may come and go.
        let mut manifests = lock(&self.manifests);
        manifests.entry(address(all)).or_insert_with(|| left(all, &self.selection))
    }

    async fn call(&mut self, mut call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let is_called = |operation: &Operation| operation.name == call.operation();
        call.index = self.inner.manifest().operations.iter().position(is_called).unwrap_or(usize::MAX);
        self.inner.call(call, cx).await
    }

    async fn configure(&mut self, config: Config<'_>, cx: &mut Context<'_>) -> Result<(), Failure> {
        self.inner.configure(config, cx).await
    }

    async fn on_event(&mut self, event: Event<'_>, cx: &mut Context<'_>) {
        self.inner.on_event(event, cx).await;
    }

    async fn safe_state(&mut self) {
        self.inner.safe_state().await;
    }
}
