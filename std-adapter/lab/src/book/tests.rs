use std::io;
use std::sync::{Arc, Mutex};

use super::*;

/// Books that can be looked into, and whose disk can be full.
#[derive(Default, Clone)]
struct Paper(Arc<Mutex<Written>>);

#[derive(Default)]
struct Written {
    leases: BTreeMap<String, Lease>,
    rigs: BTreeMap<String, Health>,
    is_full: bool,
    /// The agent dies at its next write: behind it, or before it.
    dies: Option<bool>,
}

impl Books for Paper {
    fn write(&mut self, changes: &[Change]) -> io::Result<()> {
        let mut written = self.0.lock().unwrap();
        if written.is_full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if written.dies == Some(false) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        for change in changes {
            match change {
                Change::Lease(lease) => drop(written.leases.insert(lease.id.clone(), lease.clone())),
                Change::End(id) => drop(written.leases.remove(id)),
                Change::Rig(name, health) => drop(written.rigs.insert(name.clone(), health.clone())),
                Change::Log(_) => {}
            }
        }
        Ok(())
    }

    fn log(&self, _: usize) -> io::Result<Vec<Entry>> {
        Ok(Vec::new())
    }
}

impl Paper {
    fn kept(&self) -> Kept {
        let written = self.0.lock().unwrap();
        Kept {
            leases: written.leases.values().cloned().collect(),
            rigs: written.rigs.iter().map(|(name, health)| (name.clone(), health.clone())).collect(),
        }
    }
}

fn holder() -> Holder {
    Holder { user: "ann".into(), uid: 1000, process: Process::this(), purpose: String::new() }
}

pub(crate) fn a_lease(id: &str) -> Lease {
    Lease {
        id: id.into(),
        request: format!("request of {id}"),
        rigs: vec!["pico1".into()],
        holder: holder(),
        keeper: None,
        since: 0,
        boot: "boot".into(),
        deadline: 60_000,
        idle: 0,
        is_raw: false,
    }
}

fn spec(name: &str, tag: &str, shares: &[&str]) -> Spec {
    Spec {
        name: name.into(),
        tags: BTreeMap::from([("board".to_owned(), tag.to_owned())]),
        shares: shares.iter().map(|&share| share.into()).collect(),
        check: false,
        ..Spec::unlisted("sim")
    }
}

/// A lab with rigs `pico1` to `pico3`, and `nano1`; the last two share a supply.
fn lab() -> (Lab, Paper) {
    let paper = Paper::default();
    let mut lab = Lab::new(Box::new(paper.clone()), None, false, "boot", 0);
    let rigs = [
        spec("pico1", "pico", &[]),
        spec("pico2", "pico", &[]),
        spec("pico3", "pico", &["psu1"]),
        spec("nano1", "nano", &["psu1"]),
    ];
    lab.set_rigs(rigs.into(), 0);
    lab.tick(0);
    (lab, paper)
}

fn want(request: &str, selector: &str) -> LeaseRequest {
    LeaseRequest {
        request: request.into(),
        selectors: vec![selector.parse().unwrap()],
        count: 1,
        wait: Some(600_000),
        since: 0,
        ttl: 60_000,
        idle: 0,
        is_raw: false,
        holder: holder(),
    }
}

/// The last message to the connection `conn`, without its places.
fn told(lab: &mut Lab, conn: u64) -> Option<(&'static str, Value)> {
    let mut last = None;
    lab.effects.retain(|effect| match effect {
        Effect::Tell { conn: to, method, params } if *to == conn => {
            if *method != "place" {
                last = Some((*method, params.clone()));
            }
            false
        }
        _ => true,
    });
    last
}

/// The rigs that are to be checked, each of which then answers.
fn answer_checks(lab: &mut Lab, now: BootTime) -> Vec<String> {
    let mut names = Vec::new();
    lab.effects.retain(|effect| match effect {
        Effect::Check { rig, .. } => {
            names.push(rig.clone());
            false
        }
        _ => true,
    });
    for name in &names {
        lab.record_check(name, Ok(Some("rig 1.0.0".into())), now);
    }
    names
}

/// Asks and confirms.
fn get(lab: &mut Lab, conn: u64, ask: LeaseRequest, now: BootTime) -> Lease {
    let request = ask.request.clone();
    lab.ask(conn, ask, now).unwrap();
    lab.confirm(conn, &request, 1000, now).unwrap()
}

