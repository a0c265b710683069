//! Proves that the core's release code has no panic path: builds the probe for thumbv6m and follows, in the linked
//! program, all that leads to the panic handler.
//!
//! ```text
//! rustup target add thumbv6m-none-eabi
//! cargo run -p rigline-no-panic
//! ```
//!
//! It fails when a panic path is there, names the functions it goes by, and fails too when it does not find the
//! panic that is put in on purpose.

#[cfg(not(target_os = "none"))]
mod calls;

#[cfg(not(target_os = "none"))]
fn main() -> std::process::ExitCode {
    check::main()
}

#[cfg(not(target_os = "none"))]
mod check {
    use std::path::PathBuf;
    use std::process::{Command, ExitCode, Stdio};

    use rigline::json::Json;

    use crate::calls::{Calls, Path};

    type Result<T> = std::result::Result<T, String>;

    const TARGET: &str = "thumbv6m-none-eabi";

    /// The function that the panic handler calls.
    const PANIC: &str = "rigline_panic_path";

    /// rustc's own: an async function that is polled after its end. No code can avoid it.
    const ASYNC_GUARD: &str = "core::panicking::panic_const::panic_const_async_fn_resumed";

    struct Build {
        profile: &'static str,
        features: &'static [&'static str],
        allowed: &'static [&'static str],
    }

    const BUILDS: &[Build] = &[
        Build { profile: "release", features: &[], allowed: &[] },
        Build { profile: "release", features: &["handlers"], allowed: &[ASYNC_GUARD] },
        Build { profile: "release", features: &["async"], allowed: &[ASYNC_GUARD] },
        Build { profile: "release", features: ALL, allowed: &[ASYNC_GUARD] },
        // At opt-level "s" the compiler leaves a bounds check in postcard's own code for integers.
        Build { profile: "firmware", features: &["async", "protocols"], allowed: &[ASYNC_GUARD] },
    ];

    const ALL: &[&str] = &["async", "postcard", "protocols"];

    pub(crate) fn main() -> ExitCode {
        match run() {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(fault) => {
                eprintln!("no-panic: {fault}");
                ExitCode::FAILURE
            }
        }
    }

    fn run() -> Result<bool> {
        let mut clean = true;
        for build in BUILDS {
            let features = build.features.join(",");
            let paths = panic_paths(build.profile, &features, build.allowed)?;
            println!("no-panic: {} [{features}]: {} panic paths", build.profile, paths.len());
            for path in &paths {
                println!("  {path}");
            }
            clean &= paths.is_empty();
        }
        let found = panic_paths("release", "deliberate-panic", &[])?;
        let sees = found.iter().any(|path| path.to_string().contains("_start"));
        println!(
            "no-panic: a panic put in on purpose is {}",
            if sees { "found" } else { "NOT found: the check is blind" }
        );
        Ok(clean && sees)
    }

    fn panic_paths(profile: &str, features: &str, allowed: &[&str]) -> Result<Vec<Path>> {
        let program = build(profile, features)?;
        let program = std::fs::read(&program).map_err(|fault| format!("{}: {fault}", program.display()))?;
        Ok(Calls::of(&program).map_err(|fault| format!("cannot read the probe: {fault}"))?.paths_to(PANIC, allowed))
    }

    /// Builds the probe; the linker keeps the relocations, which tell who calls whom.
    fn build(profile: &str, features: &str) -> Result<PathBuf> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(["rustc", "--quiet", "--bin", "no-panic-probe", "--message-format", "json-render-diagnostics"])
            .args(["--target", TARGET, "--profile", profile, "--features", features])
            .args(["--", "-C", "link-arg=--emit-relocs"])
            .stderr(Stdio::inherit())
            .output()
            .map_err(|fault| format!("cannot start cargo: {fault}"))?;
        if !output.status.success() {
            return Err(format!("the probe does not build; is the target there? rustup target add {TARGET}"));
        }
        let artifact = output.stdout.split(|byte| *byte == b'\n').find_map(|line| {
            let name = Json::parse(line).ok()?.get("executable")?.text()?;
            Some(PathBuf::from(name.chars().collect::<String>()))
        });
        artifact.ok_or_else(|| "cargo does not say where the probe is".to_owned())
    }
}

#[cfg(target_os = "none")]
compile_error!("only the probe is for this target: --bin no-panic-probe");
