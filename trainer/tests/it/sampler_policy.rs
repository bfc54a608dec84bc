//! The sampler against teacher forcing: whatever was cached, copied, batched or dropped, each token's
//! log-probability is what the model gives to it after everything before it.

use std::sync::Arc;

use drgym_env::{
    EpisodeKey, OpenRequest, Policy, PolicyError, Sampled, SamplingParams, SessionId, StopReason,
};
use drgym_trainer::model::{Decoder, LoadOptions, Lora, LoraConfig, ModelError, ModelHandle, ModelThread};
use drgym_trainer::sampler::{LocalPolicy, LocalPolicyOptions, TokenBytes};
use futures::FutureExt;
use tch::{Kind, Tensor};

use super::model_support::{FAMILIES, data, tiny};

const VOCABULARY: usize = 48;
/// Bytes that a token takes in the caches of the tiny llama: 2 layers, keys and values, 2 heads of 4, f32.
const TOKEN_BYTES: usize = 2 * 2 * 8 * 4;

/// Token 40 is `é`'s first byte, 41 its second; the others are letters.
fn token_bytes() -> Arc<TokenBytes> {
    let bytes = (0..VOCABULARY as u8).map(|id| match id {
        40 => vec![0xc3],
        41 => vec![0xa9],
        _ => vec![b'A' + id],
    });
    Arc::new(TokenBytes::new(bytes.collect()))
}

fn options() -> LocalPolicyOptions {
    LocalPolicyOptions {
        name: "tiny".into(),
        context_length: 128,
        end_of_turn_ids: Vec::new(),
        vocab_size: VOCABULARY,
        cache_bytes: 1 << 24,
        max_batch: 16,
    }
}

fn policy_with(decoder: Decoder, options: LocalPolicyOptions) -> (LocalPolicy, ModelHandle) {
    let (handle, ()) = ModelThread::spawn(1, || Ok::<_, ModelError>((decoder, ()))).expect("spawned");
    let policy = LocalPolicy::new(handle.clone(), token_bytes(), options).expect("installed");
    (policy, handle)
}

fn draw(temperature: f32, max_tokens: usize, seed: u64) -> SamplingParams {
    SamplingParams { temperature, max_tokens, stop: Vec::new(), seed }
}

async fn open(policy: &LocalPolicy, prompt: &[u32]) -> SessionId {
    let episode = EpisodeKey { task: "t".into(), sample: 0 };
    policy.open(OpenRequest { prompt_ids: prompt.to_vec(), episode, turn: 0 }).await.expect("opened")
}

/// So many tokens that depend on the salt.
fn tokens(count: usize, salt: u32) -> Vec<u32> {
    (0..count as u32).map(|at| (at * at * 7 + at * 3 + salt * 11) % VOCABULARY as u32).collect()
}

/// Log-probabilities of the tokens from `start` on, at a temperature, by one pass over the whole sequence.
async fn teacher_forced(handle: &ModelHandle, sequence: &[u32], start: usize, temperature: f64) -> Vec<f32> {
    let ids: Vec<i64> = sequence.iter().map(|&id| i64::from(id)).collect();
    handle
        .run(move |decoder| {
            let _guard = tch::no_grad_guard();
            let ids = Tensor::from_slice(&ids);
            let hidden = decoder.hidden_states(&ids.unsqueeze(0)).squeeze_dim(0);
            let logprobs = (decoder.logits(&hidden) / temperature).log_softmax(-1, Kind::Float);
            let count = ids.size()[0] - start as i64;
            let rows = logprobs.narrow(0, start as i64 - 1, count);
            let chosen = rows.gather(1, &ids.narrow(0, start as i64, count).unsqueeze(1), false);
            Vec::try_from(chosen.squeeze_dim(1)).expect("numbers")
        })
        .await
        .expect("computed")
}

/// What a session should hold, kept beside the policy.
struct Twin {
    session: SessionId,
    held: Vec<u32>,
}