#[test]
fn a_rig_has_one_holder_and_the_next_gets_it_when_it_is_safe() {
    let (mut lab, paper) = lab();
    let first = get(&mut lab, 1, want("a", "rig:pico1"), 0);
    assert_eq!(paper.kept().leases, std::slice::from_ref(&first));
    lab.ask(2, want("b", "rig:pico1"), 1).unwrap();
    assert_eq!(told(&mut lab, 2), None);
    lab.end(&first.id, "released", "ann", 2);
    assert!(paper.kept().leases.is_empty());
    // Not before it was made safe.
    assert_eq!(told(&mut lab, 2), None);
    assert_eq!(answer_checks(&mut lab, 3), ["pico1"]);
    assert_eq!(told(&mut lab, 2).unwrap().0, "offer");
    assert_eq!(lab.confirm(2, "b", 1000, 4).unwrap().rigs, ["pico1"]);
    assert_eq!(lab.faults(), [""; 0]);
}

#[test]
fn the_same_request_gets_the_same_lease() {
    let (mut lab, _) = lab();
    let lease = get(&mut lab, 1, want("a", "rig:pico1"), 0);
    assert_eq!(lab.ask(2, want("a", "rig:pico1"), 1), Ok(LeaseReply::Granted(Box::new(lease.clone()))));
    assert_eq!(lab.confirm(2, "a", 1000, 2), Ok(lease));
    let other = LeaseRequest { holder: Holder { uid: 1001, ..holder() }, ..want("a", "rig:pico1") };
    assert_eq!(lab.ask(3, other, 1).unwrap_err().code, 3);
}

#[test]
fn an_offer_that_nobody_confirms_goes_to_the_next_and_the_third_time_its_place_is_gone() {
    let (mut lab, _) = lab();
    lab.ask(1, want("paused", "rig:pico1"), 0).unwrap();
    lab.ask(2, want("next", "rig:pico1"), 0).unwrap();
    assert_eq!(told(&mut lab, 1).unwrap().0, "offer");
    lab.tick(CONFIRM - 1);
    assert_eq!(told(&mut lab, 2), None);
    lab.tick(CONFIRM);
    assert_eq!(told(&mut lab, 2).unwrap().0, "offer");
    assert_eq!(lab.confirm(1, "paused", 1000, CONFIRM), Err(Refusal::late()));
    let lease = lab.confirm(2, "next", 1000, CONFIRM + 1).unwrap();
    lab.end(&lease.id, "released", "ann", CONFIRM + 2);
    let mut now = 2 * CONFIRM;
    answer_checks(&mut lab, now);
    let mut offers = 1;
    for _ in 0..20 {
        match told(&mut lab, 1) {
            Some(("offer", _)) => offers += 1,
            Some(("refused", why)) => {
                assert_eq!((offers, why["code"].as_u64()), (3, Some(3)));
                return;
            }
            _ => {}
        }
        now = lab.due().unwrap().max(now);
        lab.tick(now);
    }
    panic!("it was never refused");
}

#[test]
fn three_who_want_one_of_three_get_three() {
    let (mut lab, _) = lab();
    let mut rigs: Vec<String> =
        ["a", "b", "c"].iter().flat_map(|name| get(&mut lab, 1, want(name, "rig:board=pico"), 0).rigs).collect();
    rigs.sort();
    assert_eq!(rigs, ["pico1", "pico2", "pico3"]);
}

#[test]
fn several_rigs_are_granted_all_or_none_and_are_not_starved_by_those_behind() {
    let (mut lab, _) = lab();
    let one = get(&mut lab, 1, want("one", "rig:pico2"), 0);
    lab.ask(2, LeaseRequest { count: 3, ..want("all", "rig:board=pico") }, 1).unwrap();
    // pico1 is free, and kept for the one in front.
    lab.ask(3, want("behind", "rig:pico1"), 2).unwrap();
    assert_eq!((told(&mut lab, 2), told(&mut lab, 3)), (None, None));
    lab.end(&one.id, "released", "ann", 3);
    answer_checks(&mut lab, 4);
    assert_eq!(told(&mut lab, 2).unwrap().1["rigs"], json!(["pico1", "pico2", "pico3"]));
    assert_eq!(lab.confirm(2, "all", 1000, 5).unwrap().rigs.len(), 3);
}

#[test]
fn of_rigs_that_share_a_part_one_is_used() {
    let (mut lab, _) = lab();
    let nano = get(&mut lab, 1, want("nano", "rig:nano1"), 0);
    lab.ask(2, want("pico", "rig:pico3"), 1).unwrap();
    assert_eq!(told(&mut lab, 2), None);
    let now = LeaseRequest { wait: None, ..want("now", "rig:pico3") };
    lab.ask(3, now, 1).unwrap();
    assert_eq!(told(&mut lab, 3).unwrap().1["code"], 3);
    lab.end(&nano.id, "released", "ann", 2);
    answer_checks(&mut lab, 3);
    assert_eq!(told(&mut lab, 2).unwrap().0, "offer");
}

