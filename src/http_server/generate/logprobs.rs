//! Which logprobs a body of `/generate` asks for, and how the answer shows them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::request::Ids;
use crate::http_server::error::ApiError;
use crate::http_server::sampling::{self, MAX_TOP_LOGPROBS, OneOrMany};
use crate::io_struct::{LogprobsWanted, TokenId, TokenLogprob};
use crate::tokenizer_manager::ServedModel;
use crate::tokenizer_manager::request::GenerateOutput;

/// The fields of a body; each is one value for all prompts, or a list with one for each.
#[derive(Debug, Default)]
pub struct LogprobFields {
    /// Report any?
    pub return_logprob: Option<OneOrMany<bool>>,
    /// -1: those of the output alone; else the place in the prompt where they begin.
    pub logprob_start_len: Option<OneOrMany<i64>>,
    /// Of how many of the likeliest tokens.
    pub top_logprobs_num: Option<OneOrMany<i64>>,
    /// Of which tokens in any case.
    pub token_ids_logprob: Option<Ids>,
}

impl LogprobFields {
    /// What each of `count` prompts wants.
    ///
    /// # Errors
    /// A list of another length, or a value out of range.
    pub fn of_each(self, count: usize, vocab_size: u32) -> Result<Vec<Option<LogprobsWanted>>, ApiError> {
        let wanted = each("return_logprob", self.return_logprob, count)?;
        let starts = each("logprob_start_len", self.logprob_start_len, count)?;
        let tops = each("top_logprobs_num", self.top_logprobs_num, count)?;
        let token_ids = match self.token_ids_logprob {
            None => None,
            Some(Ids::One(ids)) => Some(OneOrMany::One(ids)),
            Some(Ids::Many(lists)) => Some(OneOrMany::Many(lists)),
        };
        let token_ids = each("token_ids_logprob", token_ids, count)?;
        let all = wanted.into_iter().zip(starts).zip(tops).zip(token_ids);
        all.map(|(((wanted, start), top), ids)| {
            let checked = LogprobsWanted {
                top: sampling::whole("top_logprobs_num", top.unwrap_or(0), 0..=MAX_TOP_LOGPROBS.into())?,
                token_ids: sampling::few_token_ids("token_ids_logprob", ids, vocab_size)?,
                input_from: input_from(start.unwrap_or(-1))?,
            };
            Ok(wanted.unwrap_or(false).then_some(checked))
        })
        .collect()
    }
}

/// One value for each of `count` prompts.
fn each<T: Clone>(name: &str, value: Option<OneOrMany<T>>, count: usize) -> Result<Vec<Option<T>>, ApiError> {
    match value {
        None => Ok(vec![None; count]),
        Some(OneOrMany::One(one)) => Ok(vec![Some(one); count]),
        Some(OneOrMany::Many(many)) if many.len() == count => Ok(many.into_iter().map(Some).collect()),
        Some(OneOrMany::Many(many)) => {
            Err(ApiError::invalid(name, format!("{name} has {} entries for {count} prompts", many.len())))
        }
    }
}

fn input_from(start: i64) -> Result<Option<u32>, ApiError> {
    match start {
        -1 => Ok(None),
        start => sampling::whole("logprob_start_len", start, 0..=u32::MAX.into()).map(Some).map_err(|_| {
            let message = format!("logprob_start_len is {start}; it must be -1, for none of the prompt, or at least 0");
            ApiError::invalid("logprob_start_len", message)
        }),
    }
}

/// How one request's logprobs are shown.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    /// What was asked for.
    pub wanted: Option<LogprobsWanted>,
    /// Each with the token's text.
    pub text: bool,
}

impl Shown {
    /// Adds the lists to `meta_info`. The first token of an input list stands without a logprob, as in SGLang.
    pub fn add(&self, meta_info: &mut Value, model: &ServedModel, prompt: &Arc<[TokenId]>, output: &GenerateOutput) {
        let Some(wanted) = &self.wanted else { return };
        let lists = Lists { model, text: self.text };
        let first = wanted.input_from.and_then(|from| prompt.get(from as usize).copied());
        let input = |nothing: Value, of: &dyn Fn(&TokenLogprob) -> Value| -> Value {
            let first = first.map(|_| nothing);
            first.into_iter().chain(output.input_logprobs.iter().map(of)).collect()
        };
        let of_output = |of: &dyn Fn(&TokenLogprob) -> Value| -> Value { output.logprobs.iter().map(of).collect() };
        let own = |entry: &TokenLogprob| lists.triple(entry.token, Some(entry.logprob));
        let first_token = first.map_or(Value::Null, |token| lists.triple(token, None));
        meta_info["input_token_logprobs"] = input(first_token, &own);
        meta_info["output_token_logprobs"] = of_output(&own);
        if wanted.top > 0 {
            let top = |entry: &TokenLogprob| lists.triples(&entry.top);
            meta_info["input_top_logprobs"] = input(Value::Null, &top);
            meta_info["output_top_logprobs"] = of_output(&top);
        }
        if !wanted.token_ids.is_empty() {
            let asked = |entry: &TokenLogprob| lists.triples(&entry.asked);
            meta_info["input_token_ids_logprobs"] = input(Value::Null, &asked);
            meta_info["output_token_ids_logprobs"] = of_output(&asked);
        }
    }
}