impl Twin {
    async fn check(&mut self, handle: &ModelHandle, sampled: &Sampled, temperature: f64, bound: f32) {
        let start = self.held.len();
        self.held.extend(&sampled.ids);
        let expected = teacher_forced(handle, &self.held, start, temperature).await;
        assert_eq!(sampled.logprobs.len(), sampled.ids.len());
        for (at, (found, expected)) in sampled.logprobs.iter().zip(expected).enumerate() {
            assert!(
                (found - expected).abs() < bound,
                "token {at} after {start}: {found}, expected {expected}"
            );
        }
    }
}

/// Opens, draws, extends, forks and closes in rounds of mixed lengths, and checks every token.
async fn play(policy: &LocalPolicy, handle: &ModelHandle, bound: f32) -> Vec<Vec<u32>> {
    let temperature = 0.7;
    let system = tokens(35, 1);
    // Two equal prompts, two that share a long beginning with them, one that shares nothing, one of a single token.
    let prompts = [
        system.clone(),
        system.clone(),
        [&system[..], &tokens(9, 2)].concat(),
        [&system[..], &tokens(3, 3)].concat(),
        tokens(20, 4),
        vec![7],
    ];
    let alike = open(policy, &prompts[4]).await;
    let mut twins = Vec::new();
    for prompt in &prompts {
        twins.push(Twin { session: open(policy, prompt).await, held: prompt.clone() });
    }
    policy.close(alike).await;
    for round in 0..3u64 {
        let requests: Vec<(SessionId, SamplingParams)> = twins
            .iter()
            .enumerate()
            .map(|(index, twin)| {
                // Rows end at different times, so the batch is compacted.
                (
                    twin.session,
                    draw(temperature, 1 + (index * 5 + round as usize) % 9, round * 100 + index as u64),
                )
            })
            .collect();
        let answers = policy.sample_round(requests).await;
        for (twin, answer) in twins.iter_mut().zip(&answers) {
            twin.check(handle, answer.as_ref().expect("sampled"), f64::from(temperature), bound).await;
        }
        for (index, twin) in twins.iter_mut().enumerate().filter(|(index, _)| index % 2 == 0) {
            let observation = tokens(4 + index, round as u32);
            policy.extend(twin.session, &observation).await.expect("extended");
            twin.held.extend(observation);
        }
        if round == 0 {
            let forked = policy.fork(twins[2].session).await.expect("forked");
            let held = twins[2].held.clone();
            twins.push(Twin { session: forked, held });
        }
    }
    twins.into_iter().map(|twin| twin.held).collect()
}

#[tokio::test]
async fn logprobs_of_rounds_equal_teacher_forcing_and_repeat_exactly() {
    for family in FAMILIES {
        let mut runs = Vec::new();
        for _ in 0..2 {
            let (policy, handle) = policy_with(tiny(family), options());
            runs.push(play(&policy, &handle, 1e-4).await);
        }
        assert_eq!(runs[0], runs[1], "{family}");
    }
}

#[tokio::test]
async fn a_round_that_does_not_fit_is_drawn_in_parts() {
    // Eight rows of up to 64 tokens and the caches behind them.
    let room = (8 * 64 + 8 * 64) * TOKEN_BYTES;
    let mut runs = Vec::new();
    for _ in 0..2 {
        let (policy, handle) =
            policy_with(tiny("llama"), LocalPolicyOptions { cache_bytes: room, ..options() });
        let mut twins = Vec::new();
        let mut requests = Vec::new();
        for salt in 0..20 {
            let prompt = tokens(10 + salt as usize, salt);
            let session = open(&policy, &prompt).await;
            requests.push((session, draw(1.0, 6, u64::from(salt))));
            twins.push(Twin { session, held: prompt });
        }
        let mut drawn = Vec::new();
        for (twin, answer) in twins.iter_mut().zip(policy.sample_round(requests).await) {
            let sampled = answer.expect("sampled");
            twin.check(&handle, &sampled, 1.0, 1e-4).await;
            drawn.push((sampled.ids, sampled.logprobs));
        }
        runs.push(drawn);
    }
    assert_eq!(runs[0], runs[1]);
}