#[test]
fn what_nothing_can_match_is_refused_at_once_as_usage() {
    let (mut lab, _) = lab();
    for (ask, why) in [
        (want("a", "rig:board=stm32"), "the nearest tags: board=nano, board=pico"),
        (want("a", "rig:pico9"), "the nearest rigs: pico1, pico2, pico3, nano1"),
        (LeaseRequest { count: 4, ..want("a", "rig:board=pico") }, "4 rigs are wanted, and 3 match"),
        (LeaseRequest { count: 0, ..want("a", "rig:board=pico") }, "0 rigs are wanted"),
    ] {
        let refusal = lab.ask(1, ask, 0).unwrap_err();
        assert!(refusal.code == 2 && refusal.why.contains(why), "{refusal:?}");
    }
}

#[test]
fn who_does_not_wait_is_told_who_has_it_and_who_waits_too_long_gets_124() {
    let (mut lab, _) = lab();
    get(&mut lab, 1, want("a", "rig:pico1"), 0);
    lab.ask(2, LeaseRequest { wait: None, ..want("b", "rig:pico1") }, 0).unwrap();
    let (method, params) = told(&mut lab, 2).unwrap();
    assert_eq!((method, params["code"].as_u64()), ("refused", Some(3)));
    assert!(params["why"].as_str().unwrap().contains("ann (process "), "{params}");
    // A wait of no time gets what is free, too.
    get(&mut lab, 4, LeaseRequest { wait: Some(0), ..want("free", "rig:pico2") }, 0);
    lab.ask(3, LeaseRequest { wait: Some(1000), ..want("c", "rig:pico1") }, 0).unwrap();
    assert_eq!(lab.due(), Some(1000));
    lab.tick(999);
    assert_eq!(told(&mut lab, 3), None);
    lab.tick(1000);
    assert_eq!(told(&mut lab, 3).unwrap().1["code"], 124);
}

#[test]
fn a_lease_ends_by_its_time_by_silence_and_by_idleness() {
    let (mut lab, _) = lab();
    let by_time = get(&mut lab, 1, LeaseRequest { ttl: 1000, ..want("a", "rig:pico1") }, 0);
    let by_idleness = get(&mut lab, 1, LeaseRequest { idle: 2000, ..want("b", "rig:pico2") }, 0);
    let by_silence = get(&mut lab, 1, want("c", "rig:pico3"), 0);
    assert_eq!(lab.due(), Some(1000));
    // Exactly then, also if nobody has looked.
    assert!(lab.usable(&by_time.id, 1000, 999).is_ok());
    let refusal = lab.usable(&by_time.id, 1000, 1000).unwrap_err();
    assert_eq!(refusal.code, 3);
    lab.tick(1000);
    let refusal = lab.renew(&by_time.id, 1000, 1001).unwrap_err();
    assert!(refusal.why.contains("by the agent at ") && refusal.why.ends_with("its time is over"), "{refusal:?}");
    lab.heartbeats().record_use(&by_idleness.id, 1000, 1500).unwrap();
    lab.renew(&by_silence.id, 1000, 5000).unwrap();
    lab.tick(3499);
    assert!(lab.renew(&by_idleness.id, 1000, 3499).is_ok());
    lab.tick(3500);
    assert!(lab.renew(&by_idleness.id, 1000, 3500).unwrap_err().why.contains("idle for 2 s"));
    lab.tick(5000 + SILENCE - 1);
    assert!(lab.usable(&by_silence.id, 1000, 6000).is_ok());
    lab.tick(5000 + SILENCE);
    assert!(lab.renew(&by_silence.id, 1000, 0).unwrap_err().why.contains("silent for 30 s"));
}

#[test]
fn a_full_disk_grants_nothing() {
    let (mut lab, paper) = lab();
    paper.0.lock().unwrap().is_full = true;
    lab.ask(1, want("a", "rig:pico1"), 0).unwrap();
    let refusal = lab.confirm(1, "a", 1000, 1).unwrap_err();
    assert!(refusal.code == 3 && refusal.why.contains("cannot write its books"), "{refusal:?}");
    assert_eq!(lab.faults(), [""; 0]);
    paper.0.lock().unwrap().is_full = false;
    get(&mut lab, 1, want("b", "rig:pico1"), 2);
}

