//! What the rows of a step's logits say: each for itself, and so on all threads of the forward pass at once.

use std::sync::OnceLock;

use super::Scheduler;
use super::request::Request;
use super::schedule_batch::Slot;
use crate::io_struct::{LogprobsWanted, TokenId};
use crate::model_runner::sampler::{Sampled, SamplingInput, logprob_of, sample};
use crate::model_runner::{Logits, LogitsRow};

/// What is asked of one row.
enum Question<'a> {
    /// The logprob of a token of the prompt.
    Prompt(TokenId, &'a LogprobsWanted),
    /// The next token.
    Next(SamplingInput<'a>),
}

impl Question<'_> {
    fn answer(&self, row: LogitsRow<'_>) -> Sampled {
        match self {
            Self::Prompt(token, wanted) => Sampled { token: *token, logprob: Some(logprob_of(row, *token, wanted)) },
            Self::Next(input) => sample(row, input),
        }
    }
}

impl Scheduler {
    /// For each slot the tokens of its prompt that are scored, then its next token if it is to have one. Grammars are
    /// waited for; one that cannot be followed bars nothing here, whoever takes the token over finds that out.
    pub(super) fn sample(&mut self, slots: &[Slot], logits: &Logits) -> impl Iterator<Item = Sampled> + use<> {
        for slot in slots {
            let request = &mut self.running[slot.index];
            if request.samples_after(slot.tokens) {
                self.vitals.grammar_waited(request.await_mask());
            }
        }
        let questions = slots.iter().flat_map(|slot| questions(&self.running[slot.index], slot));
        let asked: Vec<_> = questions.zip(logits.peaked_rows()).collect();
        let answers: Vec<OnceLock<Sampled>> = asked.iter().map(|_| OnceLock::new()).collect();
        self.runner.for_each(asked.len(), &|number| {
            let (question, row) = &asked[number];
            answers[number].get_or_init(|| question.answer(*row));
        });
        answers.into_iter().map(|answer| answer.into_inner().expect("each number is called"))
    }
}

/// What `slot` asks of its rows, in their order.
fn questions<'a>(request: &'a Request, slot: &Slot) -> impl Iterator<Item = Question<'a>> {
    let scored = request.logprobs.iter().flat_map(|wanted| {
        request.scored(slot.tokens).map(|place| Question::Prompt(request.tokens[place + 1], wanted))
    });
    let next = request.samples_after(slot.tokens).then(|| Question::Next(request.sampling_input(request.mask())));
    scored.chain(next)
}