/// Two rounds of sessions whose lengths cross several blocks of the caches; every token is checked.
async fn play_long(policy: &LocalPolicy, handle: &ModelHandle) -> Vec<Sampled> {
    let mut twins = Vec::new();
    for salt in 0..24u32 {
        let prompt = tokens(37 + salt as usize, salt);
        twins.push(Twin { session: open(policy, &prompt).await, held: prompt });
    }
    let mut drawn = Vec::new();
    for round in 0..2u64 {
        let max_tokens = |index: usize| if round == 0 { 60 + index * 7 % 41 } else { 20 };
        let requests: Vec<(SessionId, SamplingParams)> = twins
            .iter()
            .enumerate()
            .map(|(index, twin)| (twin.session, draw(1.0, max_tokens(index), round * 100 + index as u64)))
            .collect();
        let answers = policy.sample_round(requests).await;
        for (index, (twin, answer)) in twins.iter_mut().zip(answers).enumerate() {
            let sampled = answer.expect("it is drawn to its end");
            assert_eq!((sampled.ids.len(), &sampled.stop), (max_tokens(index), &StopReason::MaxTokens));
            twin.check(handle, &sampled, 1.0, 1e-4).await;
            drawn.push(sampled);
            let observation = tokens(5, round as u32);
            policy.extend(twin.session, &observation).await.expect("extended");
            twin.held.extend(observation);
        }
    }
    drawn
}

#[tokio::test]
async fn who_was_admitted_to_tight_memory_is_drawn_to_the_end() {
    // Eight rows of 192 tokens and the caches behind them, a third of what all 24 sessions come to.
    let tight = (8 * 192 + 8 * 192) * TOKEN_BYTES;
    let mut runs = Vec::new();
    for cache_bytes in [tight, tight, 1 << 24] {
        let options = LocalPolicyOptions { cache_bytes, context_length: 512, ..options() };
        let (policy, handle) = policy_with(tiny("llama"), options);
        runs.push(play_long(&policy, &handle).await);
    }
    assert_eq!(runs[0], runs[1]);
    for (at, (tight, roomy)) in runs[0].iter().zip(&runs[2]).enumerate() {
        assert_eq!(tight.ids, roomy.ids, "draw {at}");
        for (tight, roomy) in tight.logprobs.iter().zip(&roomy.logprobs) {
            assert!((tight - roomy).abs() < 1e-4, "draw {at}: {tight} and {roomy}");
        }
    }
}

#[tokio::test]
async fn concurrent_draws_share_batches_and_equal_teacher_forcing() {
    let (policy, handle) = policy_with(tiny("llama"), LocalPolicyOptions { max_batch: 3, ..options() });
    let mut tasks = Vec::new();
    for index in 0..8usize {
        let (policy, handle) = (policy.clone(), handle.clone());
        tasks.push(tokio::spawn(async move {
            let prompt = [tokens(33, 1), tokens(index % 3, 9)].concat();
            let mut twin = Twin { session: open(&policy, &prompt).await, held: prompt };
            for turn in 0..3u64 {
                let params = draw(1.0, 2 + index % 4, turn * 10 + index as u64);
                let sampled = policy.sample(twin.session, params).await.expect("sampled");
                twin.check(&handle, &sampled, 1.0, 1e-4).await;
                let observation = tokens(index, turn as u32);
                policy.extend(twin.session, &observation).await.expect("extended");
                twin.held.extend(observation);
            }
            policy.close(twin.session).await;
        }));
    }
    for task in tasks {
        task.await.expect("every check held");
    }
}