#[test]
fn what_a_full_disk_did_not_take_is_written_before_the_next_lease_is_granted() {
    let (mut lab, paper) = lab();
    let first = get(&mut lab, 1, want("a", "rig:pico1"), 0);
    paper.0.lock().unwrap().is_full = true;
    lab.end(&first.id, "released", "ann", 1);
    lab.quarantine("pico2", Some("bent"), "ann", 1).unwrap();
    lab.quarantine("pico2", Some("bent twice"), "ann", 1).unwrap();
    paper.0.lock().unwrap().is_full = false;
    answer_checks(&mut lab, 2);
    let second = get(&mut lab, 1, want("b", "rig:pico1"), 2);
    let kept = paper.kept();
    assert_eq!(kept.leases, [second]);
    let health = kept.rigs.iter().find(|(name, _)| name == "pico2").map(|(_, health)| health.reason.clone());
    assert_eq!(health, Some(Some("bent twice".to_owned())));
}

#[test]
fn an_agent_that_has_stood_still_takes_no_lease_and_no_offer_for_that_and_forgives_it_once() {
    let (mut lab, _) = lab();
    let lease = get(&mut lab, 1, want("a", "rig:pico1"), 0);
    lab.ask(2, want("b", "rig:pico2"), 0).unwrap();
    // It wakes up a minute later, and has heard nobody since.
    let now = 60_000;
    lab.spare(now - 1);
    lab.tick(now - 1);
    assert_eq!(lab.confirm(2, "b", 1000, now).map(|lease| lease.rigs), Ok(vec!["pico2".to_owned()]));
    // Its time is another matter.
    assert!(lab.usable(&lease.id, 1000, now).unwrap_err().why.contains("the time of the lease is over"));
    let other = get(&mut lab, 1, LeaseRequest { ttl: 600_000, ..want("c", "rig:pico3") }, now);
    lab.spare(now + SILENCE);
    lab.tick(now + SILENCE);
    assert!(lab.usable(&other.id, 1000, now + SILENCE).is_ok());
    lab.spare(now + SILENCE + 9999);
    lab.tick(now + SILENCE + 10_000);
    assert!(lab.usable(&other.id, 1000, now + SILENCE + 10_000).unwrap_err().why.contains("silent for 30 s"));
    // One that was heard is spared again.
    answer_checks(&mut lab, 190_000);
    let third = get(&mut lab, 1, LeaseRequest { ttl: 600_000, ..want("d", "rig:nano1") }, 200_000);
    for round in 1..4 {
        let now = 200_000 + round * 40_000;
        lab.spare(now);
        lab.tick(now);
        lab.renew(&third.id, 1000, now).unwrap();
    }
}

#[test]
fn an_offer_begins_when_it_is_told_and_not_before_a_slow_disk_has_written() {
    let (mut lab, _) = lab();
    lab.ask(1, want("a", "rig:pico1"), 0).unwrap();
    lab.freshen(5000);
    assert_eq!(told(&mut lab, 1).unwrap().1["until"], 5000 + CONFIRM);
    lab.tick(5000 + CONFIRM - 1);
    assert!(lab.confirm(1, "a", 1000, 5000 + CONFIRM - 1).is_ok());
}

#[test]
fn a_holder_is_heard_beside_the_books_and_nothing_passes_by_a_lease_that_has_ended() {
    let (mut lab, paper) = lab();
    let lease = get(&mut lab, 1, LeaseRequest { ttl: 600_000, ..want("a", "rig:pico1") }, 0);
    let heartbeats = lab.heartbeats();
    heartbeats.renew(&lease.id, 1000, 20_000).unwrap();
    assert!(heartbeats.renew(&lease.id, 1001, 20_000).is_err() && heartbeats.record_use(&lease.id, 1001, 1).is_err());
    lab.tick(20_000 + SILENCE - 1);
    assert!(heartbeats.record_use(&lease.id, 1000, 20_000).is_ok());
    paper.0.lock().unwrap().is_full = true;
    lab.end(&lease.id, "released", "ann", 20_001);
    let why = heartbeats.record_use(&lease.id, 1000, 20_002).unwrap_err().why;
    assert!(why.contains("by ann at ") && why.ends_with("released"), "{why}");
}

#[test]
fn nobody_gets_in_front_by_saying_that_they_have_waited_except_after_a_start_of_the_agent() {
    let (mut lab, _) = lab();
    let lease = get(&mut lab, 9, want("a", "rig:pico1"), 0);
    lab.ask(1, LeaseRequest { since: BELIEVED, ..want("first", "rig:pico1") }, BELIEVED).unwrap();
    lab.ask(2, LeaseRequest { since: 1, ..want("second", "rig:pico1") }, BELIEVED + 1).unwrap();
    lab.end(&lease.id, "released", "ann", BELIEVED + 2);
    answer_checks(&mut lab, BELIEVED + 2);
    assert_eq!((told(&mut lab, 1).map(|told| told.0), told(&mut lab, 2)), (Some("offer"), None));
}

