//! Commands that an extension needs: gevals "Requirement Object". They are looked for with the
//! crate `which`.

use rigline::service::JobRun;
use rigline::{Call, Config, Context, Event, Extension, Failure, FailureKind, Manifest, Outcome};

/// An extension whose `requires` are looked for in the process's own `PATH` before every call,
/// until all are found.
///
/// While one is missing, every call fails with [`FailureKind::RequirementNotMet`] (gevals -32002),
/// and the error names the command. Only the process's `PATH` counts, not the call's `env`. A
/// command that contains a slash is a path. A file counts if it can be executed; on Windows, if its
/// file extension is in `PATHEXT`.
///
/// [`stdio::serve`](crate::stdio::serve) wraps every extension in this type.
///
/// ```
/// # use rigline::{Call, Context, Extension, Failure, Manifest, Outcome};
/// struct Kubernetes;
///
/// impl Extension for Kubernetes {
///     fn manifest(&self) -> &'static Manifest {
///         const MANIFEST: Manifest = Manifest::new("kubernetes", "1.0.0").requires(&["kubectl"]);
///         &MANIFEST
///     }
/// #   async fn call(&mut self, _: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
/// #       cx.done("done")
/// #   }
///     // ...
/// }
///
/// let extension = rigline_std::RequirePath::new(Kubernetes);
/// # let _ = extension;
/// ```
#[derive(Debug)]
pub struct RequirePath<E> {
    inner: E,
    /// How many of the requirements, from the first on, were found.
    found: usize,
}

impl<E: Extension> RequirePath<E> {
    /// Wraps an extension. The commands in its manifest are looked for before each call.
    pub fn new(inner: E) -> Self {
        Self { inner, found: 0 }
    }

    /// The wrapped extension.
    pub fn into_inner(self) -> E {
        self.inner
    }

    /// The first command that is not there. One that was found is not looked for again.
    fn missing(&mut self) -> Option<&'static str> {
        let commands = self.inner.manifest().requires.get(self.found..).unwrap_or_default();
        commands.iter().copied().find(|command| {
            let is_missing = which::which(command).is_err();
            self.found += usize::from(!is_missing);
            is_missing
        })
    }
}

impl<E: Extension> Extension for RequirePath<E> {
    fn manifest(&self) -> &'static Manifest {
        self.inner.manifest()
    }

    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        if let Some(command) = self.missing() {
            let text = format_args!("requirement not met: the command {command} is not in PATH");
            return Err(cx.failure(FailureKind::RequirementNotMet, text));
        }
        self.inner.call(call, cx).await
    }

    async fn configure(&mut self, config: Config<'_>, cx: &mut Context<'_>) -> Result<(), Failure> {
        self.inner.configure(config, cx).await
    }

    async fn on_event(&mut self, event: Event<'_>, cx: &mut Context<'_>) {
        self.inner.on_event(event, cx).await;
    }

    async fn run_task(&mut self, eval: usize, task: usize, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.inner.run_task(eval, task, cx).await
    }

    async fn run_job<'a>(&mut self, job: JobRun<'a>, cx: &mut Context<'a>) {
        self.inner.run_job(job, cx).await;
    }

    async fn safe_state(&mut self) {
        self.inner.safe_state().await;
    }
}
