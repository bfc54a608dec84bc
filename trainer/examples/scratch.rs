//! scratch
#![allow(unsafe_code, clippy::all, clippy::pedantic, clippy::print_stdout)]
use std::time::Instant;
use std::sync::Arc;
use drgym_env::*;
use drgym_trainer::model::*;
use drgym_trainer::sampler::*;
fn cpu() -> f64 {
    let mut u: libc::rusage = unsafe { std::mem::zeroed() };
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut u) };
    (u.ru_utime.tv_sec + u.ru_stime.tv_sec) as f64 + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) as f64 * 1e-6
}
#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args[1] == "import" {
        let report = drgym_trainer::import::import_gguf(args[2].as_ref(), args[3].as_ref(), Default::default());
        println!("{report:?}");
        return;
    }
    let dir = std::path::Path::new(&args[1]);
    let compute = if args.get(2).is_some_and(|a| a == "bf16") { tch::Kind::BFloat16 } else { tch::Kind::Float };
    let t = Instant::now();
    let decoder = Decoder::load(dir, LoadOptions { compute, ..Default::default() }).unwrap();
    println!("load {:?}", t.elapsed());
    let handle = ModelThread::spawn(decoder, std::env::var("T").map_or(2, |t| t.parse().unwrap())).unwrap();
    let folder = ModelFolder::open(dir).unwrap();
    let bytes = TokenBytes::from_file(&folder.tokenizer_path()).unwrap();
    let mut options = LocalPolicyOptions::for_folder(&folder, &bytes);
    println!("{options:?}");
    options.end_of_turn_ids = vec![];
    let policy = LocalPolicy::new(handle, Arc::new(bytes), options).unwrap();
    for b in args.get(5).map_or(vec![1usize,16,32,32], |s| s.split(",").map(|x| x.parse().unwrap()).collect()) {
        let plen: usize = args.get(3).map_or(200, |a| a.parse().unwrap());
        let n: usize = std::env::var("N").map_or(if b == 1 { 32 } else { 64 }, |n| n.parse().unwrap());
        let mut reqs = vec![];
        let mut ids = vec![];
        for i in 0..b {
            let prompt: Vec<u32> = (0..plen - if args.get(4).is_some_and(|a| a == "mixed") { i } else { 0 }).map(|j| (1000 + (i * 7919 + j * 104729) % 40000) as u32).collect();
            let s = policy.open(OpenRequest { prompt_ids: prompt, episode: EpisodeKey { task: "t".into(), sample: i as u32 }, turn: 0 }).await.unwrap();
            ids.push(s);
            reqs.push((s, SamplingParams { temperature: 1.0, max_tokens: 1, stop: vec![], seed: i as u64 }));
        }
        let c0 = cpu(); let t = Instant::now();
        for r in policy.sample_round(reqs.clone()).await { r.unwrap(); }
        let pre = t.elapsed().as_secs_f64();
        for r in reqs.iter_mut() { r.1.max_tokens = n; }
        let c1 = cpu(); let t = Instant::now();
        for r in policy.sample_round(reqs).await { r.unwrap(); }
        let dec = t.elapsed().as_secs_f64();
        println!("batch {b}: prefill {:.0} tok/s, decode {:.1} tok/s", (b * plen) as f64 / pre, (b * n) as f64 / dec); println!("   per cpu second: prefill {:.0}, decode {:.1}", (b * plen) as f64 / (c1 - c0), (b * n) as f64 / (cpu() - c1));
        for s in ids { policy.close(s).await; }
    }
}
