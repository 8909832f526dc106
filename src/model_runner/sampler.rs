//! Logits to a token: bias, penalties, temperature, top-k, top-p, min-p, in SGLang's order.

mod weights;

use std::cmp::Ordering;
use std::collections::HashMap;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::LogitsRow;
use crate::io_struct::{LogprobsWanted, SamplingParams, TokenId, TokenLogprob};
use weights::{Curve, Weights};

/// What the choice depends on, beside the logits. Nothing else may: so a seed gives the same text in any batch.
#[derive(Debug, Clone, Copy)]
pub struct SamplingInput<'a> {
    /// How to choose.
    pub params: &'a SamplingParams,
    /// The prompt.
    pub prompt: &'a [TokenId],
    /// The output so far.
    pub output: &'a [TokenId],
    /// Drives the choice.
    pub seed: u64,
    /// Report the logprob of the choice and of its rivals.
    pub logprobs: Option<&'a LogprobsWanted>,
    /// The tokens that a grammar allows, one bit each, lowest first; `None`: all.
    pub allowed: Option<&'a [u32]>,
}

/// A chosen token.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// The token.
    pub token: TokenId,
    /// Under the model's own distribution (before bias, penalties and temperature) over the tokens that are allowed, if
    /// asked for.
    pub logprob: Option<TokenLogprob>,
}

/// Chooses the next token from one row of logits.
#[must_use]
pub fn sample(row: LogitsRow<'_>, input: &SamplingInput<'_>) -> Sampled {
    let Some(allowed) = input.allowed else { return sample_allowed(row, input) };
    let mut masked = row.values().to_vec();
    for (word, logits) in masked.chunks_mut(32).enumerate() {
        let bits = allowed.get(word).copied().unwrap_or(0);
        let barred = logits.iter_mut().enumerate().filter(|(bit, _)| bits >> bit & 1 == 0);
        barred.for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
    }
    sample_allowed(LogitsRow::new(&masked, &mut Vec::new()), input)
}

/// What is not allowed has no weight, and nothing gives it any.
fn sample_allowed(row: LogitsRow<'_>, input: &SamplingInput<'_>) -> Sampled {
    let params = input.params;
    let token = if changes_logits(params) {
        let mut adjusted = row.values().to_vec();
        adjust(&mut adjusted, input);
        choose(LogitsRow::new(&adjusted, &mut Vec::new()), input)
    } else {
        choose(row, input)
    };
    Sampled { token, logprob: input.logprobs.map(|wanted| logprob_of(row, token, wanted)) }
}

fn changes_logits(params: &SamplingParams) -> bool {
    !params.logit_bias.is_empty()
        || params.frequency_penalty != 0.0
        || params.presence_penalty != 0.0
        || (params.repetition_penalty - 1.0).abs() > f32::EPSILON
}

/// Bias, then the penalties: OpenAI's on the output, the repetition penalty (Keskar et al. 2019) on prompt and output.
fn adjust(logits: &mut [f32], input: &SamplingInput<'_>) {
    let params = input.params;
    for (token, bias) in &params.logit_bias {
        if let Some(logit) = logits.get_mut(token.index()) {
            *logit += bias;
        }
    }
    let mut seen: HashMap<TokenId, u32> = input.prompt.iter().map(|token| (*token, 0)).collect();
    for token in input.output {
        *seen.entry(*token).or_default() += 1;
    }
    for (token, times) in seen {
        let Some(logit) = logits.get_mut(token.index()) else { continue };
        *logit = if *logit > 0.0 { *logit / params.repetition_penalty } else { *logit * params.repetition_penalty };
        if times > 0 {
            *logit -= params.presence_penalty + params.frequency_penalty * times as f32;
        }
    }
}

fn choose(row: LogitsRow<'_>, input: &SamplingInput<'_>) -> TokenId {
    let params = input.params;
    if params.is_greedy() || params.top_k == Some(1) {
        return row.argmax();
    }
    let share = rng(input).random::<f64>();
    if params.top_k.is_none() && params.top_p >= 1.0 && params.min_p <= 0.0 {
        return weights(row, params).at(share);
    }
    let candidates = candidates(row, params);
    let total: f64 = candidates.iter().map(|(_, weight)| weight).sum();
    let mut left = share * total;
    for (token, weight) in &candidates {
        left -= weight;
        if left < 0.0 {
            return *token;
        }
    }
    candidates.last().map_or_else(|| row.argmax(), |(token, _)| *token)
}