#[tokio::test]
async fn idle_caches_make_way_and_come_back_without_a_trace() {
    // Room for a batch of up to eight rows, the session that is drawn from and one idle session: when a session's
    // turn comes again its cache is gone.
    let room = (8 * 128 + 128 + 128) * TOKEN_BYTES;
    let (policy, handle) = policy_with(tiny("llama"), LocalPolicyOptions { cache_bytes: room, ..options() });
    let mut twins = Vec::new();
    for salt in 0..4 {
        let prompt = tokens(90 + salt as usize, salt);
        twins.push(Twin { session: open(&policy, &prompt).await, held: prompt });
    }
    for turn in 0..3 {
        for twin in &mut twins {
            let sampled = policy.sample(twin.session, draw(1.0, 5, turn)).await.expect("sampled");
            twin.check(&handle, &sampled, 1.0, 1e-4).await;
        }
    }
    // Room for the smallest batch, but not for the session's own cache.
    let tight = LocalPolicyOptions { cache_bytes: 8 * 64 * TOKEN_BYTES, ..options() };
    let (policy, _) = policy_with(tiny("llama"), tight);
    let session = open(&policy, &[1, 2, 3]).await;
    for answer in [
        policy.sample(session, draw(0.0, 4, 0)).await,
        policy.sample_round(vec![(session, draw(0.0, 4, 0))]).await.remove(0),
    ] {
        let error = answer.expect_err("there is no room").to_string();
        assert!(error.contains("the caches would exceed 65536 bytes"), "{error}");
    }
}

#[tokio::test]
async fn bfloat16_and_adapters_sample_from_the_model_that_is_trained() {
    let options_bf16 = LoadOptions { compute: Kind::BFloat16, ..LoadOptions::default() };
    let decoder = Decoder::load(&data("model/llama"), options_bf16).expect("loaded");
    let (policy, handle) = policy_with(decoder, options());
    play(&policy, &handle, 0.3).await;

    let mut decoder = tiny("llama");
    let config = LoraConfig { rank: 2, alpha: 4.0, targets: vec!["k_proj".into(), "up_proj".into()] };
    let lora = Lora::new(decoder.config(), config, 1).expect("it fits");
    for (_, pair) in lora.pairs() {
        let _ = tch::no_grad(|| pair.b.shallow_clone().fill_(0.2));
    }
    decoder.attach_lora(lora).expect("it fits");
    let (policy, handle) = policy_with(decoder, options());
    play(&policy, &handle, 1e-4).await;
}

#[tokio::test]
async fn after_an_update_sessions_go_on_with_the_new_weights() {
    for compute in [Kind::Float, Kind::BFloat16] {
        let load = LoadOptions { compute, ..LoadOptions::default() };
        let decoder = Decoder::load(&data("model/llama"), load).expect("loaded");
        let (policy, handle) = policy_with(decoder, options());
        let prompt = tokens(12, 5);
        let mut twin = Twin { session: open(&policy, &prompt).await, held: prompt };
        let bound = if compute == Kind::Float { 1e-4 } else { 0.3 };
        let sampled = policy.sample(twin.session, draw(1.0, 5, 1)).await.expect("sampled");
        twin.check(&handle, &sampled, 1.0, bound).await;
        handle
            .run(|decoder| {
                let _guard = tch::no_grad_guard();
                for (_, parameter) in decoder.parameters().iter() {
                    let _ = parameter.shallow_clone().g_mul_scalar_(-0.8);
                }
            })
            .await
            .expect("updated");
        policy.invalidate().expect("the thread is there");
        policy.set_version(1);
        assert_eq!(policy.info().version, 1);
        let sampled = policy.sample(twin.session, draw(1.0, 5, 2)).await.expect("sampled");
        twin.check(&handle, &sampled, 1.0, bound).await;
    }
}

