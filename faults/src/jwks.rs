//! An issuer of tokens whose keys are missing, slow, huge, elsewhere, rotated or without the requested key, under load:
//! unverifiable callers are refused in bounded time, and verified callers see no difference.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::check::Check;
use crate::gateway::{FAST_DEMO, Gateway};
use crate::tokens::{Answers, Issuer};
use crate::{Rig, http};

/// Every way to have no keys.
const BROKEN: [Answers; 7] = [
    Answers::Never,
    Answers::Slowly,
    Answers::Huge,
    Answers::Gone,
    Answers::Failing,
    Answers::Elsewhere,
    Answers::Garbage,
];
/// Clients that come at the same time while there are no keys.
const TOGETHER: usize = 50;
/// Clients of the load.
const CLIENTS: usize = 4;
/// Maximum time that a request waits for keys, with a margin for a busy machine.
const MAX_WAIT: f64 = 7.0;
/// Where forgers are: an address with many failures is refused for a while, whatever it shows.
const FORGERS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Minimum interval between two requests for keys.
const INTERVAL: Duration = Duration::from_secs(30);

const HEAD: &str = r#"
[server]
listen = "{{listen}}"
"#;

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let mut checks = never_read(rig)?;
    checks.extend(under_load(rig)?);
    Ok(checks)
}

fn start(rig: &Rig, issuer: &Issuer) -> Result<Gateway> {
    Gateway::start(rig, &format!("{HEAD}{FAST_DEMO}{}", issuer.settings()))
}

fn ask(address: SocketAddr, token: &str) -> Result<u16> {
    ask_from(Ipv4Addr::LOCALHOST, address, token)
}

fn ask_from(source: Ipv4Addr, address: SocketAddr, token: &str) -> Result<u16> {
    let bearer = format!("Bearer {token}");
    let request = http::request("GET", "/agents/demo/runs", &[("authorization", &bearer)], "");
    Ok(http::send_from(source, address, &request)?.status)
}

/// The outcome of requests while the keys were never read.
#[derive(Default)]
struct Outside {
    let_in: usize,
    /// Neither 503 nor 401.
    other: usize,
    slowest: f64,
    asked: u64,
    /// From the repair of the issuer to the first caller that is let in.
    recovered: f64,
    memory: f64,
}

/// Gateways that cannot read the keys when they start, one for each reason, all at the same time.
fn never_read(rig: &Rig) -> Result<Vec<Check>> {
    let all = thread::scope(|scope| {
        let every: Vec<_> = BROKEN.into_iter().map(|answers| scope.spawn(move || outside(rig, answers))).collect();
        every.into_iter().map(|one| one.join().map_err(|_| anyhow::anyhow!("a panic"))?).collect::<Result<Vec<_>>>()
    })?;
    let worst = |of: fn(&Outside) -> f64| all.iter().map(of).fold(0.0, f64::max);
    Ok(vec![
        Check::at_most("no keys yet: callers let in", all.iter().map(|one| one.let_in).sum::<usize>() as f64, 0.0, ""),
        Check::at_most("… answers but 503 and 401", all.iter().map(|one| one.other).sum::<usize>() as f64, 0.0, ""),
        Check::at_most("… slowest answer", worst(|one| one.slowest), MAX_WAIT, "s"),
        Check::at_most("… requests to the issuer", worst(|one| one.asked as f64), 2.0, ""),
        Check::at_most("… memory grown", worst(|one| one.memory), 8.0, "MiB"),
        Check::at_most("… from the repair to the first caller", worst(|one| one.recovered), 35.0, "s"),
    ])
}

fn outside(rig: &Rig, answers: Answers) -> Result<Outside> {
    let issuer = Issuer::start()?;
    issuer.answer(answers);
    let gateway = start(rig, &issuer)?;
    let (right, wrong, before) = (issuer.token("ann"), issuer.forged("ann", None)?, gateway.memory()?);
    let (right, wrong, address) = (right.as_str(), wrong.as_str(), gateway.address);
    let answered = thread::scope(|scope| {
        let clients: Vec<_> = (0..TOGETHER)
            .map(|number| {
                let (source, token) = if number % 2 == 0 { (Ipv4Addr::LOCALHOST, right) } else { (FORGERS, wrong) };
                scope.spawn(move || {
                    let started = Instant::now();
                    ask_from(source, address, token).map(|status| (status, started.elapsed().as_secs_f64()))
                })
            })
            .collect();
        clients.into_iter().map(|one| one.join().map_err(|_| anyhow::anyhow!("a panic"))?).collect::<Result<Vec<_>>>()
    })?;

    let mut seen = Outside { asked: issuer.asked(), ..Outside::default() };
    for (status, took) in answered {
        seen.let_in += usize::from(status == 200);
        seen.other += usize::from(!matches!(status, 200 | 401 | 503));
        seen.slowest = seen.slowest.max(took);
    }
    seen.memory = gateway.peak()?.saturating_sub(before) as f64 / f64::from(1 << 20);

    issuer.answer(Answers::Well);
    let repaired = Instant::now();
    while ask(address, right)? != 200 && repaired.elapsed() < INTERVAL * 2 {
        thread::sleep(Duration::from_millis(100));
    }
    seen.recovered = repaired.elapsed().as_secs_f64();
    ensure!(ask_from(FORGERS, address, wrong)? == 401, "{answers:?}: a forged token is not refused with 401");
    Ok(seen)
}