#[test]
fn a_thousand_who_wait_keep_the_agent_from_nothing() {
    let (mut lab, _) = lab();
    let lease = get(&mut lab, 9999, LeaseRequest { ttl: 600_000, ..want("a", "rig:pico1") }, 0);
    let selectors = ["rig:pico1", "rig:nano1", "rig:board=pico"];
    let started = std::time::Instant::now();
    for number in 0..1000 {
        let selector = selectors[usize::try_from(number % 3).unwrap()];
        // Of one that wants all three at once, nobody behind gets any.
        let count = if selector == "rig:board=pico" { 3 } else { 1 };
        lab.ask(number, LeaseRequest { count, ..want(&number.to_string(), selector) }, 1).unwrap();
    }
    let refusal = lab.ask(2000, want("one too many", "rig:pico1"), 1).unwrap_err();
    assert!(refusal.why.contains("1000 requests of ann wait already"), "{refusal:?}");
    let other = Holder { user: "bob".into(), uid: 2000, ..holder() };
    assert!(lab.ask(2000, LeaseRequest { holder: other, ..want("another's", "rig:pico1") }, 1).is_ok());
    for now in 2..22 {
        lab.tick(now);
    }
    lab.end(&lease.id, "released", "ann", 30);
    answer_checks(&mut lab, 31);
    // Some thousand passes over the queue: a pass that compares all with all takes minutes.
    assert!(started.elapsed() < std::time::Duration::from_secs(30), "{:?}", started.elapsed());
    assert_eq!(lab.faults(), [""; 0]);
}

#[test]
fn after_a_crash_living_holders_go_on_and_others_end() {
    let (mut lab, paper) = lab();
    let living = get(&mut lab, 1, want("a", "rig:pico1"), 0);
    let gone = Process { pid: u32::MAX - 1, started: 1 };
    let dead = LeaseRequest { holder: Holder { process: gone, ..holder() }, ..want("b", "rig:pico2") };
    let dead = get(&mut lab, 2, dead, 0);
    let mut after = Lab::new(Box::new(paper.clone()), Some(paper.kept()), true, "boot", 100);
    assert!(after.usable(&living.id, 1000, 100).is_ok());
    assert!(after.usable(&dead.id, 1000, 100).unwrap_err().why.contains("while no agent ran"));
    assert_eq!(after.faults(), [""; 0]);
    assert_eq!(answer_checks(&mut after, 101), ["pico2"]);
    // After a start of the machine all have ended.
    let mut rebooted = Lab::new(Box::new(paper.clone()), Some(paper.kept()), true, "another boot", 5);
    assert!(rebooted.usable(&living.id, 1000, 6).unwrap_err().why.contains("started again"));
    assert_eq!(answer_checks(&mut rebooted, 7), ["pico1"]);
}

#[test]
fn holders_tell_their_leases_to_an_agent_that_has_lost_its_books() {
    let lease = a_lease("one");
    let mut lab = Lab::new(Box::new(Paper::default()), None, true, "boot", 0);
    lab.set_rigs(vec![spec("pico1", "pico", &[])], 0);
    // Nothing is granted before they had the time for it.
    lab.ask(1, want("a", "rig:pico1"), 0).unwrap();
    assert_eq!(told(&mut lab, 1), None);
    assert!(lab.attach(2, "one", None, Some(lease.clone()), 1001, 10).is_err());
    assert_eq!(lab.attach(2, "one", None, Some(lease.clone()), 1000, 10), Ok(lease.clone()));
    lab.tick(RETURN);
    assert_eq!(told(&mut lab, 1), None);
    lab.end("one", "released", "ann", RETURN + 1);
    answer_checks(&mut lab, RETURN + 2);
    assert_eq!(told(&mut lab, 1).unwrap().0, "offer");
    // What has ended does not come back, nor does anything later.
    assert!(lab.attach(2, "one", None, Some(lease), 1000, RETURN + 3).is_err());
    assert!(lab.attach(2, "two", None, Some(a_lease("two")), 1000, RETURN + 3).is_err());
}

#[test]
fn who_was_in_front_before_a_crash_is_so_after_it() {
    let paper = Paper::default();
    paper.0.lock().unwrap().leases.insert("one".into(), a_lease("one"));
    let mut lab = Lab::new(Box::new(paper.clone()), Some(paper.kept()), true, "boot", 5000);
    lab.set_rigs(vec![spec("pico1", "pico", &[])], 5000);
    lab.ask(2, LeaseRequest { since: 4000, ..want("second", "rig:pico1") }, 5001).unwrap();
    lab.ask(1, LeaseRequest { since: 3000, ..want("first", "rig:pico1") }, 5002).unwrap();
    lab.end("one", "released", "ann", 5003);
    answer_checks(&mut lab, 5004);
    lab.tick(5000 + RETURN);
    assert_eq!((told(&mut lab, 1).map(|told| told.0), told(&mut lab, 2)), (Some("offer"), None));
}

