//! `drgym config`.

use crate::arguments::ConfigCommand;
use crate::config::Config;
use crate::failure::Outcome;
use crate::printer::Printer;

/// Checks, shows or describes configuration files. Starts nothing.
pub fn run(command: ConfigCommand, printer: Printer) -> Outcome {
    match command {
        ConfigCommand::Check(source) => {
            Config::read(Some(&source.config), &source.set)?;
            printer.say(&format!("{} is in order", source.config.display()));
            Ok(())
        }
        ConfigCommand::Show(source) => {
            let config = Config::read(Some(&source.config), &source.set)?;
            printer.data(config.to_toml()?.trim_end());
            Ok(())
        }
        ConfigCommand::Schema => printer.json(&Config::schema()),
    }
}
