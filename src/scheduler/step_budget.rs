//! How many prompt tokens a step may run, so that it ends in time: learnt from what the steps before it cost.

use std::time::Duration;

use crate::model_runner::PAGE_SIZE;

/// Of the time of a step, so much is planned for. The rest is for what nobody can foresee, and for prompts in a step that
/// has no time left for them.
const PLANNED: f64 = 0.9;

/// How much a single measurement is doubted. A step that took longer than foreseen is believed sooner than one that was
/// shorter, so the estimate lies above the noise.
const DOUBT_LONGER: f64 = 0.01;
const DOUBT_SHORTER: f64 = 0.1;
/// By how much the costs of what a step did may have changed since the step before.
const DRIFT: f64 = 0.001;

/// Token pairs of attention that weigh, as a guess, like one page of tokens.
const PAIRS_A_PAGE: f64 = 16_384.0;
/// Decoding sequences that weigh, as a guess, like one page of tokens.
const DECODES_A_PAGE: f64 = 8.0;

/// What a step computes, as far as its duration depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepWork {
    prefill_tokens: usize,
    /// For each prompt token, the tokens that it looks at.
    prefill_pairs: usize,
    decodes: usize,
    /// For each decoding sequence, the tokens that it looks at.
    decode_pairs: usize,
}

impl StepWork {
    /// A sequence of `context` tokens runs its newest.
    pub fn add_decode(&mut self, context: usize) {
        self.decodes += 1;
        self.decode_pairs += context;
    }

    /// `tokens` tokens of a prompt run, after `start` others.
    pub fn add_prefill(&mut self, start: usize, tokens: usize) {
        self.prefill_tokens += tokens;
        self.prefill_pairs += tokens * start + tokens * (tokens + 1) / 2;
    }

    /// In units that weigh roughly alike.
    fn features(&self) -> [f64; FEATURES] {
        [
            1.0,
            self.prefill_tokens as f64 / PAGE_SIZE as f64,
            self.prefill_pairs as f64 / PAIRS_A_PAGE,
            self.decodes as f64 / DECODES_A_PAGE,
            self.decode_pairs as f64 / PAIRS_A_PAGE,
        ]
    }
}

const FEATURES: usize = 5;

/// What each unit of work costs; the first is what a step costs in any case.
#[derive(Debug, Clone, Copy)]
struct StepCost {
    seconds: [f64; FEATURES],
    /// How uncertain they are, and how much they depend on each other: the covariance.
    uncertainty: [[f64; FEATURES]; FEATURES],
}

impl StepCost {
    fn new(seconds: [f64; FEATURES]) -> Self {
        let mut uncertainty = [[0.0; FEATURES]; FEATURES];
        (0..FEATURES).for_each(|i| uncertainty[i][i] = 1.0);
        Self { seconds, uncertainty }
    }

    fn of(&self, work: &StepWork) -> f64 {
        dot(&work.features(), &self.seconds)
    }

    /// One turn of a Kalman filter: a surprise is blamed on what is uncertain and what there was much of. What a step
    /// had nothing of learns nothing from it and is not forgotten, however long no prompt comes.
    fn learn(&mut self, work: &StepWork, seconds: f64) {
        let features = work.features();
        let size = dot(&features, &features);
        let surprise = seconds - self.of(work);
        let spread = self.uncertainty.map(|row| dot(&row, &features));
        let doubt = if surprise > 0.0 { DOUBT_LONGER } else { DOUBT_SHORTER };
        let total = dot(&spread, &features).max(0.0) + doubt;
        for i in 0..FEATURES {
            self.seconds[i] = (self.seconds[i] + surprise * spread[i] / total).max(0.0);
            for j in 0..FEATURES {
                self.uncertainty[i][j] += DRIFT * features[i] * features[j] / size - spread[i] * spread[j] / total;
            }
        }
    }

    /// Tokens after `start` others that cost `seconds` beside what a step costs anyway: the positive root of
    /// `pair/2 t^2 + (token + pair start) t = seconds`, in the form that knows no cancellation.
    fn tokens_for(&self, seconds: f64, start: usize) -> f64 {
        let pair = self.seconds[2] / PAIRS_A_PAGE;
        let first = self.seconds[1] / PAGE_SIZE as f64 + pair * (start as f64 + 0.5);
        2.0 * seconds / (first + (first * first + 2.0 * pair * seconds).sqrt())
    }
}