#[test]
fn a_place_dies_with_its_connection_and_its_offer_goes_to_the_next() {
    let (mut lab, _) = lab();
    lab.ask(1, want("a", "rig:pico1"), 0).unwrap();
    lab.ask(2, want("b", "rig:pico1"), 0).unwrap();
    assert_eq!(told(&mut lab, 1).unwrap().0, "offer");
    lab.disconnected(1, 1);
    assert_eq!(told(&mut lab, 2).unwrap().0, "offer");
    assert_eq!(lab.faults(), [""; 0]);
}

#[test]
fn a_lease_whose_holder_has_ended_keeps_nobody_from_the_rig_although_its_connection_seems_open() {
    let (mut lab, _) = lab();
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let process = Process::of(child.id()).unwrap();
    lab.ask(1, LeaseRequest { holder: Holder { process, ..holder() }, ..want("a", "rig:pico1") }, 0).unwrap();
    lab.confirm(1, "a", 1000, 0).unwrap();
    lab.ask(2, LeaseRequest { wait: None, ..want("b", "rig:pico1") }, 1).unwrap();
    assert_eq!(told(&mut lab, 2).unwrap().0, "refused");
    child.kill().unwrap();
    child.wait().unwrap();
    lab.ask(2, LeaseRequest { wait: None, ..want("c", "rig:pico1") }, 2).unwrap();
    answer_checks(&mut lab, 3);
    assert_eq!(told(&mut lab, 2).unwrap().0, "offer");
    assert_eq!(lab.faults(), [""; 0]);
}

#[test]
fn a_bad_rig_comes_back_after_two_good_answers_and_one_that_flaps_does_not() {
    let (mut lab, paper) = lab();
    let mut now = 0;
    for round in 1..=4 {
        lab.check_now(Some("pico1")).unwrap();
        lab.effects.clear();
        lab.record_check("pico1", Err(Fault::Bad("no answer".into())), now);
        lab.ask(1, want(&format!("r{round}"), "rig:pico1"), now).unwrap();
        if round == 4 {
            break;
        }
        assert_eq!(told(&mut lab, 1), None);
        // Tried at 10 s: bad again; at 30 s more: good, and good.
        now += 10_000;
        lab.tick(now);
        lab.effects.clear();
        lab.record_check("pico1", Err(Fault::Bad("no answer".into())), now);
        lab.tick(now + 29_999);
        assert!(!lab.effects.iter().any(|effect| matches!(effect, Effect::Check { .. })));
        now += 30_000;
        lab.tick(now);
        assert_eq!(answer_checks(&mut lab, now), ["pico1"]);
        assert_eq!(told(&mut lab, 1), None);
        now += 10_000;
        lab.tick(now);
        assert_eq!(answer_checks(&mut lab, now), ["pico1"]);
        assert_eq!(told(&mut lab, 1).unwrap().0, "offer", "{round}");
        lab.cancel(&format!("r{round}"), 1000, now);
    }
    let (method, params) = told(&mut lab, 1).unwrap();
    assert_eq!((method, params["code"].as_u64()), ("refused", Some(3)));
    assert!(params["why"].as_str().unwrap().contains("--clear"), "{params}");
    // It is known after the agent's end, too.
    let again = Lab::new(Box::new(paper.clone()), Some(paper.kept()), true, "boot", now);
    assert_eq!(again.status(Some("pico1"), now).unwrap()["rigs"][0]["flapping"], true);
    lab.quarantine("pico1", None, "ann", now).unwrap();
    answer_checks(&mut lab, now);
    assert_eq!(get(&mut lab, 1, want("at last", "rig:pico1"), now).rigs, ["pico1"]);
}

#[test]
fn a_rig_that_a_stranger_uses_comes_back_when_the_stranger_ends_and_does_not_flap() {
    let (mut lab, _) = lab();
    for _ in 0..10 {
        lab.check_now(Some("pico1")).unwrap();
        lab.effects.clear();
        lab.record_check("pico1", Err(Fault::Busy("it is open in process 7".into())), 0);
        lab.ask(1, LeaseRequest { wait: None, ..want("a", "rig:pico1") }, 0).unwrap();
        assert!(told(&mut lab, 1).unwrap().1["why"].as_str().unwrap().contains("process 7"));
        lab.tick(10_000);
        assert_eq!(answer_checks(&mut lab, 10_000), ["pico1"]);
    }
    assert_eq!(get(&mut lab, 1, want("b", "rig:pico1"), 10_000).rigs, ["pico1"]);
}