/// One number for each position of each seed, so that a request can be stopped and taken up again.
fn rng(input: &SamplingInput<'_>) -> StdRng {
    let position = (input.prompt.len() + input.output.len()) as u64;
    StdRng::seed_from_u64(input.seed ^ position.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn weights<'a>(row: LogitsRow<'a>, params: &SamplingParams) -> Weights<'a> {
    Weights::new(row, 1.0 / params.temperature)
}

/// What is left after top-k, top-p and min-p, by id, with unnormalised weights, that of the likeliest being 1.
fn candidates(row: LogitsRow<'_>, params: &SamplingParams) -> Vec<(TokenId, f64)> {
    let (largest, curve) = (row.largest(), Curve::new(row.largest(), 1.0 / params.temperature));
    let weighted = |tokens: Vec<(TokenId, f32)>| {
        let weighted = tokens.into_iter().map(|(token, logit)| (token, f64::from(curve.weight(logit))));
        weighted.filter(|(_, weight)| *weight > 0.0).collect::<Vec<_>>()
    };
    let mut kept = match params.top_k {
        Some(top_k) => {
            let mut kept = weighted(likeliest(row, top_k as usize));
            kept.sort_unstable_by(likelier);
            kept.truncate(top_k as usize);
            let enough = mass(&kept) * f64::from(params.top_p);
            if params.top_p < 1.0 { nucleus(kept, enough) } else { kept }
        }
        None if params.top_p < 1.0 => {
            let enough = weights(row, params).total() * f64::from(params.top_p);
            let some = [64, 512].into_iter().map(|count| weighted(likeliest(row, count)));
            let kept = some.into_iter().find(|kept| mass(kept) >= enough);
            nucleus(kept.unwrap_or_else(|| weighted(likeliest(row, row.values().len()))), enough)
        }
        // A little lower than it must be: what rounding lets through has its turn below.
        None => weighted(row.at_least(largest + params.temperature * (params.min_p.ln() - 1e-3))),
    };
    if params.min_p > 0.0 {
        kept.retain(|(_, weight)| *weight >= f64::from(params.min_p));
    }
    kept.sort_unstable_by_key(|(token, _)| *token); // no order of another's making decides what a seed gives
    kept
}

fn mass(tokens: &[(TokenId, f64)]) -> f64 {
    tokens.iter().map(|(_, weight)| weight).sum()
}

/// The likeliest that are needed to reach `enough`, and one in any case, in any order.
///
/// Halves are told apart, not sorted: which half the last one is in shows by the mass of the upper one.
fn nucleus(mut tokens: Vec<(TokenId, f64)>, enough: f64) -> Vec<(TokenId, f64)> {
    // The first `from` and the one behind them are needed, from `to` on none is.
    let (mut from, mut to, mut sum) = (0, tokens.len(), 0.0);
    while to - from > 1 {
        let half = (to - from) / 2;
        tokens[from..to].select_nth_unstable_by(half, likelier);
        let upper = mass(&tokens[from..from + half]);
        if sum + upper < enough {
            (from, sum) = (from + half, sum + upper);
        } else {
            to = from + half;
        }
    }
    tokens.truncate(to);
    tokens
}

