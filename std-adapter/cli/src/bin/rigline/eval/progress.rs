//! Progress: bars on a terminal, plain lines elsewhere.

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use rigline::protocol::waza::{self, Verdict};
use rigline_eval::Spec;
use rigline_eval::run::{Event, Progress};
use rigline_std::mutex::lock;

use super::time;
use crate::out::{self, complain};

/// Progress: bars on a terminal, plain lines elsewhere.
pub(super) struct Show {
    spec: Arc<Spec>,
    is_quiet: bool,
    bars: Option<Bars>,
}

struct Bars {
    all: MultiProgress,
    run: ProgressBar,
    /// The progress bars of the running tasks, by their position.
    tasks: Mutex<HashMap<usize, ProgressBar>>,
}

impl Show {
    pub(super) fn new(spec: &Arc<Spec>, is_quiet: bool) -> Self {
        let bars = (std::io::stderr().is_terminal() && !is_quiet).then(|| {
            let all = MultiProgress::new();
            let count = u64::try_from(spec.tasks.len()).unwrap_or(u64::MAX);
            let bar = all.add(ProgressBar::new(count));
            bar.set_style(style("{prefix} {bar:30} {pos}/{len} {elapsed}"));
            bar.set_prefix(out::word(&spec.name).into_owned());
            Bars { all, run: bar, tasks: Mutex::default() }
        });
        Self { spec: spec.clone(), is_quiet, bars }
    }

    pub(super) fn event(&self, event: &Event) {
        match (event, &self.bars) {
            _ if self.is_quiet => {}
            (Event::Log { level, message }, Some(bars)) => {
                let _ = bars.all.println(format!("  {}: {}", level.name(), out::word(message)));
            }
            (Event::Log { level, message }, None) => complain(format_args!("  {}: {message}", level.name())),
            (Event::Progress(progress), Some(bars)) => self.draw(progress, bars),
            (Event::Progress(progress), None) => self.print(progress),
            _ => {}
        }
    }

    fn draw(&self, progress: &Progress, Bars { all, run, tasks }: &Bars) {
        let mut tasks = lock(tasks);
        let place = progress.task.unwrap_or_default();
        match progress.event {
            waza::Event::TaskStart => {
                let task = all.insert_before(run, ProgressBar::new(self.spec.config.trials_per_task.into()));
                task.set_style(style("  {spinner} {msg} {pos}/{len}"));
                task.set_message(out::word(self.name(place)).into_owned());
                task.enable_steady_tick(Duration::from_millis(100));
                tasks.insert(place, task);
            }
            waza::Event::TrialComplete => tasks.get(&place).into_iter().for_each(|task| task.inc(1)),
            waza::Event::TaskComplete => {
                if let Some(task) = tasks.remove(&place) {
                    task.finish_and_clear();
                }
                run.inc(1);
                let verdict = progress.verdict.map_or("", Verdict::as_str);
                let _ = all.println(format!("{verdict:>9}  {}", out::word(self.name(place))));
            }
            waza::Event::RunComplete => run.finish_and_clear(),
            _ => {}
        }
    }

    fn print(&self, progress: &Progress) {
        let name = out::word(progress.task.map_or("", |task| self.name(task)));
        let verdict = progress.verdict.map_or("", Verdict::as_str);
        let took = progress.duration.map(time).unwrap_or_default();
        match progress.event {
            waza::Event::RunStart => {
                let name = out::word(&self.spec.name);
                complain(format_args!("{name}: {}", out::count(self.spec.tasks.len(), "task")));
            }
            waza::Event::TaskComplete => complain(format_args!("{verdict:>9}  {name} ({took})")),
            waza::Event::TrialComplete if self.spec.config.trials_per_task > 1 => {
                let trial = progress.trial.unwrap_or_default();
                complain(format_args!(
                    "  {name}: trial {trial} of {}: {verdict} ({took})",
                    self.spec.config.trials_per_task
                ));
            }
            _ => {}
        }
    }

    fn name(&self, task: usize) -> &str {
        self.spec.tasks.get(task).map_or("", |task| task.name.as_str())
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
