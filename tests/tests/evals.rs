//! The rig's evals on the emulated RP2040: the firmware's image, over its USB serial port.

use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use rigline_std::eval::run::{Event, OnEvent, Outcome};
use rigline_std::eval::runs::{Request, Runs};
use rigline_std::eval::store::Store;
use rigline_tests::emulator::Emulator;

fn run(eval: &str, target: &str, folder: &Path) -> (Arc<Outcome>, String) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let runs = Runs::new(Store::open(folder.to_owned()).unwrap(), None);
    let mut request = Request::default();
    request.path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../firmware-example/evals").join(eval);
    request.overrides.target = Some(target.to_owned());
    let accepted = runs.accept(&request).unwrap();
    let logs = Arc::new(Mutex::new(String::new()));
    let on_event: OnEvent = {
        let logs = logs.clone();
        Arc::new(move |event| {
            if let Event::Log { message, .. } = event {
                logs.lock().unwrap().push_str(&(message + "\n"));
            }
        })
    };
    let (sender, done) = mpsc::channel();
    accepted.launch(runtime.handle(), on_event, move |outcome| drop(sender.send(outcome)));
    let outcome = done.recv_timeout(Duration::from_secs(180)).unwrap();
    let logs = logs.lock().unwrap().clone();
    (outcome, logs)
}

#[test]
fn the_rigs_evals_pass_on_the_emulated_board() {
    let Some(emulator) = Emulator::start("rig") else { return };
    let target = format!("tcp:127.0.0.1:{}", emulator.usb_port());
    let folder = tempfile::tempdir().unwrap();
    for (eval, passed) in [("rails", 3), ("boot", 3), ("broken", 0)] {
        let (outcome, logs) = run(eval, &target, folder.path());
        assert_eq!((outcome.summary.total, outcome.summary.passed), (3, passed), "{eval}: {logs}");
        assert_eq!(outcome.passed, passed > 0, "{eval}: {logs}");
    }
}
