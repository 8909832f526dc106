//! How requests are batched: the scheduler's flags.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::parse_duration_or_zero;

/// How requests are batched.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Scheduler")]
pub struct SchedulerArgs {
    /// How long a step should last at most: a busy probe waits for one, and so does every output token. The scheduler
    /// learns what steps cost on this machine, and cuts prompts into chunks that fit, of at least one page of 16 tokens.
    /// 0: bounded by `--chunked-prefill-size` alone.
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = parse_duration_or_zero,
          env = "RADIOSONDE_MAX_STEP_TIME")]
    pub max_step_time: Duration,
    /// The most prompt tokens of one step, whatever `--max-step-time` has room for.
    #[arg(long, value_name = "TOKENS", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..),
          env = "RADIOSONDE_CHUNKED_PREFILL_SIZE")]
    pub chunked_prefill_size: u32,
    /// The most tokens of one step of an embedding model, which runs each text whole, whatever `--max-step-time` has room
    /// for.
    #[arg(long, value_name = "TOKENS", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..),
          env = "RADIOSONDE_MAX_PREFILL_TOKENS")]
    pub max_prefill_tokens: u32,
    /// The most requests that run at once; the others wait.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..),
          env = "RADIOSONDE_MAX_RUNNING_REQUESTS")]
    pub max_running_requests: u32,
    /// The most requests that wait; beyond it the answer is 503 with Retry-After.
    #[arg(long, value_name = "N", default_value_t = 256, env = "RADIOSONDE_MAX_QUEUED_REQUESTS")]
    pub max_queued_requests: u32,
    /// Size of the KV pool in tokens, shared by all requests. When it is full, the youngest request gives its part back
    /// and starts again later.
    #[arg(long, value_name = "TOKENS", default_value_t = 16384, value_parser = clap::value_parser!(u32).range(16..),
          env = "RADIOSONDE_MAX_TOTAL_TOKENS")]
    pub max_total_tokens: u32,
    /// Forget what was computed for a request when it ends, instead of keeping it, as long as the KV pool has room, for
    /// requests that begin with the same tokens.
    #[arg(long, env = "RADIOSONDE_DISABLE_RADIX_CACHE")]
    pub disable_radix_cache: bool,
    /// Who gets the next place in the batch. With more than 128 requests in the queue it is `fcfs` in any case.
    #[arg(long, value_enum, value_name = "POLICY", default_value = "fcfs", env = "RADIOSONDE_SCHEDULE_POLICY")]
    pub schedule_policy: SchedulePolicy,
    /// Requests may have a `priority`, a whole number: higher ones go first, and take places from lower ones that run.
    /// Without this flag, a request with a priority is refused.
    #[arg(long, env = "RADIOSONDE_ENABLE_PRIORITY_SCHEDULING")]
    pub enable_priority_scheduling: bool,
    /// Lower priorities go first.
    #[arg(long, requires = "enable_priority_scheduling", env = "RADIOSONDE_SCHEDULE_LOW_PRIORITY_VALUES_FIRST")]
    pub schedule_low_priority_values_first: bool,
    /// A request takes the place of one that runs only if their priorities are further apart than this.
    #[arg(long, value_name = "N", default_value_t = 10, env = "RADIOSONDE_PRIORITY_SCHEDULING_PREEMPTION_THRESHOLD")]
    pub priority_scheduling_preemption_threshold: u32,
}

/// Who gets the next place in the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchedulePolicy {
    /// Who came first.
    Fcfs,
    /// Who has most of its prompt in the prefix cache.
    Lpm,
}

impl SchedulerArgs {
    /// `--max-step-time`; `None`: a step lasts as long as it takes.
    #[must_use]
    pub fn step_limit(&self) -> Option<Duration> {
        (!self.max_step_time.is_zero()).then_some(self.max_step_time)
    }

    /// The same as flags, for the engine's own command line.
    #[must_use]
    pub fn flags(&self) -> Vec<String> {
        let mut flags = vec![
            format!("--max-step-time={}", self.max_step_time.as_secs_f64()),
            format!("--chunked-prefill-size={}", self.chunked_prefill_size),
            format!("--max-prefill-tokens={}", self.max_prefill_tokens),
            format!("--max-running-requests={}", self.max_running_requests),
            format!("--max-queued-requests={}", self.max_queued_requests),
            format!("--max-total-tokens={}", self.max_total_tokens),
            format!(
                "--schedule-policy={}",
                match self.schedule_policy {
                    SchedulePolicy::Fcfs => "fcfs",
                    SchedulePolicy::Lpm => "lpm",
                }
            ),
            format!("--priority-scheduling-preemption-threshold={}", self.priority_scheduling_preemption_threshold),
        ];
        let switches = [
            (self.disable_radix_cache, "--disable-radix-cache"),
            (self.enable_priority_scheduling, "--enable-priority-scheduling"),
            (self.schedule_low_priority_values_first, "--schedule-low-priority-values-first"),
        ];
        flags.extend(switches.into_iter().filter(|(on, _)| *on).map(|(_, flag)| flag.to_owned()));
        flags
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::Cli;

    #[test]
    fn the_engine_is_told_every_flag() {
        let check = |flags: &[&str]| {
            let parse = |flags: &[String]| {
                let all = ["radiosonde".to_owned()].into_iter().chain(flags.iter().cloned());
                format!("{:?}", Cli::try_parse_from(all).unwrap().serve.scheduler)
            };
            let ours: Vec<_> = flags.iter().map(|flag| (*flag).to_owned()).collect();
            let given = Cli::try_parse_from(["radiosonde"].iter().chain(flags)).unwrap().serve.scheduler;
            assert_eq!(parse(&given.flags()), parse(&ours));
        };
        check(&[]);
        check(&["--max-step-time=0", "--chunked-prefill-size=7", "--disable-radix-cache"]);
        check(&["--schedule-policy=lpm", "--enable-priority-scheduling", "--schedule-low-priority-values-first"]);
        check(&["--enable-priority-scheduling", "--priority-scheduling-preemption-threshold=0"]);
        check(&[
            "--max-step-time=1.5s",
            "--max-running-requests=2",
            "--max-queued-requests=0",
            "--max-total-tokens=99",
            "--max-prefill-tokens=3",
        ]);
    }

    #[test]
    fn bounds_of_the_step() {
        let limit = |flag| Cli::try_parse_from(["radiosonde", flag]).map(|cli| cli.serve.scheduler.step_limit());
        assert_eq!(limit("--max-step-time=0").unwrap(), None);
        assert_eq!(limit("--max-step-time=50ms").unwrap(), Some(std::time::Duration::from_millis(50)));
        assert!(limit("--max-step-time=-1s").is_err());
    }
}
