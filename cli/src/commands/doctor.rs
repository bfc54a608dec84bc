//! `drgym doctor`.

use std::path::Path;

use serde::Serialize;

use crate::arguments::DoctorArguments;
use crate::failure::Outcome;
use crate::paths;
use crate::printer::Printer;

/// One thing that was looked at.
#[derive(Serialize)]
struct Finding {
    name: &'static str,
    ok: bool,
    found: String,
}

/// Says what this machine has and what is missing.
pub fn run(arguments: &DoctorArguments, printer: Printer) -> Outcome {
    let home = paths::home();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut findings = vec![
        Finding { name: "version", ok: true, found: crate::VERSION.into() },
        Finding { name: "features", ok: true, found: features() },
        Finding { name: "cores", ok: true, found: cores.to_string() },
        Finding {
            name: "threads",
            ok: true,
            found: format!(
                "phases take turns: encoding {cores} (rayon), model {cores} (libtorch), network and waiting 2 (tokio)"
            ),
        },
        memory(),
        cuda(),
        Finding { name: "home", ok: home.is_dir(), found: home.display().to_string() },
    ];
    for (name, part) in [
        ("encoder", "models/all-minilm-l6-v2/model.safetensors"),
        ("policy", "models/smollm2-135m-instruct/model.safetensors"),
        ("factbook", "corpora/factbook"),
    ] {
        findings.push(presence(name, &home.join(part)));
    }
    if arguments.json {
        return printer.json(&findings);
    }
    for finding in &findings {
        let mark = if finding.ok { "ok" } else { "--" };
        printer.data(&format!("{mark}  {:<10} {}", finding.name, finding.found));
    }
    if findings.iter().any(|finding| !finding.ok) {
        printer.say(
            "run scripts/setup.sh to lay out what is missing (the policy, once drgym is built: scripts/setup.sh \
             --model), or point to your own with options",
        );
    }
    Ok(())
}

/// Whether a policy could run on a GPU. None is no fault.
#[cfg(feature = "train")]
fn cuda() -> Finding {
    let found = match drgym_trainer::device::device("cuda") {
        Ok(_) => "available".to_owned(),
        Err(error) => format!("not available: {error}"),
    };
    Finding { name: "cuda", ok: true, found }
}

#[cfg(not(feature = "train"))]
fn cuda() -> Finding {
    Finding { name: "cuda", ok: true, found: "built without the feature train".into() }
}

fn features() -> String {
    let known = [("engine", cfg!(feature = "engine")), ("train", cfg!(feature = "train"))];
    let on: Vec<&str> = known.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
    if on.is_empty() { "none".into() } else { on.join(", ") }
}

fn presence(name: &'static str, path: &Path) -> Finding {
    let ok = path.exists();
    Finding { name, ok, found: format!("{}{}", path.display(), if ok { "" } else { " is missing" }) }
}

/// Free memory as Linux tells it.
fn memory() -> Finding {
    let available = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    let found =
        available.map_or("unknown".into(), |kib| format!("{:.1} GiB available", kib as f64 / 1048576.0));
    Finding { name: "memory", ok: available.is_some(), found }
}