#[test]
fn a_broken_lease_tells_its_holder_who_why_and_when() {
    let (mut lab, _) = lab();
    let lease = get(&mut lab, 7, want("a", "rig:pico1"), 0);
    lab.break_lease("pico1", "the fire alarm", "bob", None, 1).unwrap();
    let (method, params) = told(&mut lab, 7).unwrap();
    assert_eq!((method, &params["by"], &params["why"]), ("ended", &json!("bob"), &json!("the fire alarm")));
    assert!(lab.usable(&lease.id, 1000, 2).unwrap_err().why.contains("by bob at "));
    assert!(lab.effects.iter().any(|effect| matches!(effect, Effect::Close { .. })));
    assert_eq!(lab.break_lease("pico1", "again", "bob", None, 3).unwrap_err().code, 3);
}

#[test]
fn what_is_another_users_is_theirs() {
    let (mut lab, _) = lab();
    let lease = get(&mut lab, 1, want("a", "rig:pico1"), 0);
    // The names of requests are no secret: the status has them.
    for (what, refused) in [
        ("confirm", lab.confirm(2, "a", 2000, 1).err()),
        (
            "ask",
            lab.ask(2, LeaseRequest { holder: Holder { uid: 2000, ..holder() }, ..want("a", "rig:pico1") }, 1).err(),
        ),
        ("renew", lab.renew(&lease.id, 2000, 1).err()),
        ("use", lab.usable(&lease.id, 2000, 1).err()),
        ("attach", lab.attach(2, &lease.id, None, None, 2000, 1).err()),
        ("break", lab.break_lease("pico1", "mine now", "bob", Some(2000), 1).err()),
    ] {
        assert_eq!(refused.map(|refusal| refusal.code), Some(3), "{what}");
    }
    lab.ask(3, want("b", "rig:pico1"), 2).unwrap();
    lab.cancel("b", 2000, 3);
    assert_eq!(lab.queue.len(), 1);
    lab.cancel("b", 1000, 4);
    assert_eq!(lab.queue.len(), 0);
    // One's own lease needs no administrator.
    lab.break_lease("pico1", "I am done", "ann", Some(1000), 5).unwrap();
}

#[test]
fn a_rig_is_brought_back_a_few_times_and_by_nothing_else_than_its_list_says() {
    let (mut lab, _) = lab();
    let recover = vec!["power-cycle".to_owned(), "pico1".to_owned()];
    lab.set_rigs(vec![Spec { recover: recover.clone(), check: true, ..spec("pico1", "pico", &[]) }], 0);
    let mut now = 0;
    let mut tried = Vec::new();
    let _ = lab.check_now(None);
    for _ in 0..6 {
        let checks: Vec<Vec<String>> = lab
            .effects
            .drain(..)
            .filter_map(|effect| match effect {
                Effect::Check { recover, .. } => Some(recover),
                _ => None,
            })
            .collect();
        tried.extend(checks);
        lab.record_check("pico1", Err(Fault::Bad("silent".into())), now);
        now = lab.due().unwrap();
        lab.tick(now);
    }
    let none = Vec::new();
    // Not before it is known that it does not answer, and not for ever.
    assert_eq!(tried, [&none, &recover, &recover, &recover, &none, &none].map(Vec::clone));
}

#[test]
fn a_lease_is_no_longer_than_its_rigs_allow() {
    let (mut lab, _) = lab();
    lab.set_rigs(
        vec![Spec { longest: Some("10s".into()), ..spec("pico1", "pico", &[]) }, spec("pico2", "pico", &[])],
        0,
    );
    assert_eq!(get(&mut lab, 1, want("a", "rig:pico1"), 5).deadline, 10_005);
    assert_eq!(get(&mut lab, 1, want("b", "rig:pico2"), 5).deadline, 60_005);
}

