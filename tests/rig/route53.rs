//! Route 53: MiniStack, which has its API, and a name server that answers from MiniStack's record sets, which it has not. The name
//! server chooses one of several weighted sets at random by their weights. It runs in its own thread.
//!
//! Not moto: there a request is not executed completely or not at all, and a deleted set need not equal the present one.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_route53::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_route53::types::{
    Change, ChangeAction, ChangeBatch, HostedZoneConfig, ResourceRecord, ResourceRecordSet, RrType, Vpc,
    VpcRegion,
};
use aws_sdk_route53::{Client, Config};
use hickory_proto::op::{Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, CNAME, NS, SOA, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use rand::distr::weighted::WeightedIndex;
use rand::prelude::Distribution as _;
use tokio::net::{TcpStream, UdpSocket};

use super::process::Process;
use super::programs::ministack;
use super::workspace::Workspace;

/// How long it may take until it listens; half a second on an idle machine.
const DEADLINE: Duration = Duration::from_mins(1);

/// The credentials of the account. It accepts any; the secret must never be in any output or record.
pub const CREDENTIALS: (&str, &str) = ("AKIACANARY0000000000", "secret-access-key-canary");

/// A running MiniStack. Killed on drop.
pub struct MiniStack {
    _process: Process,
    _workspace: Workspace,
    /// Its URL.
    pub url: String,
    pub client: Client,
}

impl MiniStack {
    /// Starts one at an address.
    pub async fn start(at: SocketAddr) -> Self {
        let workspace = Workspace::create("ministack");
        let mut arguments = workspace.python_environment();
        arguments.extend([
            format!("BIND_HOST={}", at.ip()),
            format!("GATEWAY_PORT={}", at.port()),
            "SERVICES=route53".to_owned(),
            ministack().display().to_string(),
        ]);
        let log = workspace.join("ministack.log");
        let mut process = Process::start("ministack", Path::new("/usr/bin/env"), &arguments, &log);
        let probe = async || TcpStream::connect(at).await.map(drop).map_err(|error| error.to_string());
        process.ready("MiniStack listens", DEADLINE, probe).await.unwrap_or_else(|error| panic!("{error}"));
        let url = format!("http://{at}");
        let client = client(&url);
        Self { _process: process, _workspace: workspace, url, client }
    }

    /// Creates a hosted zone, and returns its id.
    pub async fn create_zone(&self, name: &str, private: bool) -> String {
        let asked = self.client.create_hosted_zone().name(name).caller_reference(format!("{name}-{private}"));
        let asked = if private {
            let vpc = Vpc::builder().vpc_id("vpc-1").vpc_region(VpcRegion::EuWest1).build();
            asked.vpc(vpc).hosted_zone_config(HostedZoneConfig::builder().private_zone(true).build())
        } else {
            asked
        };
        let made = asked.send().await.expect("a zone").hosted_zone.expect("a zone");
        made.id.rsplit('/').next().expect("an id").to_owned()
    }

    /// Changes record sets.
    pub async fn change(&self, zone: &str, action: ChangeAction, sets: &[ResourceRecordSet]) {
        let change = |set: &ResourceRecordSet| {
            Change::builder()
                .action(action.clone())
                .resource_record_set(set.clone())
                .build()
                .expect("a change")
        };
        let batch = ChangeBatch::builder().set_changes(Some(sets.iter().map(change).collect()));
        let batch = batch.build().expect("a batch");
        let asked = self.client.change_resource_record_sets().hosted_zone_id(zone).change_batch(batch);
        asked.send().await.expect("changed record sets");
    }

    /// All record sets of a zone, in a stable order.
    pub async fn sets(&self, zone: &str) -> Vec<ResourceRecordSet> {
        let mut sets = list(&self.client, zone).await;
        sets.sort_by_key(|set| format!("{set:?}"));
        sets
    }
}

fn client(url: &str) -> Client {
    let (id, secret) = CREDENTIALS;
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .credentials_provider(Credentials::new(id, secret, None, None, "test"))
        .endpoint_url(url)
        .build();
    Client::from_conf(config)
}

async fn list(client: &Client, zone: &str) -> Vec<ResourceRecordSet> {
    let mut sets = Vec::new();
    let (mut name, mut kind, mut id) = (None, None, None);
    loop {
        let asked = client.list_resource_record_sets().hosted_zone_id(zone).set_start_record_name(name);
        let asked = asked.set_start_record_type(kind).set_start_record_identifier(id);
        let page = asked.send().await.expect("record sets");
        sets.extend(page.resource_record_sets);
        (name, kind, id) = (page.next_record_name, page.next_record_type, page.next_record_identifier);
        if !page.is_truncated {
            return sets;
        }
    }
}

/// A record set with these values.
pub fn simple(name: &str, kind: RrType, ttl: u32, values: &[&str]) -> ResourceRecordSet {
    let record = |value: &&str| ResourceRecord::builder().value(*value).build().expect("a record");
    let set = ResourceRecordSet::builder().name(name).r#type(kind).ttl(ttl.into());
    set.set_resource_records(Some(values.iter().map(record).collect())).build().expect("a set")
}

/// A name server of the zones of a server. Its thread ends with the process.
pub struct Names {
    client: Client,
    /// The zones that it answers for, by name, with their ids.
    zones: HashMap<String, String>,
    /// The addresses of load balancers.
    hosts: HashMap<String, IpAddr>,
}

impl Names {
    /// Starts one at an address.
    pub fn start(at: SocketAddr, url: &str, zones: &[(&str, &str)], hosts: &[(&str, &str)]) {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let zones = zones.iter().map(owned).collect();
        let hosts =
            hosts.iter().map(|(name, at)| ((*name).to_owned(), at.parse().expect("an address"))).collect();
        let url = url.to_owned();
        let (ready, is_ready) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let names = Arc::new(Self { client: client(&url), zones, hosts });
                let socket =
                    Arc::new(UdpSocket::bind(at).await.unwrap_or_else(|error| panic!("{at}: {error}")));
                ready.send(()).expect("the test waits");
                loop {
                    let mut bytes = [0; 4096];
                    let Ok((length, from)) = socket.recv_from(&mut bytes).await else { return };
                    let asked = Message::from_vec(&bytes[..length]);
                    let (names, socket) = (names.clone(), socket.clone());
                    tokio::spawn(async move {
                        let Ok(asked) = asked else { return };
                        let answer = names.answer(&asked).await.to_vec().expect("an answer");
                        let _ = socket.send_to(&answer, from).await;
                    });
                }
            });
        });
        is_ready.recv().expect("the name server listens");
    }

    async fn answer(&self, asked: &Message) -> Message {
        let mut answer = Message::response(asked.metadata.id, OpCode::Query);
        answer.metadata.authoritative = true;
        let Some(query) = asked.queries.first() else { return answer };
        answer.add_query(Query::query(query.name().clone(), query.query_type()));
        let name = query.name().to_ascii().to_ascii_lowercase().trim_end_matches('.').to_owned();
        if let Some(at) = self.hosts.get(&name) {
            answer.answers = vec![address(query.name(), *at)];
            return of_type(query.query_type(), &query.name().base_name(), answer);
        }
        let Some((zone, id)) = self.zones.iter().find(|(zone, _)| name.ends_with(zone.as_str())) else {
            answer.metadata.response_code = ResponseCode::Refused;
            return answer;
        };
        // The sets of one name are fewer than one page.
        let asked = self.client.list_resource_record_sets().hosted_zone_id(id).start_record_name(&name);
        let mut sets = asked.max_items(20).send().await.expect("record sets").resource_record_sets;
        sets.retain(|set| set.name.trim_end_matches('.') == name);
        if sets.is_empty() {
            answer.metadata.response_code = ResponseCode::NXDomain;
        }
        sets.retain(|set| {
            set.r#type.as_str() == query.query_type().to_string() || set.r#type == RrType::Cname
        });
        let weights: Vec<i64> = sets.iter().map(|set| set.weight.unwrap_or(1)).collect();
        if let Ok(chosen) = WeightedIndex::new(weights) {
            answer.answers = self.records(query.name(), &sets[chosen.sample(&mut rand::rng())]);
        }
        of_type(query.query_type(), &Name::from_ascii(format!("{zone}.")).expect("a name"), answer)
    }

    fn records(&self, name: &Name, set: &ResourceRecordSet) -> Vec<Record> {
        if let Some(alias) = &set.alias_target {
            let at = self.hosts.get(alias.dns_name.trim_end_matches('.'));
            return at.map(|at| address(name, *at)).into_iter().collect();
        }
        let ttl = set.ttl.and_then(|ttl| u32::try_from(ttl).ok()).expect("a TTL");
        let values = set.resource_records.iter().flatten().map(|record| record.value.as_str());
        let host = |text: &str| Name::from_ascii(format!("{}.", text.trim_end_matches('.'))).expect("a name");
        let data = |value: &str| match set.r#type {
            RrType::A => RData::A(A(value.parse().expect("an address"))),
            RrType::Cname => RData::CNAME(CNAME(host(value))),
            RrType::Ns => RData::NS(NS(host(value))),
            RrType::Txt => RData::TXT(TXT::new(vec![value.trim_matches('"').to_owned()])),
            RrType::Soa => {
                let parts: Vec<&str> = value.split_whitespace().collect();
                let number = |index: usize| parts[index].parse::<u32>().expect("a number");
                let signed = |index: usize| parts[index].parse::<i32>().expect("a number");
                let (mname, rname) = (host(parts[0]), host(parts[1]));
                RData::SOA(SOA::new(mname, rname, number(2), signed(3), signed(4), signed(5), number(6)))
            }
            _ => panic!("{set:?}"),
        };
        let mut records: Vec<Record> =
            values.clone().map(|value| Record::from_rdata(name.clone(), ttl, data(value))).collect();
        if set.r#type == RrType::Cname {
            let target = values.clone().next().expect("a target");
            if let Some(at) = self.hosts.get(target.trim_end_matches('.')) {
                records.push(address(&host(target), *at));
            }
        }
        records
    }
}

/// Returns the answer with the records of one type, and CNAMEs. Without one, a resolver needs the zone's SOA (RFC 2308, section 2.2).
fn of_type(kind: RecordType, zone: &Name, mut answer: Message) -> Message {
    answer.answers.retain(|record| [kind, RecordType::CNAME].contains(&record.record_type()));
    if answer.answers.is_empty() {
        let soa = SOA::new(zone.clone(), zone.clone(), 1, 3600, 600, 86400, 1);
        answer.authorities = vec![Record::from_rdata(zone.clone(), 1, RData::SOA(soa))];
    }
    answer
}

fn address(name: &Name, at: IpAddr) -> Record {
    let IpAddr::V4(at) = at else { panic!("{at}: only IPv4") };
    let record = Record::from_rdata(name.clone(), 60, RData::A(A(at)));
    assert_eq!(record.record_type(), RecordType::A);
    record
}
