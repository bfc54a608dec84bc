//! `drgym model`.

use std::path::Path;

use drgym_trainer::import::{ImportError, ImportOptions, import_gguf};
use drgym_trainer::model::{Decoder, LoadOptions, Lora, ModelFolder};

use crate::arguments::{ModelCommand, ModelImportArguments};
use crate::failure::{Outcome, WithHint};
use crate::printer::Printer;

/// Imports, describes and merges models.
pub async fn run(command: ModelCommand, printer: Printer) -> Outcome {
    tokio::task::spawn_blocking(move || match command {
        ModelCommand::Import(arguments) => import(&arguments, printer),
        ModelCommand::Info { model } => info(&model, printer),
        ModelCommand::Merge { model, adapter, out } => {
            let mut decoder = Decoder::load(&model, LoadOptions::default())?;
            decoder.attach_lora(Lora::load(&adapter)?)?;
            decoder.merge_lora()?;
            decoder.save(&out)?;
            printer.say(&format!("merged into {}", out.display()));
            Ok(())
        }
    })
    .await?
}

fn import(arguments: &ModelImportArguments, printer: Printer) -> Outcome {
    let out = &arguments.out;
    let options = ImportOptions { overwrite: arguments.overwrite, ..ImportOptions::default() };
    let report = match import_gguf(&arguments.gguf, out, options) {
        Err(error @ ImportError::NotOverwritten { .. }) => {
            return Err(error).hint("choose another folder; --overwrite replaces an earlier import");
        }
        imported => imported?,
    };
    printer.say(&format!(
        "{}: {} parameters, {} tokens, stored as {:?}, in {}",
        report.name.as_deref().unwrap_or("model"),
        report.parameters,
        report.vocab_size,
        report.stored_types,
        out.display()
    ));
    Ok(())
}

fn info(model: &Path, printer: Printer) -> Outcome {
    let folder = ModelFolder::open(model)?;
    let decoder = Decoder::load(model, LoadOptions::default())?;
    let parameters: usize =
        decoder.parameters().iter().map(|(_, tensor)| tensor.size().iter().product::<i64>() as usize).sum();
    printer.data(&format!("parameters      {parameters}"));
    printer.data(&format!("layers          {}", decoder.layers()));
    printer.data(&format!("context length  {}", folder.config.context_length));
    printer.data(&format!("vocabulary      {}", folder.config.vocab_size));
    printer.data(&format!("end tokens      {:?}", folder.eos_token_ids));
    Ok(())
}
