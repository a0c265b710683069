//! An extension with some of its operations only.

use rigline::{Call, Config, Context, Event, Extension, Failure, Manifest, Outcome};

/// An extension that offers only what was chosen. The rest is as if it were not there.
#[derive(Debug)]
pub struct Selected<E> {
    inner: E,
    manifest: &'static Manifest,
    /// Where the operations are in the inner manifest.
    places: Vec<usize>,
}

/// What is chosen.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Only operations that say that they change nothing.
    pub read_only: bool,
    /// Only these, by their names or the names of their tools; all if there are none.
    pub allowed: Vec<String>,
}

impl<E: Extension> Selected<E> {
    /// The extension with the operations that are chosen. Its manifest lasts as long as the process.
    ///
    /// # Errors
    /// There is no operation of one of the names, or none is left.
    pub fn new(inner: E, selection: &Selection) -> Result<Self, String> {
        let all = inner.manifest();
        let is = |place: usize, name: &str| {
            all.operations
                .get(place)
                .is_some_and(|operation| operation.name == name || operation.identifier().eq(name.bytes()))
        };
        // As the tools' names have `_` for `-`, either spelling will do, the exact one first.
        let own = |name: &String| {
            let dashed = |name: &str| name.replace('_', "-");
            let is_known = (0..all.operations.len()).any(|place| is(place, name));
            let alike =
                all.operations.iter().map(|operation| operation.name).find(|known| dashed(known) == dashed(name));
            alike.filter(|_| !is_known).map_or_else(|| name.clone(), str::to_owned)
        };
        let allowed: Vec<String> = selection.allowed.iter().map(own).collect();
        for name in &allowed {
            if !(0..all.operations.len()).any(|place| is(place, name)) {
                let known: Vec<&str> = all.operations.iter().map(|operation| operation.name).collect();
                return Err(format!("{} has no operation `{name}`; it has {}", all.name, known.join(", ")));
            }
        }
        let places: Vec<usize> = (0..all.operations.len())
            .filter(|place| allowed.is_empty() || allowed.iter().any(|name| is(*place, name)))
            .filter(|place| {
                let effects = all.operations.get(*place).and_then(|operation| operation.effects);
                !selection.read_only || effects.is_some_and(|effects| effects.read_only)
            })
            .collect();
        if places.is_empty() && selection.read_only && !all.operations.is_empty() {
            return Err(match allowed.as_slice() {
                [] => format!("{} marks no operation as read-only, so that none is left", all.name),
                names => format!(
                    "{} does not mark {} as read-only, so that no operation is left",
                    all.name,
                    names.join(", ")
                ),
            });
        }
        let operations: Vec<_> = places.iter().filter_map(|place| all.operations.get(*place)).copied().collect();
        let manifest = Box::leak(Box::new(all.operations(Vec::leak(operations))));
        Ok(Self { inner, manifest, places })
    }
}

impl<E: Extension> Extension for Selected<E> {
    fn manifest(&self) -> &'static Manifest {
        self.manifest
    }

    async fn call(&mut self, mut call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        call.index = self.places.get(call.index).copied().unwrap_or(usize::MAX);
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
