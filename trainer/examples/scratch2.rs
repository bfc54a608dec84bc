//! scratch
#![allow(unsafe_code, clippy::all, clippy::pedantic, clippy::print_stdout)]
use tch::*;
fn cpu() -> f64 {
    let mut u: libc::rusage = unsafe { std::mem::zeroed() };
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut u) };
    (u.ru_utime.tv_sec + u.ru_stime.tv_sec) as f64 + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) as f64 * 1e-6
}
fn time(name: &str, n: usize, scale: f64, mut f: impl FnMut()) {
    f();
    let c = cpu(); let t = std::time::Instant::now();
    for _ in 0..n { f() }
    println!("{name}: {:.2} ms cpu/step, {:.2} wall", (cpu() - c) / n as f64 * 1e3 * scale, t.elapsed().as_secs_f64() / n as f64 * 1e3 * scale);
}
fn main() {
    let _g = no_grad_guard();
    set_num_threads(std::env::var("T").map_or(1, |t| t.parse().unwrap()));
    println!("mkl {} mkldnn {}", utils::has_mkl(), utils::has_mkldnn());
    let b: i64 = std::env::args().nth(1).map_or(32, |a| a.parse().unwrap());
    let o = (Kind::Float, Device::Cpu);
    for (name, out, inn, layers) in [("qkv", 960i64, 576i64, 30usize), ("o", 576, 576, 30), ("gate_up", 3072, 576, 30), ("down", 576, 1536, 30), ("head", 49152, 576, 1)] {
        // enough copies to defeat caches as in the model
        let copies = if layers == 1 { 1 } else { 30 };
        let ws: Vec<Tensor> = (0..copies).map(|_| Tensor::randn([out, inn], o)).collect();
        let x = Tensor::randn([b, inn], o);
        let xt = x.tr().contiguous();
        let wts: Vec<Tensor> = ws.iter().map(|w| w.tr().contiguous()).collect();
        let mut i = 0;
        time(&format!("{name} linear"), 3 * copies, layers as f64, || { i = (i + 1) % copies; let _ = x.linear(&ws[i], None::<&Tensor>); });
        time(&format!("{name} x@Wt contiguous"), 3 * copies, layers as f64, || { i = (i + 1) % copies; let _ = x.matmul(&wts[i]); });
        time(&format!("{name} W@xT (view)"), 3 * copies, layers as f64, || { i = (i + 1) % copies; let _ = ws[i].matmul(&x.tr()); });
        time(&format!("{name} W@xT contiguous"), 3 * copies, layers as f64, || { i = (i + 1) % copies; let _ = ws[i].matmul(&xt); });
        let wm: Vec<Tensor> = ws.iter().map(|w| w.g_to_mkldnn(None)).collect();
        let xm = x.g_to_mkldnn(None);
        time(&format!("{name} mkldnn_linear"), 3 * copies, layers as f64, || { i = (i + 1) % copies; let _ = xm.mkldnn_linear(&wm[i], None::<&Tensor>); });
        let wb: Vec<Tensor> = ws.iter().map(|w| w.to_kind(Kind::BFloat16)).collect();
        let xb = x.to_kind(Kind::BFloat16);
        time(&format!("{name} bf16"), copies.max(2), layers as f64, || { i = (i + 1) % copies; let _ = xb.linear(&wb[i], None::<&Tensor>); });
    }
    let x = Tensor::randn([b, 576], o); let w = Tensor::ones([576], o);
    time("rms_norm manual x61", 100, 61.0, || { let s = (x.square().mean_dim(&[-1i64][..], true, None) + 1e-5).rsqrt(); let _ = (&x * s) * &w; });
    time("rms_norm op x61", 100, 61.0, || { let _ = x.rms_norm([576i64], Some(&w), 1e-5); });
    time("fused_rms_norm op x61", 100, 61.0, || { let _ = x.internal_fused_rms_norm([576i64], Some(&w), 1e-5); });
    let gu = Tensor::randn([b, 3072], o);
    time("silu mul x30", 100, 30.0, || { let mut g = gu.narrow(1, 0, 1536).silu(); let _ = g.g_mul_(&gu.narrow(1, 1536, 1536)); });
    let qkv = Tensor::randn([b, 15, 64], o); let cos = Tensor::randn([b, 1, 32], o);
    time("rope x30", 100, 30.0, || { let q = qkv.narrow(1, 0, 12); let (l, h) = (q.narrow(-1, 0, 32), q.narrow(-1, 32, 32)); let _ = Tensor::cat(&[&l * &cos - &h * &cos, &h * &cos + &l * &cos], -1); });
    for len in [128i64, 256, 512] {
        let stores: Vec<Tensor> = (0..20).map(|_| Tensor::randn([32, 512, 192], o)).collect();
        let q = Tensor::randn([b, 3, 3, 64], o);
        let mask = Tensor::zeros([b, 1, 1, len], o);
        let m = mask.expand([b, 1, 3, len], false);
        let mut i = 0;
        let view = |s: &Tensor| s.narrow(0, 0, b).narrow(1, 0, len).view([b, len, 3, 64]).transpose(1, 2);
        time(&format!("sdpa grouped masked {len} x30"), 20, 30.0, || { i = (i + 1) % 10; let _ = Tensor::scaled_dot_product_attention(&q, &view(&stores[i]), &view(&stores[i + 10]), Some(&m), 0.0, false, None, false); });
        time(&format!("sdpa grouped no mask {len} x30"), 20, 30.0, || { i = (i + 1) % 10; let _ = Tensor::scaled_dot_product_attention(&q, &view(&stores[i]), &view(&stores[i + 10]), None::<&Tensor>, 0.0, false, None, false); });
        time(&format!("matmul softmax {len} x30"), 20, 30.0, || { i = (i + 1) % 10; let s = q.matmul(&view(&stores[i]).transpose(2, 3)) * 0.125 + &mask; let _ = s.softmax(-1, Kind::Float).matmul(&view(&stores[i + 10])); });
        let perm: Vec<Tensor> = (0..20).map(|_| Tensor::randn([32, 3, 512, 64], o)).collect();
        let view = |s: &Tensor| s.narrow(0, 0, b).narrow(2, 0, len);
        time(&format!("sdpa headmajor {len} x30"), 20, 30.0, || { i = (i + 1) % 10; let _ = Tensor::scaled_dot_product_attention(&q, &view(&perm[i]), &view(&perm[i + 10]), Some(&m), 0.0, false, None, false); });
    }
    let logits = Tensor::randn([b, 49152], o);
    time("log_softmax+exp", 10, 1.0, || { let _ = logits.log_softmax(-1, Kind::Float).exp(); });
    let mut v = vec![0f32; (b * 49152) as usize];
    time("copy", 10, 1.0, || { logits.copy_data(&mut v, (b * 49152) as usize); });
    time("alloc+copy", 10, 1.0, || { let mut v = vec![0f32; (b * 49152) as usize]; logits.copy_data(&mut v, (b * 49152) as usize); std::hint::black_box(&v); });
}