struct Lists<'m> {
    model: &'m ServedModel,
    text: bool,
}

impl Lists<'_> {
    /// `[logprob or null, id, text or null]`
    fn triple(&self, token: TokenId, logprob: Option<f32>) -> Value {
        let text = self.text.then(|| self.model.tokenizer.decode(&[token]));
        json!([logprob.map(finite), token, text])
    }

    fn triples(&self, entries: &[(TokenId, f32)]) -> Value {
        entries.iter().map(|(token, logprob)| self.triple(*token, Some(*logprob))).collect()
    }
}

/// A logprob as JSON can hold it: never above 0, and impossible is -9999, as OpenAI has it.
#[must_use]
pub fn finite(logprob: f32) -> f32 {
    logprob.clamp(-9999.0, 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http_server::generate::body::parse;
    use crate::http_server::generate::request::GenerateBody;
    use crate::http_server::generate::request::tests::model;

    /// Top, token ids and first place of the prompt.
    type Asked<'a> = Option<(u32, &'a [u32], Option<u32>)>;

    /// What each request of a body wants, or the field that is to blame.
    fn check(body: &str, want: Result<&[Asked<'_>], &str>) {
        let plan = parse::<GenerateBody>(body.as_bytes()).and_then(|body| body.plan(&model()));
        let got = plan
            .map_err(|error| error.param.unwrap_or_default())
            .map(|plan| plan.requests.into_iter().map(|request| request.logprobs).collect::<Vec<_>>());
        let asked = |(top, ids, input_from): (u32, &[u32], Option<u32>)| {
            let token_ids = ids.iter().copied().map(TokenId).collect();
            LogprobsWanted { top, token_ids, input_from }
        };
        let want = want.map(|want| want.iter().map(|wanted| wanted.map(asked)).collect()).map_err(str::to_owned);
        assert_eq!(got, want, "{body}");
    }

    #[test]
    fn what_a_body_asks_for() {
        check(r#"{"text":"a"}"#, Ok(&[None]));
        check(r#"{"text":"a","top_logprobs_num":3,"logprob_start_len":0}"#, Ok(&[None]));
        check(r#"{"text":"a","return_logprob":true}"#, Ok(&[Some((0, &[], None))]));
        check(
            r#"{"text":"a","return_logprob":true,"logprob_start_len":0,"token_ids_logprob":[5,256]}"#,
            Ok(&[Some((0, &[5, 256], Some(0)))]),
        );
        check(
            r#"{"text":["a","b"],"return_logprob":[true,false],"top_logprobs_num":[2,0],"logprob_start_len":-1}"#,
            Ok(&[Some((2, &[], None)), None]),
        );
        check(
            r#"{"text":["a","b"],"return_logprob":true,"token_ids_logprob":[[1],[]],"logprob_start_len":[0,-1]}"#,
            Ok(&[Some((0, &[1], Some(0))), Some((0, &[], None))]),
        );
    }

    #[test]
    fn what_is_refused() {
        check(r#"{"text":"a","return_logprob":true,"top_logprobs_num":21}"#, Err("top_logprobs_num"));
        check(r#"{"text":"a","return_logprob":true,"logprob_start_len":-2}"#, Err("logprob_start_len"));
        check(r#"{"text":"a","return_logprob":true,"token_ids_logprob":[257]}"#, Err("token_ids_logprob"));
        check(r#"{"text":"a","return_logprob":true,"token_ids_logprob":[-1]}"#, Err("token_ids_logprob"));
        check(r#"{"text":["a","b"],"return_logprob":[true]}"#, Err("return_logprob"));
        check(r#"{"text":"a","return_logprob":[true,true]}"#, Err("return_logprob"));
        check(r#"{"text":"a","return_logprob":1}"#, Err("return_logprob"));
    }
}