#[test]
fn any_order_of_events_leaves_each_rig_free_or_with_one_holder() {
    // A small generator, seeded: the same runs each time.
    for seed in 1..=100u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let (mut lab, paper) = lab();
        let mut now = 0;
        let mut requests = 0;
        let mut holders: BTreeMap<String, Lease> = BTreeMap::new();
        for _ in 0..200 {
            now += next(700);
            match next(9) {
                0 | 1 => {
                    requests += 1;
                    let selector =
                        ["rig:board=pico", "rig:pico1", "rig:nano1", "rig:pico3"][usize::try_from(next(4)).unwrap()];
                    let count = if selector == "rig:board=pico" { usize::try_from(next(3)).unwrap() + 1 } else { 1 };
                    let wait = if next(4) == 0 { None } else { Some(next(20_000)) };
                    let _ = lab.ask(
                        next(5),
                        LeaseRequest { count, wait, ttl: 5000, ..want(&requests.to_string(), selector) },
                        now,
                    );
                }
                2 | 3 => {
                    let offered = lab.queue.iter().find(|waiting| waiting.offer.is_some());
                    if let Some((conn, request)) = offered.map(|waiting| (waiting.conn, waiting.ask.request.clone())) {
                        paper.0.lock().unwrap().is_full = next(10) == 0;
                        if let Ok(lease) = lab.confirm(conn, &request, 1000, now) {
                            holders.insert(lease.id.clone(), lease);
                        }
                        paper.0.lock().unwrap().is_full = false;
                    }
                }
                4 => {
                    if let Some(id) = holders.keys().next().cloned() {
                        lab.end(&id, "released", "ann", now);
                    }
                }
                5 => drop(answer_checks(&mut lab, now)),
                6 => lab.disconnected(next(5), now),
                7 if next(5) == 0 => {
                    // The agent is killed, and started again.
                    lab = Lab::new(Box::new(paper.clone()), Some(paper.kept()), true, "boot", now);
                    let shares =
                        |name: &str| if name.ends_with('3') || name == "nano1" { vec!["psu1"] } else { vec![] };
                    let rigs = ["pico1", "pico2", "pico3", "nano1"];
                    let rigs = rigs.map(|name| spec(name, &name[..4], &shares(name)));
                    lab.set_rigs(rigs.into(), now);
                }
                _ => lab.tick(now),
            }
            holders.retain(|id, _| lab.usable(id, 1000, now).is_ok());
            assert_eq!(lab.faults(), [""; 0], "seed {seed}");
            let mut held: Vec<&String> = holders.values().flat_map(|lease| &lease.rigs).collect();
            held.sort();
            held.windows(2).for_each(|two| assert_ne!(two[0], two[1], "seed {seed}"));
            assert!(!(held.iter().any(|rig| *rig == "pico3") && held.iter().any(|rig| *rig == "nano1")), "seed {seed}");
            let kept: BTreeSet<String> = paper.kept().leases.into_iter().map(|lease| lease.id).collect();
            assert!(holders.keys().all(|id| kept.contains(id)), "seed {seed}");
        }
    }
}

#[test]
fn an_agent_that_dies_at_any_write_leaves_one_holder_or_none_and_the_same_request_gets_one_lease() {
    for step in ["grant", "keeper", "end"] {
        for is_written in [false, true] {
            let what = format!("{step}, written: {is_written}");
            let (mut lab, paper) = lab();
            let dies = || paper.0.lock().unwrap().dies = Some(is_written);
            let mut given = None;
            if step == "grant" {
                lab.ask(1, want("a", "rig:pico1"), 0).unwrap();
                dies();
                // Nobody gets this answer.
                let _ = lab.confirm(1, "a", 1000, 0);
            } else {
                let lease = get(&mut lab, 1, want("a", "rig:pico1"), 0);
                dies();
                match step {
                    "keeper" => drop(lab.attach(1, &lease.id, Some(Process::this()), None, 1000, 1)),
                    _ => lab.end(&lease.id, "released", "ann", 1),
                }
                given = Some(lease);
            }
            drop(lab);
            paper.0.lock().unwrap().dies = None;
            let mut lab = Lab::new(Box::new(paper.clone()), Some(paper.kept()), true, "boot", 10);
            lab.set_rigs(vec![spec("pico1", "pico", &[])], 10);
            assert_eq!(lab.faults(), [""; 0], "{what}");
            match (step, &given) {
                ("end", Some(lease)) if is_written => {
                    // Its holder asks for the end again, and learns that there is none any more.
                    assert!(lab.usable(&lease.id, 1000, 11).is_err(), "{what}");
                    get(&mut lab, 2, want("b", "rig:pico1"), 10 + RETURN);
                }
                (_, Some(lease)) => {
                    assert_eq!(
                        lab.attach(2, &lease.id, None, None, 1000, 11).map(|lease| lease.id),
                        Ok(lease.id.clone()),
                        "{what}"
                    );
                    lab.end(&lease.id, "released", "ann", 12);
                    answer_checks(&mut lab, 13);
                }
                (_, None) => {
                    lab.tick(10 + RETURN);
                    let first = match lab.ask(2, want("a", "rig:pico1"), 10 + RETURN).unwrap() {
                        LeaseReply::Granted(lease) => *lease,
                        LeaseReply::Waits => lab.confirm(2, "a", 1000, 10 + RETURN).unwrap(),
                    };
                    assert_eq!(
                        lab.ask(2, want("a", "rig:pico1"), 10 + RETURN),
                        Ok(LeaseReply::Granted(Box::new(first))),
                        "{what}"
                    );
                    assert_eq!(paper.kept().leases.len(), 1, "{what}");
                }
            }
            assert_eq!(lab.faults(), [""; 0], "{what}");
        }
    }
}