fn dot(a: &[f64; FEATURES], b: &[f64; FEATURES]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The prompt tokens of a step, bounded by number and by time.
#[derive(Debug)]
pub struct StepBudget {
    most: usize,
    /// Seconds; `None`: bounded by number alone.
    limit: Option<f64>,
    cost: StepCost,
}

impl StepBudget {
    /// At most `most` tokens, and no more than a step of `limit` can run.
    ///
    /// Until something is known, one page is taken for what fits: the first steps of an unknown machine are short.
    #[must_use]
    pub fn new(most: usize, limit: Option<Duration>) -> Self {
        let limit = limit.map(|limit| limit.as_secs_f64());
        let planned = limit.unwrap_or_default() * PLANNED;
        Self { most, limit, cost: StepCost::new([planned / 2.0, planned / 2.0, 0.0, 0.0, 0.0]) }
    }

    /// The longest chunk of a prompt, after `start` of its tokens, that a step can take beside `work`. Prompts must get on
    /// whatever a step costs: the first chunk of a step has at least one page, or what a tenth of the limit can run.
    #[must_use]
    pub fn chunk(&self, work: &StepWork, start: usize) -> usize {
        let left = self.most.saturating_sub(work.prefill_tokens);
        let Some(limit) = self.limit else { return left };
        let room = limit * PLANNED - self.cost.of(work);
        if work.prefill_tokens > 0 {
            return (self.cost.tokens_for(room.max(0.0), start) as usize).min(left);
        }
        let fits = self.cost.tokens_for(room.max(limit * (1.0 - PLANNED)), start) as usize;
        fits.max(PAGE_SIZE).min(left)
    }

    /// A step that did `work` took so long.
    pub fn learn(&mut self, work: &StepWork, took: Duration) {
        let Some(limit) = self.limit else { return };
        // Whatever held a step up for longer than that was not its work.
        self.cost.learn(work, took.as_secs_f64().min(2.0 * limit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(100);

    /// A machine with these costs in microseconds.
    struct Machine {
        step: f64,
        token: f64,
        pair: f64,
        decode: f64,
    }

    const QUICK: Machine = Machine { step: 3000.0, token: 500.0, pair: 0.06, decode: 700.0 };
    const SLOW: Machine = Machine { step: 20_000.0, token: 4000.0, pair: 1.0, decode: 6000.0 };

    impl Machine {
        fn time(&self, work: &StepWork) -> Duration {
            let pairs = (work.prefill_pairs + work.decode_pairs) as f64;
            let tokens = work.prefill_tokens as f64 * self.token + work.decodes as f64 * self.decode;
            Duration::from_secs_f64((self.step + tokens + self.pair * pairs) / 1e6)
        }

        /// Runs a prompt of `len` tokens after `cached` others beside `decodes` sequences; tokens and time of each step.
        fn prefill(
            &self,
            budget: &mut StepBudget,
            cached: usize,
            len: usize,
            decodes: usize,
        ) -> Vec<(usize, Duration)> {
            let (mut steps, mut done) = (Vec::new(), 0);
            while done < len {
                let mut work = StepWork::default();
                (0..decodes).for_each(|_| work.add_decode(300));
                let tokens = budget.chunk(&work, cached + done).min(len - done);
                work.add_prefill(cached + done, tokens);
                budget.learn(&work, self.time(&work));
                steps.push((tokens, self.time(&work)));
                done += tokens;
            }
            steps
        }
    }

    #[test]
    fn the_first_chunk_is_a_page_and_the_following_grow_to_the_limit() {
        let mut budget = StepBudget::new(512, Some(LIMIT));
        let steps = QUICK.prefill(&mut budget, 0, 2000, 0);
        assert_eq!(steps[0].0, PAGE_SIZE);
        assert!(steps.iter().all(|(_, took)| *took <= LIMIT), "{steps:?}");
        let (_, usual) = steps[steps.len() - 3];
        assert!(usual > LIMIT * 7 / 10, "the time is there to be used: {steps:?}");
    }

    #[test]
    fn far_into_a_prompt_chunks_are_shorter() {
        let mut budget = StepBudget::new(512, Some(LIMIT));
        let steps = QUICK.prefill(&mut budget, 0, 8000, 0);
        assert!(steps.iter().all(|(_, took)| *took <= LIMIT), "{steps:?}");
        let near = budget.chunk(&StepWork::default(), 0);
        let far = budget.chunk(&StepWork::default(), 8000);
        assert!(far * 3 / 2 < near && far > PAGE_SIZE, "{far} far, {near} near");
    }

    #[test]
    fn decodes_take_their_part_of_the_step() {
        let mut budget = StepBudget::new(512, Some(LIMIT));
        for decodes in [0, 4, 16, 32, 64, 16, 0] {
            let steps = QUICK.prefill(&mut budget, 0, 2000, decodes);
            let late = &steps[steps.len() / 2..];
            assert!(late.iter().all(|(_, took)| *took <= LIMIT), "{decodes} decodes: {late:?}");
        }
    }

    #[test]
    fn a_machine_that_is_too_slow_runs_page_after_page() {
        let mut budget = StepBudget::new(512, Some(LIMIT));
        let steps = SLOW.prefill(&mut budget, 0, 1000, 32);
        assert!(steps.iter().all(|(tokens, _)| *tokens == PAGE_SIZE || *tokens == 1000 % PAGE_SIZE), "{steps:?}");
    }

    #[test]
    fn where_a_step_as_such_takes_too_long_short_chunks_would_not_help() {
        let mut budget = StepBudget::new(512, Some(LIMIT));
        let machine = Machine { step: 150_000.0, token: 100.0, pair: 0.0, decode: 0.0 };
        for decodes in [0, 1, 8, 1] {
            machine.prefill(&mut budget, 0, 100, decodes);
            let mut work = StepWork::default();
            (0..decodes).for_each(|_| work.add_decode(300));
            budget.learn(&work, machine.time(&work));
        }
        let steps = machine.prefill(&mut budget, 0, 1000, 1);
        assert!(steps.len() < 20, "a tenth of the limit runs a hundred tokens: {steps:?}");
        assert!(steps.iter().all(|(_, took)| *took < LIMIT * 2), "{steps:?}");
    }

    #[test]
    fn one_held_up_step_is_forgotten_soon() {
        let mut budget = StepBudget::new(512, Some(LIMIT));
        QUICK.prefill(&mut budget, 0, 4000, 0);
        let before = budget.chunk(&StepWork::default(), 0);
        let mut work = StepWork::default();
        work.add_prefill(0, before);
        budget.learn(&work, Duration::from_secs(3600));
        assert!(budget.chunk(&StepWork::default(), 0) < before);
        QUICK.prefill(&mut budget, 0, 1000, 0);
        assert!(budget.chunk(&StepWork::default(), 0) > before * 3 / 4);
    }

    #[test]
    fn bounds_by_number() {
        let check = |most, limit, prefilled, want| {
            let mut work = StepWork::default();
            work.add_prefill(0, prefilled);
            assert_eq!(StepBudget::new(most, limit).chunk(&work, 0), want, "{most} {limit:?} {prefilled}");
        };
        check(64, None, 0, 64);
        check(64, None, 50, 14);
        check(64, None, 64, 0);
        check(8, Some(LIMIT), 0, 8);
        check(64, Some(LIMIT), 0, PAGE_SIZE);
        check(64, Some(LIMIT), 16, 0);
        check(64, Some(Duration::from_nanos(1)), 0, PAGE_SIZE);
    }

    #[test]
    fn no_measurement_is_too_odd() {
        for took in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            let mut budget = StepBudget::new(usize::MAX, Some(LIMIT));
            for tokens in [0, 1, 100_000] {
                let mut work = StepWork::default();
                work.add_prefill(usize::from(u16::MAX), tokens);
                (0..1000).for_each(|_| budget.learn(&work, took));
                let chunk = budget.chunk(&StepWork::default(), 0);
                assert!(chunk >= PAGE_SIZE, "{took:?}, {tokens} tokens: {chunk}");
            }
        }
    }
}