#[tokio::test]
async fn draws_follow_the_distribution() {
    let (policy, handle) = policy_with(tiny("qwen2"), LocalPolicyOptions { max_batch: 512, ..options() });
    let prompt = tokens(6, 2);
    let draws = 4000;
    let mut requests = Vec::new();
    for seed in 0..draws {
        requests.push((open(&policy, &prompt).await, draw(1.5, 1, seed)));
    }
    let mut counts = vec![0f64; VOCABULARY];
    for chunk in requests.chunks(500) {
        for answer in policy.sample_round(chunk.to_vec()).await {
            counts[answer.expect("sampled").ids[0] as usize] += 1.0;
        }
    }
    let mut distance = 0.0;
    for token in 0..VOCABULARY as u32 {
        let sequence = [&prompt[..], &[token]].concat();
        let probability = f64::from(teacher_forced(&handle, &sequence, prompt.len(), 1.5).await[0]).exp();
        distance += (counts[token as usize] / draws as f64 - probability).abs() / 2.0;
    }
    // 48 outcomes and 4000 draws give about sqrt(48 / (2 π 4000)) = 0.044; a wrong temperature gives above 0.1.
    assert!(distance < 0.06, "total variation {distance}");
}

#[tokio::test]
async fn generation_ends_for_the_right_reason_and_keeps_the_last_token() {
    let prompt = tokens(10, 3);
    let greedy = {
        let (policy, _) = policy_with(tiny("llama"), options());
        let session = open(&policy, &prompt).await;
        let sampled = policy.sample(session, draw(0.0, 12, 0)).await.expect("sampled");
        assert_eq!(sampled.stop, StopReason::MaxTokens);
        assert_eq!(sampled.ids.len(), 12);
        sampled.ids
    };
    let letters: Vec<u8> = greedy.iter().flat_map(|&id| token_bytes().get(id).to_vec()).collect();
    // The last place where a pair of letters is complete that does not occur before.
    let (end, stop) = (2..=letters.len())
        .rev()
        .filter(|&end| !letters[..end - 1].windows(2).any(|pair| pair == &letters[end - 2..end]))
        .find_map(|end| Some((end, std::str::from_utf8(&letters[end - 2..end]).ok()?.to_owned())))
        .expect("some pair is new");

    let ending = LocalPolicyOptions { end_of_turn_ids: vec![greedy[4]], ..options() };
    let (policy, handle) = policy_with(tiny("llama"), ending);
    let session = open(&policy, &prompt).await;
    let sampled = policy.sample(session, draw(0.0, 12, 0)).await.expect("sampled");
    let first = greedy.iter().position(|&id| id == greedy[4]).expect("it is there");
    assert_eq!((sampled.ids.as_slice(), sampled.stop), (&greedy[..=first], StopReason::EndOfTurn));
    drop(handle);

    let (policy, _) = policy_with(tiny("llama"), options());
    let session = open(&policy, &prompt).await;
    let stopping = SamplingParams { stop: vec!["never".into(), stop.clone()], ..draw(0.0, 12, 0) };
    let stopped = policy.fork(session).await.expect("forked");
    let sampled = policy.sample(stopped, stopping).await.expect("sampled");
    assert_eq!((sampled.ids.as_slice(), sampled.stop), (&greedy[..end], StopReason::StopString(stop)));

    let (policy, _) = policy_with(tiny("llama"), LocalPolicyOptions { context_length: 16, ..options() });
    let session = open(&policy, &prompt).await;
    let stopping = SamplingParams { stop: vec!["never".into()], ..draw(0.0, 12, 0) };
    let crowded = policy.fork(session).await.expect("forked");
    let sampled = policy.sample(crowded, stopping).await.expect("sampled");
    assert_eq!((sampled.ids.as_slice(), sampled.stop), (&greedy[..6], StopReason::ContextFull));
    let sampled = policy.sample(session, draw(0.0, 0, 0)).await.expect("nothing to do");
    assert_eq!((sampled.ids.len(), sampled.stop), (0, StopReason::MaxTokens));
    let sampled = policy.sample(session, draw(0.0, 12, 0)).await.expect("sampled");
    assert_eq!((sampled.ids.as_slice(), sampled.stop), (&greedy[..6], StopReason::ContextFull));
    let sampled = policy.sample(session, draw(0.0, 12, 0)).await.expect("nothing to do");
    assert_eq!((sampled.ids.len(), sampled.stop), (0, StopReason::ContextFull));
    assert!(matches!(
        policy.extend(session, &[1]).await,
        Err(PolicyError::ContextOverflow { tokens: 17, context_length: 16 })
    ));
}

