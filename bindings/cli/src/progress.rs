//! A progress bar for operations that last more than a second.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use forklift::{Progress, ProgressSink, Unit};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const PATIENCE: Duration = Duration::from_secs(1);

/// Draws on standard error from the second second on.
pub(crate) struct Bar {
    started: Instant,
    drawn: Mutex<Option<Drawn>>,
}

struct Drawn {
    bar: ProgressBar,
    shape: (Unit, bool),
}

impl Bar {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), drawn: Mutex::new(None) }
    }

    /// Takes the bar off the terminal; the next report draws it again.
    pub(crate) fn clear(&self) {
        if let Ok(mut drawn) = self.drawn.lock()
            && let Some(drawn) = drawn.take()
        {
            drawn.bar.finish_and_clear();
        }
    }
}

impl ProgressSink for Bar {
    fn report(&self, progress: Progress<'_>) {
        if self.started.elapsed() < PATIENCE {
            return;
        }
        let Ok(mut drawn) = self.drawn.lock() else { return };
        let shape = (progress.unit, progress.total > 0);
        let drawn = drawn.get_or_insert_with(|| Drawn { bar: bar(progress, shape), shape });
        if drawn.shape != shape {
            drawn.bar.set_style(style(shape));
            drawn.shape = shape;
        }
        drawn.bar.set_message(progress.step.to_owned());
        drawn.bar.set_length(progress.total);
        drawn.bar.set_position(progress.done);
    }
}

fn bar(progress: Progress<'_>, shape: (Unit, bool)) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(progress.total), ProgressDrawTarget::stderr())
        .with_style(style(shape))
        .with_message(progress.step.to_owned())
        .with_position(progress.done);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn style((unit, has_total): (Unit, bool)) -> ProgressStyle {
    let template = match (unit, has_total) {
        (Unit::Bytes, true) => "{msg} {wide_bar} {bytes}/{total_bytes}",
        (Unit::Bytes, false) => "{spinner} {msg} {bytes}",
        (Unit::Items, true) => "{msg} {wide_bar} {pos}/{len}",
        (Unit::Items, false) => "{spinner} {msg} {pos}",
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_drawn_from_the_second_second_on() {
        let report = |bar: &Bar, total| bar.report(Progress { step: "copy", done: 1, total, unit: Unit::Bytes });
        let bar = Bar::new();
        report(&bar, 2);
        assert!(bar.drawn.lock().unwrap().is_none());

        let bar = Bar { started: Instant::now().checked_sub(PATIENCE).unwrap(), ..Bar::new() };
        report(&bar, 2);
        assert_eq!(bar.drawn.lock().unwrap().as_ref().map(|drawn| (drawn.bar.position(), drawn.bar.length())), Some((1, Some(2))));
        report(&bar, 0);
        assert_eq!(bar.drawn.lock().unwrap().as_ref().map(|drawn| drawn.shape), Some((Unit::Bytes, false)));
        bar.clear();
        assert!(bar.drawn.lock().unwrap().is_none());
    }
}
