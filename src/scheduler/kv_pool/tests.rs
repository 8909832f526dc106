//! Pages have one owner, and what is shared is right: alone, and below a scheduler to which anything may happen.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::*;
use crate::io_struct::{EngineEvent, FlushId, FlushOutcome, FromEngine, HttpWorkerIpc, PauseMode, Rid, ToEngine};
use crate::scheduler::tests::{Bench, ROOMY, abort, bench, expected, message, probe, request};
use crate::scheduler::{PrefixCache, SchedulerConfig, SchedulerInput};

fn tokens(len: usize) -> Vec<TokenId> {
    (0..).map(TokenId).take(len).collect()
}

fn caching(pages: usize) -> KvPool {
    KvPool::new(pages, Some(RadixCache::default()))
}

#[test]
fn pages_grow_all_or_nothing_and_come_back() {
    let mut pool = KvPool::new(4, None);
    let (mut a, mut b) = (PageTable::default(), PageTable::default());
    assert!(pool.grow(&mut a, 17));
    assert_eq!(a.pages(), [PageId(0), PageId(1)]);
    assert!(pool.grow(&mut a, 32), "two pages hold 32 tokens already");
    assert!(!pool.grow(&mut b, 48), "three pages are asked for, two are free");
    assert!(b.pages().is_empty());
    assert!(pool.grow(&mut b, 32));
    assert_eq!((pool.available_pages(), pool.used_tokens()), (0, 64));
    pool.keep(&mut a, &tokens(32));
    pool.release(&mut a);
    pool.release(&mut b);
    assert_eq!((pool.available_pages(), pool.used_tokens(), pool.evictable_tokens()), (4, 0, 0));
}

#[test]
fn what_was_computed_is_shared_with_those_who_begin_alike() {
    let mut pool = caching(8);
    let (mut a, mut b) = (PageTable::default(), PageTable::default());
    assert!(pool.grow(&mut a, 40));
    pool.keep(&mut a, &tokens(40));
    pool.share(&mut b, &tokens(100));
    assert_eq!((b.pages(), b.shared_tokens()), (&a.pages()[..2], 32), "the third page is not whole");
    assert!(pool.grow(&mut b, 48));
    pool.audit([&a, &b].into_iter());
    assert_eq!(pool.used_tokens(), 64, "two pages together, one each");
    pool.release(&mut a);
    assert_eq!((pool.used_tokens(), pool.evictable_tokens()), (48, 0), "the other still holds them");
    pool.release(&mut b);
    assert_eq!((pool.used_tokens(), pool.evictable_tokens()), (0, 32));
    pool.audit(std::iter::empty());
}

#[test]
fn of_two_who_computed_the_same_one_gives_its_pages_back() {
    let mut pool = caching(8);
    let (mut a, mut b) = (PageTable::default(), PageTable::default());
    assert!(pool.grow(&mut a, 33) && pool.grow(&mut b, 33));
    pool.keep(&mut a, &tokens(32));
    pool.keep(&mut b, &tokens(20));
    assert_eq!((b.shared_tokens(), pool.free.len()), (16, 3));
    pool.share(&mut b, &tokens(32));
    assert_eq!((&b.pages()[..2], pool.free.len()), (&a.pages()[..2], 4));
    assert_ne!(a.pages()[2], b.pages()[2]);
    pool.audit([&a, &b].into_iter());
}

#[test]
fn what_nobody_holds_makes_room() {
    let mut pool = caching(4);
    let (mut a, mut b) = (PageTable::default(), PageTable::default());
    assert!(pool.grow(&mut a, 48));
    pool.keep(&mut a, &tokens(48));
    pool.release(&mut a);
    assert_eq!((pool.lacking_pages(&[], 4), pool.lacking_pages(&[], 5)), (0, 1));
    assert_eq!((pool.lacking_pages(&tokens(48), 4), pool.lacking_pages(&tokens(48), 5)), (0, 1));
    assert!(pool.grow(&mut b, 32), "one page was free, one is evicted");
    assert_eq!((pool.evicted_tokens(), pool.cached_tokens(&tokens(48))), (16, 32), "the last page goes first");
    assert_eq!((pool.flush(), pool.cached_tokens(&tokens(48))), (32, 0));
    pool.audit([&b].into_iter());
    pool.withhold(true);
    assert_eq!(pool.lacking_pages(&[], 1), 1);
}

