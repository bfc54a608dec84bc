//! Event files of TensorBoard: scalars and texts.
//!
//! The records are framed by `tensorboard-rs`'s record writer over a file of our own, since its event writer
//! panics where the disk is full, and its `add_text` is not implemented.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use protobuf::{Message, RepeatedField};
use tensorboard_proto::event::{Event, SessionLog, SessionLog_SessionStatus};
use tensorboard_proto::summary::{Summary, Summary_Value, SummaryMetadata, SummaryMetadata_PluginData};
use tensorboard_proto::tensor::TensorProto;
use tensorboard_proto::tensor_shape::{TensorShapeProto, TensorShapeProto_Dim};
use tensorboard_proto::types::DataType;
use tensorboard_rs::record_writer::RecordWriter;

use crate::metrics::MetricsError;

/// What names of event files begin with, here and in every other program that writes them.
pub(crate) const EVENT_FILE_PREFIX: &str = "events.out.tfevents.";

/// One event file, open for appending.
pub struct EventFile {
    path: PathBuf,
    file: File,
    writer: RecordWriter<File>,
}

impl EventFile {
    /// Creates a new file in `folder`.
    ///
    /// When `next_step` is not 0 the run goes on after an interruption: a session start at that step makes
    /// TensorBoard forget what an earlier file says about it and later ones.
    pub fn create(folder: &Path, next_step: u64) -> Result<Self, MetricsError> {
        let seconds = now().as_secs();
        let mut attempt = 0;
        let (path, file) = loop {
            let name = format!("{EVENT_FILE_PREFIX}{seconds:010}.drgym.{}.{attempt}", std::process::id());
            let path = folder.join(name);
            match File::options().write(true).create_new(true).open(&path) {
                Ok(file) => break (path, file),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => attempt += 1,
                Err(source) => return Err(MetricsError { path, source }),
            }
        };
        let handle = file.try_clone().map_err(|source| MetricsError { path: path.clone(), source })?;
        let mut events = Self { writer: RecordWriter::new(file), file: handle, path };
        let mut version = Event::new();
        version.set_file_version("brain.Event:2".into());
        events.write(version, 0)?;
        if next_step > 0 {
            let mut log = SessionLog::new();
            log.set_status(SessionLog_SessionStatus::START);
            let mut start = Event::new();
            start.set_session_log(log);
            events.write(start, next_step)?;
        }
        Ok(events)
    }

    /// One event with a value for each name. TensorBoard's scalars are f32.
    pub fn scalars(&mut self, step: u64, scalars: &[(String, f64)]) -> Result<(), MetricsError> {
        let values = scalars.iter().map(|(tag, number)| {
            let mut value = Summary_Value::new();
            value.set_tag(tag.clone());
            value.set_simple_value(*number as f32);
            value
        });
        self.write(summary_event(values.collect()), step)
    }

    /// A text, shown as Markdown by TensorBoard's text plugin: a string tensor of shape `[1]`.
    pub fn text(&mut self, step: u64, tag: &str, text: &str) -> Result<(), MetricsError> {
        let mut dimension = TensorShapeProto_Dim::new();
        dimension.set_size(1);
        let mut shape = TensorShapeProto::new();
        shape.set_dim(RepeatedField::from_vec(vec![dimension]));
        let mut tensor = TensorProto::new();
        tensor.set_dtype(DataType::DT_STRING);
        tensor.set_tensor_shape(shape);
        tensor.set_string_val(RepeatedField::from_vec(vec![text.as_bytes().to_vec()]));
        let mut plugin = SummaryMetadata_PluginData::new();
        plugin.set_plugin_name("text".into());
        let mut metadata = SummaryMetadata::new();
        metadata.set_plugin_data(plugin);
        let mut value = Summary_Value::new();
        value.set_tag(tag.to_owned());
        value.set_metadata(metadata);
        value.set_tensor(tensor);
        self.write(summary_event(vec![value]), step)
    }

    /// Brings the events to the disk.
    pub fn sync(&mut self) -> Result<(), MetricsError> {
        self.file.sync_all().map_err(|source| MetricsError { path: self.path.clone(), source })
    }

    fn write(&mut self, mut event: Event, step: u64) -> Result<(), MetricsError> {
        event.set_wall_time(now().as_secs_f64());
        event.set_step(i64::try_from(step).unwrap_or(i64::MAX));
        let failed = |source| MetricsError { path: self.path.clone(), source };
        let bytes = event.write_to_bytes().map_err(|error| failed(std::io::Error::other(error)))?;
        self.writer.write(&bytes).map_err(failed)
    }
}

fn summary_event(values: Vec<Summary_Value>) -> Event {
    let mut summary = Summary::new();
    summary.set_value(RepeatedField::from_vec(values));
    let mut event = Event::new();
    event.set_summary(summary);
    event
}

fn now() -> std::time::Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
