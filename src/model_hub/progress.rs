//! How far a transfer is: a bar for people, a log line now and then for everybody else.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shows one transfer on standard error. Dropping it takes the bar away.
pub(super) struct Progress {
    bar: ProgressBar,
    total: Option<u64>,
    logged_tenths: u64,
}

impl Progress {
    /// A transfer of `total` bytes that begins at byte `start`.
    pub(super) fn of_bytes(total: Option<u64>, start: u64) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
        bar.set_style(style(match total {
            Some(_) => "fetching the model {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            None => "fetching the model {spinner} {bytes} {bytes_per_sec}",
        }));
        bar.set_position(start);
        bar.reset_eta();
        Self { bar, total, logged_tenths: tenths(start, total) }
    }

    /// Work of another program, of which only the duration is known.
    pub(super) fn of_program(what: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(style("{msg} {spinner} {elapsed}"));
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar, total: None, logged_tenths: 0 }
    }

    /// `position` bytes are here.
    pub(super) fn at(&mut self, position: u64) {
        self.bar.set_position(position);
        let tenths = tenths(position, self.total);
        if self.bar.is_hidden() && tenths > self.logged_tenths {
            self.logged_tenths = tenths;
            tracing::info!(percent = tenths * 10, bytes = position, "the model is on its way");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn tenths(position: u64, total: Option<u64>) -> u64 {
    total.filter(|total| *total > 0).map_or(0, |total| position.saturating_mul(10) / total)
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates above are sound")
}
