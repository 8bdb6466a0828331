//! A cluster of three members that loses its leader while it is read and written; what members report of themselves.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{AlarmAction, AlarmType};
use netsurgeon::preflight::Verdict;
use netsurgeon::preflight::renumber::room::Moves;
use netsurgeon::preflight::renumber::{etcd_leader, room};
use netsurgeon::preflight::shared::{etcd_alarms, etcd_members, etcd_space, etcd_versions};
use netsurgeon::session::Failure;
use netsurgeon::store::etcd::{Alarm, EtcdOptions, EtcdStore, MemberStatus};
use netsurgeon::store::{CommitError, KeyRange, ReadStore, WriteStore};

use crate::contract::{create, scan, transaction};
use crate::rig::etcd::{Etcd, EtcdOptions as Servers, EtcdVersion};
use crate::rig::process::wait_until;
use crate::rig::run::says;

/// An election takes a few seconds at most.
const DEADLINE: Duration = Duration::from_mins(1);

/// More than a member may lag, plus the 512 messages that a leader sends ahead to one that does not answer
/// (`maxInflightMsgs`, server/etcdserver/bootstrap.go, v3.6.16).
const MISSED: u32 = 7000;

/// Writes keys one by one; if an answer is lost, a read decides.
async fn write(store: &EtcdStore, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let key = format!("/members/{number:03}");
        loop {
            match store.commit(&transaction([create(&key, "1")])).await {
                // A conflict: the lost write was applied after the read.
                Ok(_) | Err(CommitError::Conflict { found: Some(_), .. }) => break,
                Err(CommitError::OutcomeUnknown { .. }) => {
                    if store.get(&key.as_str().into()).await.expect("reads are repeated").is_some() {
                        break;
                    }
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loss_of_leader_is_retried() {
    let mut etcd = Etcd::start(Servers { members: 3, ..Servers::default() }).await;
    let options =
        EtcdOptions { request_timeout: Duration::from_secs(5), ..EtcdOptions::new(etcd.endpoints()) };
    let store = Arc::new(EtcdStore::connect(options).await.expect("a connection"));
    write(&store, 0..20).await;

    let leader = etcd.leader().await;
    let (reader, writer) = (store.clone(), store.clone());
    let writing = tokio::spawn(async move { write(&writer, 20..200).await });
    let reading = tokio::spawn(async move {
        let mut last = 0;
        while last < 200 {
            let range = [KeyRange::prefix("/members/")];
            let (_, found) = scan(reader.as_ref(), &range, None).await.expect("reads are repeated");
            assert!(found.len() >= last, "keys do not disappear");
            last = found.len();
        }
    });
    etcd.kill_member(leader);
    writing.await.expect("the writer");
    reading.await.expect("the reader");
    let (_, found) = scan(store.as_ref(), &[KeyRange::prefix("/members/")], None).await.expect("a scan");
    assert!(found.len() == 200 && found.iter().all(|entry| entry.version == 1), "each was written once");
}

/// Whichever endpoint is given, every member is asked; a dead one is reported, and leaves no spare for the quorum.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_member_reports_its_status() {
    let mut servers = Etcd::start(Servers { members: 3, ..Servers::default() }).await;
    let store = EtcdStore::connect(EtcdOptions::new([servers.endpoint()])).await.expect("a connection");
    let members = store.members().await.expect("members");
    assert_eq!(etcd_members::judge(&members).verdict, Verdict::Pass, "{members:?}");
    assert_eq!(etcd_space::judge(&members).verdict, Verdict::Pass);
    assert_eq!(etcd_versions::judge(&members).observed, "3.7.3");
    let moves = |shadows| Moves { shadows, ..Moves::default() };
    assert_eq!(room::judge(&members, &moves(100), None).verdict, Verdict::Pass);
    assert_eq!(
        room::judge(&members, &moves(100_000), None).verdict,
        Verdict::Fail,
        "about 3 GiB, and the quota is 2 GiB"
    );
    assert_eq!(etcd_alarms::judge(&members, &store.alarms().await.expect("alarms")).verdict, Verdict::Pass);

    let mut client = servers.client().await.maintenance_client();
    let mut options = etcd_client::AlarmOptions::new();
    options.with_member(members[1].id);
    client.alarm(AlarmAction::Activate, AlarmType::Nospace, Some(options)).await.expect("it is raised");
    let alarms = store.alarms().await.expect("alarms");
    assert_eq!(alarms, [(members[1].id, Alarm::NoSpace)]);
    assert_eq!(etcd_alarms::judge(&members, &alarms).observed, format!("NOSPACE on `{}`", members[1].name));
    let refused =
        store.commit(&transaction([create("full", "1")])).await.expect_err("a full etcd refuses writes");
    let hints = Failure::from(refused).hints.join("\n");
    for command in ["etcdctl compact ", "etcdctl defrag --cluster", "etcdctl alarm disarm"] {
        assert!(hints.contains(command), "{hints}");
    }

    servers.kill_member(2);
    let judged = etcd_members::judge(&store.members().await.expect("two are the quorum"));
    assert_eq!(judged.verdict, Verdict::Fail);
    says(&judged.observed, &["2 of 3, ", "quorum 2", "`rig-2`: "]);
}

/// A leader that stays passes; one that is moved during the check does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_of_leader_is_detected() {
    let servers = Etcd::start(Servers { members: 3, ..Servers::default() }).await;
    let store = EtcdStore::connect(EtcdOptions::new([servers.endpoint()])).await.expect("a connection");
    let first = store.members().await.expect("members");
    let mut rounds = vec![first, store.members().await.expect("members")];
    let steady = etcd_leader::judge(&rounds);
    assert_eq!(steady.verdict, Verdict::Pass, "{steady:?}");
    assert!(steady.observed.starts_with("`rig-"), "{}", steady.observed);

    let led = |members: &[netsurgeon::store::etcd::Member]| -> Vec<u64> {
        members.iter().filter_map(|member| Some(member.status.as_ref().ok()?.leader)).collect()
    };
    let before = led(&rounds[1])[0];
    let other = rounds[1].iter().find(|member| member.id != before).expect("a follower").id;
    // Only the leader itself can transfer the leadership.
    let leader = servers.endpoints()[servers.leader().await].clone();
    let mut client = etcd_client::Client::connect([leader], None).await.expect("a connection");
    client.move_leader(other).await.expect("it is moved");
    let moved = wait_until("every member follows the other", DEADLINE, async || {
        let members = store.members().await.map_err(|error| error.to_string())?;
        if led(&members) == [other; 3] { Ok(members) } else { Err(format!("{members:?}")) }
    });
    rounds.push(moved.await);
    let judged = etcd_leader::judge(&rounds);
    assert_eq!(judged.verdict, Verdict::Fail, "{judged:?}");
    let name = |id| {
        let member = rounds[1].iter().find(|member| member.id == id).expect("it is listed");
        format!("`{}` in term ", member.name)
    };
    says(&judged.observed, &[&name(before), &name(other)]);
}

/// A member misses writes and cannot catch up: the members that could send them are paused, or no longer lead. Once they are
/// resumed, it catches up. Of four members three are the quorum, so the one that answers and the one that lags elect no leader.
/// Without a leader no member can be listed, so the log positions of these two are put into the members read before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lagging_member_is_detected() {
    let mut servers = Etcd::start(Servers { members: 4, ..Servers::default() }).await;
    let leader = servers.leader().await;
    let followers: Vec<usize> = (0..4).filter(|number| *number != leader).collect();
    let (late, others) = (followers[0], &followers[1..]);
    let [at_leader, at_late] = [leader, late].map(|number| servers.endpoints()[number].clone());
    let store = EtcdStore::connect(EtcdOptions::new([at_leader.clone()])).await.expect("a connection");
    let even = store.members().await.expect("members");
    assert_eq!(etcd_leader::judge(&[even.clone(), even]).verdict, Verdict::Pass);

    servers.pause_member(late);
    let mut client = etcd_client::Client::connect([at_leader], None).await.expect("a connection");
    for number in 0..MISSED {
        client.put("/members/late", number.to_string(), None).await.expect("three are the quorum");
    }
    let before = store.members().await.expect("members");
    assert_eq!(
        etcd_leader::judge(std::slice::from_ref(&before)).verdict,
        Verdict::Pass,
        "a silent member does not lag"
    );
    for number in others {
        servers.pause_member(*number);
    }
    let furthest = no_leader(&mut client).await;
    servers.resume_member(late);
    let mut behind = etcd_client::Client::connect([at_late], None).await.expect("a connection");
    let nearest = no_leader(&mut behind).await;
    let mut now = before.clone();
    for (number, index) in [(leader, furthest), (late, nearest)] {
        let name = format!("rig-{number}");
        let member = now.iter_mut().find(|member| member.name == name).expect("it is listed");
        let heard = before.iter().find_map(|member| member.status.clone().ok()).expect("one answers");
        member.status = Ok(MemberStatus { index, ..heard });
    }
    let judged = etcd_leader::judge(&[before, now]);
    assert_eq!(judged.verdict, Verdict::Warn, "{judged:?}");
    let entries = furthest - nearest;
    says(&judged.observed, &[&format!("`rig-{late}`"), &format!("{entries} entries")]);

    for number in others {
        servers.resume_member(*number);
    }
    wait_until("it has caught up", DEADLINE, async || {
        // A member reports the term of the last entry that it has applied: a real cluster always has a next entry.
        client.put("/members/late", "more", None).await.map_err(|error| error.to_string())?;
        let members = store.members().await.map_err(|error| error.to_string())?;
        let judged = etcd_leader::judge(std::slice::from_ref(&members));
        if judged.verdict == Verdict::Pass { Ok(()) } else { Err(format!("{judged:?}: {members:?}")) }
    })
    .await;
}

/// Waits until a member knows no leader, and returns the index of its log.
async fn no_leader(client: &mut etcd_client::Client) -> u64 {
    wait_until("it has no leader", DEADLINE, async || {
        let status = client.status().await.map_err(|error| error.to_string())?;
        if status.leader() == 0 { Ok(status.raft_index()) } else { Err(status.leader().to_string()) }
    })
    .await
}

/// An older version reports less.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn debian_etcd_reports_no_quota() {
    let servers = Etcd::start(Servers { version: EtcdVersion::Debian, ..Servers::default() }).await;
    let store = EtcdStore::connect(EtcdOptions::new([servers.endpoint()])).await.expect("a connection");
    let members = store.members().await.expect("members");
    assert_eq!(etcd_members::judge(&members).verdict, Verdict::Pass, "{members:?}");
    let space = etcd_space::judge(&members);
    assert_eq!(space.verdict, Verdict::Pass, "{space:?}");
    says(&space.observed, &["2048 MiB", "3.6"]);
}