/// Counters of the load.
#[derive(Default)]
struct Load {
    answered: AtomicU64,
    /// Known callers that were not let in.
    failed: AtomicU64,
    /// Forged tokens that were let in.
    let_in: AtomicU64,
    tried: AtomicU64,
}

/// The issuer breaks, and rotates its keys, while known callers and forgers continue.
fn under_load(rig: &Rig) -> Result<Vec<Check>> {
    let issuer = Issuer::start()?;
    let gateway = start(rig, &issuer)?;
    let address = gateway.address;
    let first = issuer.token("ann");
    ensure!(ask(address, &first)? == 200, "a token is refused");
    let (load, over, old_is_valid) = (Load::default(), AtomicBool::new(false), AtomicBool::new(true));
    let started = Instant::now();

    let story = thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| known(address, &first, &load, &over, &old_is_valid));
            scope.spawn(|| forge(address, &issuer, &load, &over));
        }
        let story = rotate(address, &issuer, &first, &old_is_valid);
        over.store(true, Ordering::Relaxed);
        story
    })?;

    let number = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
    let fetches = started.elapsed().as_secs_f64() / INTERVAL.as_secs_f64() + 2.0;
    Ok(vec![
        Check::at_least("under load: requests of a known caller", number(&load.answered), 1000.0, ""),
        Check::at_most("… of them refused", number(&load.failed), 0.0, ""),
        Check::at_least("forged tokens", number(&load.tried), 200.0, ""),
        Check::at_most("… of them let in", number(&load.let_in), 0.0, ""),
        Check::at_most("requests to the issuer", issuer.asked() as f64, fetches, ""),
        Check::at_most("rotated: until a token by the new key counts", story.rotated, 35.0, "s"),
        Check::at_most("two keys: tokens without the id of a key let in", story.without_id, 0.0, ""),
        Check::at_most("replaced: until a token by the new key counts", story.replaced, 35.0, "s"),
        Check::at_most("replaced: until the old token is refused", story.withdrawn, 1.0, "s"),
    ])
}

struct Story {
    rotated: f64,
    without_id: f64,
    replaced: f64,
    withdrawn: f64,
}

fn rotate(address: SocketAddr, issuer: &Issuer, first: &str, old_is_valid: &AtomicBool) -> Result<Story> {
    for answers in BROKEN {
        issuer.answer(answers);
        thread::sleep(Duration::from_secs(2));
    }
    issuer.answer(Answers::Well);
    // Requests that are in progress with a broken issuer end first.
    thread::sleep(Duration::from_secs(6));

    issuer.rotate(2)?;
    let rotated = until(address, &issuer.token("bob"), 200)?;
    let without_id = f64::from(u8::from(ask(address, &issuer.token_without_id("eve"))? == 200));

    // The old key is withdrawn: its signatures are invalid as soon as the gateway reads the keys.
    old_is_valid.store(false, Ordering::Relaxed);
    issuer.rotate(1)?;
    let replaced = until(address, &issuer.token("bob"), 200)?;
    let withdrawn = until(address, first, 401)?;
    Ok(Story { rotated, without_id, replaced, withdrawn })
}

fn until(address: SocketAddr, token: &str, status: u16) -> Result<f64> {
    let started = Instant::now();
    while ask(address, token)? != status && started.elapsed() < INTERVAL * 2 {
        thread::sleep(Duration::from_millis(100));
    }
    Ok(started.elapsed().as_secs_f64())
}

/// A caller that was verified before everything that happens.
fn known(address: SocketAddr, token: &str, load: &Load, over: &AtomicBool, is_valid: &AtomicBool) {
    while !over.load(Ordering::Relaxed) && is_valid.load(Ordering::Relaxed) {
        let status = ask(address, token).unwrap_or(0);
        // The key may have been withdrawn meanwhile.
        if status == 200 {
            load.answered.fetch_add(1, Ordering::Relaxed);
        } else if is_valid.load(Ordering::Relaxed) {
            load.failed.fetch_add(1, Ordering::Relaxed);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Tokens by other keys: with the id of a key that exists, with one that does not, and each of them new.
fn forge(address: SocketAddr, issuer: &Issuer, load: &Load, over: &AtomicBool) {
    let mut number = 0;
    while !over.load(Ordering::Relaxed) {
        number += 1;
        let id = format!("key-unknown-{number}");
        let Ok(token) = issuer.forged("ann", (number % 2 == 0).then_some(id.as_str())) else { return };
        load.tried.fetch_add(1, Ordering::Relaxed);
        if ask_from(FORGERS, address, &token).unwrap_or(0) == 200 {
            load.let_in.fetch_add(1, Ordering::Relaxed);
        }
        thread::sleep(Duration::from_millis(20));
    }
}