/// Prompts that begin alike in different ways, some of them with whole pages.
fn prompt(random: &mut StdRng) -> Vec<u32> {
    let stem: &[u32] = [&[7; 48][..], &[7; 20], &[3; 64], &[]].choose(random).unwrap();
    let own = (0..random.random_range(1..40)).map(|_| random.random_range(0..3));
    stem.iter().copied().chain(own).collect()
}

fn cached(bench: &Bench, rid: &str) -> u32 {
    bench.outputs(rid).last().unwrap().cached_tokens
}

fn flushed(bench: &Bench) -> Vec<FlushOutcome> {
    let flushed = bench.sent.0.iter().filter_map(|(_, msg)| match msg {
        FromEngine::Event(EngineEvent::CacheFlushed { outcome, .. }) => Some(*outcome),
        _ => None,
    });
    flushed.collect()
}

fn flush() -> SchedulerInput {
    message(ToEngine::FlushCache(FlushId(1)))
}

#[test]
fn a_prompt_that_comes_back_is_not_computed_again() {
    let mut bench = bench(ROOMY);
    bench.run(vec![request("first", &[5; 40], 3)]);
    bench.log.lock().unwrap().clear();
    bench.run(vec![request("same", &[5; 40], 3), request("longer", &[5; 60], 3)]);
    bench.run(vec![request("whole pages", &[5; 32], 1)]);
    assert_eq!(["first", "same", "longer", "whole pages"].map(|rid| cached(&bench, rid)), [0, 32, 32, 16]);
    assert_eq!(bench.log.lock().unwrap()[..2], [vec![8], vec![1, 8]]);
    for (rid, len, output) in [("first", 40, 3), ("same", 40, 3), ("longer", 60, 3), ("whole pages", 32, 1)] {
        assert_eq!(bench.text(rid), expected(&vec![5; len], output), "{rid}");
    }
}

#[test]
fn an_answer_is_part_of_the_next_prompt() {
    let mut bench = bench(ROOMY);
    bench.run(vec![request("question", &[5; 10], 30)]);
    let conversation = [vec![5; 10], bench.text("question"), vec![9; 4]].concat();
    bench.run(vec![request("next question", &conversation, 3)]);
    assert_eq!(cached(&bench, "next question"), 32, "two of the pages hold prompt and output");
    assert_eq!(bench.text("next question"), expected(&conversation, 3));
}

#[test]
fn of_prompts_that_arrive_together_one_does_the_work() {
    let mut bench = bench(ROOMY);
    bench.run((0..4).map(|i| request(&format!("r{i}"), &[[6; 48].as_slice(), &[i]].concat(), 2)).collect());
    assert_eq!(cached(&bench, "r0"), 0);
    assert_eq!([1, 2, 3].map(|i| cached(&bench, &format!("r{i}"))), [48; 3]);
    for i in 0..4 {
        assert_eq!(bench.text(&format!("r{i}")), expected(&[[6; 48].as_slice(), &[i]].concat(), 2));
    }
    let prefilled: usize = bench.log.lock().unwrap().iter().flatten().sum();
    assert_eq!(prefilled, 48 + 4 + 4, "the stem once, the rest of each prompt, the second token of each output");
}

#[test]
fn switched_off_nothing_is_kept() {
    let mut bench = bench(SchedulerConfig { prefix_cache: PrefixCache::Off, ..ROOMY });
    for rid in ["first", "second"] {
        bench.run(vec![request(rid, &[5; 40], 3)]);
        assert_eq!((cached(&bench, rid), bench.text(rid)), (0, expected(&[5; 40], 3)));
    }
    assert_eq!(bench.scheduler.kv_pool.evictable_tokens(), 0);
}

