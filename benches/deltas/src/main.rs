//! Reads or writes deltas of one protocol, for `cargo xtask bench instructions`, which runs it under callgrind.
//!
//! ```text
//! delta-rig list                  the names of all subjects, one per line
//! delta-rig SUBJECT COUNT         reads or writes COUNT deltas of each text after 1,000 others
//! ```
//!
//! A subject is `read PROTOCOL` or `write PROTOCOL` with its form, as `list` prints it.

use anyhow::{Context, Result, bail};
use delta_rig::connectors::{self, Reading};
use delta_rig::encoders::{self, StreamedRequest, record};
use interlingua_core_testkit::Recorder;
use interlingua_testing_agents::delta_cost::TEXTS;

/// Deltas before those that are counted, so that buffers have their size.
const FIRST: usize = 1000;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["list"] => {
            for (protocol, _) in connectors::all() {
                println!("read {protocol}");
            }
            for stream in encoders::all() {
                println!("{}", name_of(&stream));
            }
            Ok(())
        }
        [subject, count] => run(subject, count.parse().context("COUNT is not a number")?),
        _ => bail!("usage: delta-rig list | SUBJECT COUNT"),
    }
}

fn name_of(stream: &StreamedRequest) -> String {
    format!("write {} {}", stream.protocol, stream.form.name).trim_end().to_owned()
}

fn run(subject: &str, count: usize) -> Result<()> {
    if let Some(protocol) = subject.strip_prefix("read ") {
        let all = connectors::all();
        let (_, connector) = all.iter().find(|(name, _)| *name == protocol).context("unknown protocol")?;
        for text in TEXTS {
            let mut sink = Recorder::new(Vec::new());
            Reading::begin(protocol, &**connector, text, [FIRST, count], &mut sink).read_on(&mut sink);
        }
        return Ok(());
    }

    let stream = encoders::all().into_iter().find(|stream| name_of(stream) == subject).context("unknown subject")?;
    for kind in stream.form.deltas_of {
        for text in TEXTS {
            let record = record(*kind, text, FIRST + count);
            stream.begin(&record, count as u64).write_on();
        }
    }
    Ok(())
}