#[tokio::test]
async fn what_cannot_be_done_is_an_error_and_harms_nobody() {
    let (policy, handle) = policy_with(tiny("llama"), options());
    let episode = EpisodeKey { task: "t".into(), sample: 0 };
    let prompt = |ids: Vec<u32>| OpenRequest { prompt_ids: ids, episode: episode.clone(), turn: 0 };
    let message = |error: PolicyError| error.to_string();
    assert_eq!(
        message(policy.open(prompt(vec![])).await.unwrap_err()),
        "the policy failed: the prompt is empty"
    );
    let overflow = policy.open(prompt(vec![1; 129])).await.unwrap_err();
    assert_eq!(message(overflow), "129 tokens do not fit the context of 128");
    let beyond = policy.open(prompt(vec![48])).await.unwrap_err();
    assert_eq!(message(beyond), "the policy failed: token id 48 is beyond the model's vocabulary of 48");
    let session = open(&policy, &[1, 2, 3]).await;
    for (params, part) in [
        (draw(-1.0, 1, 0), "temperature -1"),
        (draw(f32::NAN, 1, 0), "temperature NaN"),
        (SamplingParams { stop: vec![String::new()], ..draw(1.0, 1, 0) }, "a stop string is empty"),
    ] {
        let error = message(policy.sample(session, params).await.unwrap_err());
        assert!(error.contains(part), "{error}");
    }
    let stranger = SessionId(999);
    let answers = policy.sample_round(vec![(stranger, draw(0.0, 2, 0)), (session, draw(0.0, 2, 0))]).await;
    assert!(matches!(answers[0], Err(PolicyError::UnknownSession(SessionId(999)))));
    assert_eq!(answers[1].as_ref().expect("sampled").ids.len(), 2);
    assert!(matches!(policy.fork(stranger).await, Err(PolicyError::UnknownSession(_))));
    // The same session twice in a round: the second is refused.
    let answers = policy.sample_round(vec![(session, draw(0.0, 2, 0)), (session, draw(0.0, 2, 0))]).await;
    assert!(answers[0].is_ok());
    assert_eq!(
        message(answers[1].as_ref().err().map(|error| PolicyError::Failed(error.to_string())).unwrap()),
        format!("the policy failed: the policy failed: session {} is being sampled", session.0)
    );

    // A caller that goes away in the middle leaves a session that can be drawn from.
    let before = open(&policy, &tokens(5, 1)).await;
    let (release, released) = std::sync::mpsc::channel::<()>();
    let busy = handle.clone();
    let blocked = tokio::spawn(async move { busy.run(move |_| released.recv()).await });
    tokio::task::yield_now().await;
    assert!(policy.sample(before, draw(1.0, 100, 0)).now_or_never().is_none());
    release.send(()).expect("the job waits");
    blocked.await.expect("joined").expect("ran").expect("released");
    let mut twin = Twin { session: before, held: tokens(5, 1) };
    // Until the engine notices, the session is busy.
    loop {
        match policy.sample(before, draw(1.0, 3, 4)).await {
            Ok(sampled) => {
                twin.check(&handle, &sampled, 1.0, 1e-4).await;
                break;
            }
            Err(PolicyError::Failed(reason)) if reason.contains("being sampled") => {
                tokio::task::yield_now().await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    policy.close(before).await;
    policy.close(before).await;
    assert!(matches!(policy.sample(before, draw(0.0, 1, 0)).await, Err(PolicyError::UnknownSession(_))));
}