#[test]
fn probes_neither_enter_the_cache_nor_take_from_it() {
    let mut bench = bench(ROOMY);
    let probe = |len: usize| {
        let (rid, SchedulerInput::Message(worker, mut envelope)) = probe() else { unreachable!() };
        if let ToEngine::Generate(input) = &mut envelope.msg {
            input.input_ids = tokens(len);
        }
        (rid, SchedulerInput::Message(worker, envelope))
    };
    let (rid, input) = probe(20);
    bench.run(vec![input]);
    assert_eq!(bench.scheduler.kv_pool.evictable_tokens(), 0);
    let prompt: Vec<_> = (0..40).collect();
    bench.run(vec![request("user", &prompt, 1)]);
    let (again, input) = probe(20);
    bench.run(vec![input]);
    assert_eq!([rid, again].map(|rid| cached(&bench, rid.as_str())), [0, 0]);
    assert_eq!(*bench.log.lock().unwrap().last().unwrap(), [4], "its last chunk: it ran from its beginning");
}

#[test]
fn a_flush_waits_for_nobody_and_takes_nothing_from_anybody() {
    let mut bench = bench(SchedulerConfig { max_running_requests: 1, ..ROOMY });
    bench.step(vec![vec![request("a", &[5; 40], 3), request("b", &[5; 40], 3)]]);
    bench.step(vec![vec![flush()]]);
    bench.run(vec![]);
    assert_eq!(cached(&bench, "b"), 32);
    let held = bench.scheduler.kv_pool.evictable_tokens();
    assert!(held > 0);
    bench.run(vec![flush()]);
    bench.run(vec![flush(), request("c", &[5; 40], 3)]);
    assert_eq!((cached(&bench, "c"), bench.text("c")), (0, expected(&[5; 40], 3)));
    let tokens = held as u64;
    let busy = FlushOutcome::Busy { running: 1, waiting: 1 };
    assert_eq!(flushed(&bench), [busy, FlushOutcome::Flushed { tokens }, FlushOutcome::Flushed { tokens: 0 }]);
}

/// Whatever happens, in whatever order, each page is accounted for (`Bench::step` looks after each turn), and who is
/// answered is answered right.
#[test]
fn random_lives() {
    for seed in 0..300 {
        let mut random = StdRng::seed_from_u64(seed);
        let config = SchedulerConfig {
            chunked_prefill_size: random.random_range(1..40),
            max_running_requests: random.random_range(1..6),
            max_queued_requests: 1000,
            max_total_tokens: random.random_range(10..30) * PAGE_SIZE,
            prefix_cache: *[PrefixCache::On, PrefixCache::On, PrefixCache::Off].choose(&mut random).unwrap(),
            ..ROOMY
        };
        let mut bench = bench(config);
        let mut asked = Vec::new();
        for number in 0..random.random_range(1..60) {
            let input = match random.random_range(0..20) {
                0..9 => {
                    let (rid, prompt, len) = (number.to_string(), prompt(&mut random), random.random_range(1..40));
                    let input = request(&rid, &prompt, len);
                    asked.push((rid, prompt, len));
                    vec![input]
                }
                9..12 => {
                    let rid = asked.choose(&mut random).map_or("none", |(rid, ..)| rid);
                    vec![abort(&Rid::from_caller(rid).unwrap())]
                }
                12 => vec![message(ToEngine::Pause(PauseMode::Retract))],
                13 => vec![message(ToEngine::Pause(PauseMode::InPlace)), flush()],
                14 => vec![message(ToEngine::Continue), flush()],
                15 => vec![probe().1],
                16 if random.random_range(0..4) == 0 => vec![SchedulerInput::WorkerGone(HttpWorkerIpc::new("w"))],
                _ => vec![],
            };
            bench.step(vec![input]);
        }
        bench.run(vec![message(ToEngine::Continue)]);
        assert!(bench.is_clean(), "seed {seed}");
        for (rid, prompt, len) in &asked {
            let (text, want) = (bench.text(rid), expected(prompt, *len as usize));
            let whole = bench.outputs(rid).last().is_some_and(|output| output.finish_reason.is_some());
            assert!(if whole { text == want } else { want.starts_with(&text) }, "seed {seed}, request {rid}");
        }
        bench.run(vec![flush()]);
        assert_eq!(bench.scheduler.kv_pool.free.len(), bench.scheduler.kv_pool.total, "seed {seed}");
    }
}
