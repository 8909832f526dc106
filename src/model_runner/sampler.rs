//! Logits to a token: bias, penalties, temperature, top-k, top-p, min-p, in SGLang's order.

use std::cmp::Ordering;
use std::collections::HashMap;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::io_struct::{LogprobsWanted, SamplingParams, TokenId, TokenLogprob};

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
}

/// A chosen token.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// The token.
    pub token: TokenId,
    /// Under the model's own distribution (before bias, penalties and temperature), if asked for.
    pub logprob: Option<TokenLogprob>,
}

/// Chooses the next token from one row of logits.
#[must_use]
pub fn sample(row: &[f32], input: &SamplingInput<'_>) -> Sampled {
    let params = input.params;
    let token = if changes_logits(params) {
        let mut adjusted = row.to_vec();
        adjust(&mut adjusted, input);
        choose(&adjusted, input)
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

fn choose(logits: &[f32], input: &SamplingInput<'_>) -> TokenId {
    if input.params.is_greedy() || input.params.top_k == Some(1) {
        return argmax(logits);
    }
    let candidates = candidates(logits, input.params);
    let total: f64 = candidates.iter().map(|(_, weight)| weight).sum();
    let mut left = rng(input).random::<f64>() * total;
    for (token, weight) in &candidates {
        left -= weight;
        if left < 0.0 {
            return *token;
        }
    }
    candidates.last().map_or_else(|| argmax(logits), |(token, _)| *token)
}

/// One number for each position of each seed, so that a request can be stopped and taken up again.
fn rng(input: &SamplingInput<'_>) -> StdRng {
    let position = (input.prompt.len() + input.output.len()) as u64;
    StdRng::seed_from_u64(input.seed ^ position.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The first of the largest; never a NaN.
fn argmax(logits: &[f32]) -> TokenId {
    let mut best = (0, f32::NEG_INFINITY);
    for (index, logit) in logits.iter().enumerate() {
        if *logit > best.1 {
            best = (index, *logit);
        }
    }
    TokenId(best.0 as u32)
}

/// What is left after top-k, top-p and min-p, likeliest first where an order is needed, with unnormalised weights.
fn candidates(logits: &[f32], params: &SamplingParams) -> Vec<(TokenId, f64)> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let scale = f64::from(params.temperature);
    let weight = |logit: f32| (f64::from(logit - max) / scale).exp();
    let mut kept: Vec<(TokenId, f64)> =
        (0..).map(TokenId).zip(logits).map(|(token, logit)| (token, weight(*logit))).collect();
    if let Some(top_k) = params.top_k.map(|k| k as usize).filter(|k| *k < kept.len()) {
        kept.select_nth_unstable_by(top_k, likelier);
        kept.truncate(top_k);
    }
    if params.top_p < 1.0 {
        kept.sort_unstable_by(likelier);
        let enough = kept.iter().map(|(_, weight)| weight).sum::<f64>() * f64::from(params.top_p);
        let mut sum = 0.0;
        let needed = kept.iter().take_while(|(_, weight)| {
            let before = sum;
            sum += weight;
            before < enough
        });
        let needed = needed.count().max(1);
        kept.truncate(needed);
    }
    if params.min_p > 0.0 {
        kept.retain(|(_, weight)| *weight >= f64::from(params.min_p)); // the likeliest has weight 1
    }
    if params.top_k.is_some() && params.top_p >= 1.0 {
        kept.sort_unstable_by_key(|(token, _)| *token); // selection leaves an order that depends on the algorithm
    }
    kept
}

/// Larger weight first; equal weights by id, so that the order is one.
fn likelier(a: &(TokenId, f64), b: &(TokenId, f64)) -> Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

/// What `row` says of `token` and of the rivals that are wanted.
#[must_use]
pub fn logprob_of(row: &[f32], token: TokenId, wanted: &LogprobsWanted) -> TokenLogprob {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|logit| f64::from(logit - max).exp()).sum();
    let log_sum = f64::from(max) + sum.ln();
    let logprob = |logit: f32| ((f64::from(logit) - log_sum) as f32).min(0.0);
    let of = |token: TokenId| row.get(token.index()).map_or(f32::NEG_INFINITY, |logit| logprob(*logit));
    TokenLogprob {
        token,
        logprob: of(token),
        top: likeliest(row, wanted.top as usize).into_iter().map(|token| (token, of(token))).collect(),
        asked: wanted.token_ids.iter().map(|token| (*token, of(*token))).collect(),
    }
}

fn likeliest(row: &[f32], count: usize) -> Vec<TokenId> {
    if count == 0 {
        return Vec::new();
    }
    let mut ranked: Vec<(TokenId, f64)> =
        (0..).map(TokenId).zip(row).map(|(token, logit)| (token, f64::from(*logit))).collect();
    if count < ranked.len() {
        ranked.select_nth_unstable_by(count, likelier);
    }
    ranked.truncate(count);
    ranked.sort_unstable_by(likelier);
    ranked.into_iter().map(|(token, _)| token).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(logits: &[f32], params: &SamplingParams, seed: u64) -> u32 {
        let input = SamplingInput { params, prompt: &[TokenId(0)], output: &[TokenId(1)], seed, logprobs: None };
        sample(logits, &input).token.0
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
        let input = SamplingInput { params: &params, prompt: &[], output: &[], seed: 0, logprobs: Some(&wanted) };
        let sampled = sample(&[0.0, 0.0, 0.0, 0.0], &input);
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
