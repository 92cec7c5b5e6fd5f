//! Ties a server to this process: a shell starts it, waits until its standard input is closed, which the system does
//! however this process ends, and then stops the server and deletes its folder. So nothing is left over, even after
//! SIGKILL.
//!
//! Not here: which server, and how it is configured.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::process::Pid;

use crate::folder;

/// `$1`: folder to delete. `$2`: the signal that ends the server at once. Then the command. Prints the id of the
/// server. A line of input names the signal that stops the server, and its folder stays. Continued first, since a
/// stopped process handles no signal.
const SCRIPT: &str = r#"
trap '' INT TERM HUP PIPE
folder=$1
last=$2
shift 2
"$@" </dev/null >>"$folder/log" 2>&1 &
server=$!
echo $server
exec >/dev/null 2>&1
if read -r signal; then
    kill -CONT $server
    kill -"$signal" $server
    wait $server
    exit 0
fi
kill -CONT $server
kill -"$last" $server
wait $server
rm -rf "$folder"
"#;

/// `$1`: folder of tables. `$2`: free space on their disk, in MiB. `$3` and `$4`: user and group. Then the command.
/// Run in a namespace of its own, so that the disk goes away with the server.
const ON_DISK: &str = r#"
set -e
tables=$1
size=$2
user=$3
group=$4
shift 4
cp -R -p "$tables" "$tables.copy"
own=$(du -s -m "$tables" | cut -f 1)
size=$((own + size))
mount -t tmpfs -o "size=${size}m,mode=700,uid=$user,gid=$group" none "$tables"
cp -R -p "$tables.copy/." "$tables"
exec setpriv --reuid="$user" --regid="$group" --clear-groups "$@"
"#;

/// A supervised server.
#[derive(Debug)]
pub(crate) struct Supervisor {
    shell: Child,
    pub(crate) server: Pid,
}

impl Supervisor {
    /// Starts a command with the folder `folder`, to whose file `log` it writes. `last`: the signal that ends it at
    /// once.
    pub(crate) fn start(folder: &Path, last: &str, command: &[&str]) -> Result<Self> {
        let mut shell = folder::command("sh");
        shell.args(["-c", SCRIPT, "sh"]).arg(folder).arg(last).args(command);
        Self::spawn(shell)
    }

    /// Like [`Supervisor::start`] for a PostgreSQL server whose tables are on a disk with this much free space, in MiB.
    pub(crate) fn start_on_disk(folder: &Path, mebibytes: u32, command: &[&str]) -> Result<Self> {
        let Some(user) = folder::user() else { bail!("only root can give a server a small disk") };
        let mut shell = folder::own_command("sh");
        shell.args(["-c", SCRIPT, "sh"]).arg(folder).arg("QUIT");
        shell.args(["unshare", "--mount", "sh", "-c", ON_DISK, "sh"]).arg(folder.join("data/base"));
        shell.args([mebibytes, user.uid, user.gid].map(|number| number.to_string())).args(command);
        Self::spawn(shell)
    }

    fn spawn(mut shell: Command) -> Result<Self> {
        // An own group, so that neither Ctrl-C nor who kills the group of the tests ends the supervisor early.
        shell.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().context("cannot start sh")?;
        let mut line = String::new();
        let output = shell.stdout.take().context("the output is piped")?;
        BufReader::new(output).read_line(&mut line)?;
        match line.trim().parse().ok().and_then(Pid::from_raw) {
            Some(server) => Ok(Self { shell, server }),
            None => bail!("the supervisor started no server: {line:?}"),
        }
    }

    /// Stops the server with a signal, waits for its end, and keeps its folder.
    pub(crate) fn stop(mut self, signal: &str) -> Result<()> {
        let mut input = self.shell.stdin.take().context("the input is piped")?;
        writeln!(input, "{signal}")?;
        self.shell.wait()?;
        Ok(())
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // Without effect after `stop`.
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// The command as texts.
pub(crate) fn words<'a>(program: &'a Path, arguments: &'a [String]) -> Result<Vec<&'a str>> {
    let program = program.to_str().with_context(|| format!("{} is not UTF-8", PathBuf::from(program).display()))?;
    Ok(std::iter::once(program).chain(arguments.iter().map(String::as_str)).collect())
}