/// The `count` likeliest tokens and perhaps some more, in any order.
fn likeliest(row: LogitsRow<'_>, count: usize) -> Vec<(TokenId, f32)> {
    if let Some(floor) = row.floor(count) {
        return row.at_least(floor);
    }
    let mut all: Vec<_> = (0..).map(TokenId).zip(row.values().iter().copied()).collect();
    if count < all.len() {
        let likelier = |a: &(TokenId, f32), b: &(TokenId, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        all.select_nth_unstable_by(count, likelier);
        all.truncate(count);
    }
    all
}

/// Larger weight first; equal weights by id, so that the order is one.
fn likelier(a: &(TokenId, f64), b: &(TokenId, f64)) -> Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

/// What `row` says of `token` and of the rivals that are wanted.
#[must_use]
pub fn logprob_of(row: LogitsRow<'_>, token: TokenId, wanted: &LogprobsWanted) -> TokenLogprob {
    let log_sum = f64::from(row.largest()) + Weights::new(row, 1.0).total().ln();
    let logprob = |logit: f32| ((f64::from(logit) - log_sum) as f32).min(0.0);
    let of = |token: TokenId| row.values().get(token.index()).map_or(f32::NEG_INFINITY, |logit| logprob(*logit));
    let top = wanted.top as usize;
    let ranked = if top > 0 { likeliest(row, top) } else { Vec::new() };
    let mut ranked: Vec<_> = ranked.into_iter().map(|(token, logit)| (token, f64::from(logit))).collect();
    ranked.sort_unstable_by(likelier);
    ranked.truncate(top);
    ranked.retain(|(_, logit)| *logit > f64::NEG_INFINITY); // barred by a grammar
    TokenLogprob {
        token,
        logprob: of(token),
        top: ranked.into_iter().map(|(token, _)| (token, of(token))).collect(),
        asked: wanted.token_ids.iter().map(|token| (*token, of(*token))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::kernels::peaks::largest;
    use super::*;

    fn token(logits: &[f32], params: &SamplingParams, seed: u64) -> u32 {
        let input =
            SamplingInput { params, prompt: &[TokenId(0)], output: &[TokenId(1)], seed, logprobs: None, allowed: None };
        sample(LogitsRow::new(logits, &mut Vec::new()), &input).token.0
    }

    /// The set of tokens that 500 seeds choose.
    fn reachable(logits: &[f32], params: &SamplingParams) -> Vec<u32> {
        let mut seen: Vec<u32> = (0..500).map(|seed| token(logits, params, seed)).collect();
        seen.sort_unstable();
        seen.dedup();
        seen
    }

    #[test]
    fn what_each_parameter_leaves_within_reach() {
        let logits = [1.0, 2.0, 3.0, 2.5];
        let base = SamplingParams::default();
        let check = |change: fn(&mut SamplingParams), want: &[u32]| {
            let mut params = base.clone();
            change(&mut params);
            assert_eq!(reachable(&logits, &params), want, "{params:?}");
        };
        check(|_| (), &[0, 1, 2, 3]);
        check(|p| p.temperature = 0.0, &[2]);
        check(|p| p.temperature = 1e-7, &[2]);
        check(|p| p.temperature = 1e-4, &[2]);
        check(|p| p.top_k = Some(1), &[2]);
        check(|p| p.top_k = Some(2), &[2, 3]);
        check(|p| p.top_k = Some(99), &[0, 1, 2, 3]);
        check(|p| p.top_p = 0.01, &[2]);
        check(|p| p.top_p = 0.75, &[2, 3]);
        check(|p| p.min_p = 0.5, &[2, 3]);
        check(|p| p.logit_bias = vec![(TokenId(0), 100.0)], &[0]);
        check(|p| (p.temperature, p.logit_bias) = (0.0, vec![(TokenId(2), -100.0)]), &[3]);
        check(|p| (p.temperature, p.top_p, p.logit_bias) = (0.0, 0.5, vec![(TokenId(99), 1.0)]), &[2]);
    }

    #[test]
    fn only_what_a_grammar_allows_is_within_reach() {
        let logits: Vec<f32> = (0..70).map(|i| i as f32 / 10.0).collect();
        let allowed = [1 << 3, 1 << 1, 1 << 4]; // 3, 33 and 68
        let check = |change: fn(&mut SamplingParams), want: &[u32]| {
            let mut params = SamplingParams::default();
            change(&mut params);
            let wanted = LogprobsWanted { top: 5, ..LogprobsWanted::default() };
            let mut seen: Vec<u32> = (0..1000)
                .map(|seed| {
                    let (prompt, output) = (&[TokenId(68)][..], &[TokenId(68)][..]);
                    let (logprobs, allowed) = (Some(&wanted), Some(&allowed[..]));
                    let input = SamplingInput { params: &params, prompt, output, seed, logprobs, allowed };
                    let sampled = sample(LogitsRow::new(&logits, &mut Vec::new()), &input);
                    let top: Vec<u32> = sampled.logprob.unwrap().top.iter().map(|(token, _)| token.0).collect();
                    assert_eq!(top, [68, 33, 3], "those that are allowed");
                    sampled.token.0
                })
                .collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen, want, "{params:?}");
        };
        check(|p| p.temperature = 3.0, &[3, 33, 68]);
        check(|p| p.temperature = 0.0, &[68]);
        check(|p| (p.temperature, p.top_k) = (3.0, Some(2)), &[33, 68]);
        check(|p| (p.temperature, p.top_k) = (3.0, Some(50)), &[3, 33, 68]);
        check(|p| p.top_p = 0.5, &[68]);
        check(|p| (p.temperature, p.logit_bias) = (0.0, vec![(TokenId(69), 100.0), (TokenId(3), 50.0)]), &[3]);
        check(|p| (p.temperature, p.repetition_penalty) = (0.0, 2.0), &[68]);
        check(|p| (p.temperature, p.presence_penalty, p.repetition_penalty) = (0.0, 2.0, 2.0), &[33]);
    }

    /// As the definitions say, without a short cut.
    fn plainly(logits: &[f32], params: &SamplingParams) -> Vec<TokenId> {
        let all = (0..).map(TokenId).zip(logits.iter().map(|logit| f64::from(logit / params.temperature)));
        let mut kept: Vec<_> = all.collect();
        kept.sort_unstable_by(likelier);
        kept.truncate(params.top_k.map_or(usize::MAX, |k| k as usize));
        let weight = |entry: &(TokenId, f64)| (entry.1 - f64::from(largest(logits) / params.temperature)).exp();
        let total: f64 = kept.iter().map(weight).sum();
        let mut before = 0.0;
        kept.retain(|entry| {
            let needed = params.top_p >= 1.0 || before < total * f64::from(params.top_p);
            before += weight(entry);
            needed && weight(entry) >= f64::from(params.min_p)
        });
        kept.into_iter().map(|(token, _)| token).collect()
    }

    #[test]
    fn short_cuts_change_nothing() {
        let mut room = Vec::new();
        for seed in 0..400 {
            let mut random = StdRng::seed_from_u64(seed);
            let spread: f32 = random.random_range(0.1..12.0); // from flat to steep
            let len = random.random_range(1..3000);
            let logits: Vec<f32> = (0..len).map(|_| random.random_range(-spread..spread)).collect();
            let params = SamplingParams {
                temperature: random.random_range(0.2..2.0),
                top_k: [None, Some(2), Some(40), Some(2500)][random.random_range(0..4)],
                top_p: [1.0, 0.99, 0.9, 0.3][random.random_range(0..4)],
                min_p: [0.0, 0.0, 0.05][random.random_range(0..3)],
                ..SamplingParams::default()
            };
            let row = LogitsRow::new(&logits, &mut room);
            let mut got: Vec<_> = candidates(row, &params).into_iter().map(|(token, _)| token).collect();
            let mut want = plainly(&logits, &params);
            got.sort_unstable();
            want.sort_unstable();
            let differ = got.len().abs_diff(want.len());
            assert!(
                differ <= 1 && got.iter().filter(|token| !want.contains(token)).count() <= 1,
                "seed {seed} {params:?}"
            );
        }
    }

    #[test]
    fn penalties_push_what_was_said() {
        let mut params = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
        let logits = [1.9, 2.0, 0.0];
        assert_eq!(token(&logits, &params, 0), 1);
        params.presence_penalty = 0.2;
        assert_eq!(token(&logits, &params, 0), 0, "token 1 was said, token 0 is only in the prompt");
        (params.presence_penalty, params.frequency_penalty) = (0.0, 0.2);
        assert_eq!(token(&logits, &params, 0), 0);
        (params.frequency_penalty, params.repetition_penalty) = (0.0, 1.5);
        assert_eq!(token(&[1.9, 2.0, 1.8], &params, 0), 2, "both 0 and 1 were seen");
    }

    #[test]
    fn logprobs_are_of_the_model_itself() {
        let params = SamplingParams { temperature: 0.0, logit_bias: vec![(TokenId(0), 50.0)], ..Default::default() };
        let wanted = LogprobsWanted { top: 2, token_ids: vec![TokenId(3), TokenId(9)], input_from: None };
        let logprobs = Some(&wanted);
        let input = SamplingInput { params: &params, prompt: &[], output: &[], seed: 0, logprobs, allowed: None };
        let sampled = sample(LogitsRow::new(&[0.0, 0.0, 0.0, 0.0], &mut Vec::new()), &input);
        let logprob = sampled.logprob.unwrap();
        assert_eq!((sampled.token, logprob.token), (TokenId(0), TokenId(0)));
        assert!((logprob.logprob - 0.25f32.ln()).abs() < 1e-6);
        assert_eq!(logprob.top.iter().map(|(token, _)| token.0).collect::<Vec<_>>(), [0, 1]);
        let quarter = logprob.logprob;
        assert_eq!(logprob.asked, [(TokenId(3), quarter), (TokenId(9), f32::NEG_INFINITY)]);
    }

    #[test]
    fn a_seed_gives_the_same_choice_again() {
        let params = SamplingParams::default();
        let logits: Vec<f32> = (0..100).map(|i| (i % 7) as f32).collect();
        assert_eq!(token(&logits, &params, 7), token(&logits, &params, 7));
        assert!(reachable(&logits, &params).len() > 10);
    }
}
