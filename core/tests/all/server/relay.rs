//! TCP through the keeper.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use forklift::ErrorKind;
use forklift::postgres::{Address, ServerStatus, UrlForm};
use postgres::{Client, NoTls};

use crate::support::{Cluster, PATIENCE, stop, wait_for};

fn with_port() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.spec.address.port = Address::new(Path::new("/x"), &cluster.root().display().to_string(), true).unwrap().port;
    cluster
}

fn url(cluster: &Cluster) -> String {
    cluster.spec.address.url(UrlForm::Tcp, &cluster.spec.credentials.url, "app").unwrap()
}

#[test]
fn large_transfers_pass_both_ways_beside_many_idle_clients() {
    let cluster = with_port();
    let server = cluster.start().unwrap();
    let url = url(&cluster);
    let mut idle: Vec<Client> = (0..40).map(|_| Client::connect(&url, NoTls).unwrap()).collect();
    let mut client = Client::connect(&url, NoTls).unwrap();
    client.batch_execute("CREATE TABLE big (x text)").unwrap();
    let line = format!("{}\n", "abcdefghij".repeat(100));
    let mut writer = client.copy_in("COPY big FROM STDIN").unwrap();
    for _ in 0..20_000 {
        writer.write_all(line.as_bytes()).unwrap();
    }
    assert_eq!(writer.finish().unwrap(), 20_000);
    let mut received = Vec::new();
    client.copy_out("COPY big TO STDOUT").unwrap().read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), 20_000 * line.len());
    assert!(received.chunks(line.len()).all(|chunk| chunk == line.as_bytes()));
    assert_eq!(server.clients().unwrap(), 41);
    for client in &mut idle {
        client.simple_query("SELECT 1").unwrap();
    }
    drop(idle);
    wait_for("the backends of gone clients to end", || server.clients().unwrap() == 1);
    // The socket taken away: who is connected stays, nobody new comes in.
    server.address().hide().unwrap();
    client.simple_query("SELECT 1").unwrap();
    assert!(Client::connect(&url, NoTls).is_err());
    server.address().publish().unwrap();
    Client::connect(&url, NoTls).unwrap();
    // A stop is told to the client, and the port is free afterwards.
    stop(server);
    let told = client.simple_query("SELECT 1").unwrap_err();
    assert_eq!(told.code().map(|code| code.code()), Some("57P01"));
    TcpListener::bind(("127.0.0.1", cluster.spec.address.port.unwrap())).unwrap();
    let server = cluster.start().unwrap();
    Client::connect(&url, NoTls).unwrap();
    stop(server);
}

#[test]
fn the_end_of_one_direction_is_passed_on() {
    let cluster = with_port();
    let server = cluster.start().unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", cluster.spec.address.port.unwrap())).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // An SSLRequest, and nothing more will come.
    stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"N");
    stop(server);
}

/// A client that does not read must not fill the keeper's memory, nor hold up others.
#[test]
fn a_client_that_does_not_read_stops_its_sender_only() {
    let cluster = with_port();
    let server = cluster.start().unwrap();
    let url = url(&cluster);
    let mut slow = Client::connect(&url, NoTls).unwrap();
    let mut rows = slow.copy_out("COPY (SELECT repeat('x', 1000) FROM generate_series(1, 100000)) TO STDOUT").unwrap();
    let ServerStatus::Running { keeper, .. } = cluster.status() else { panic!() };
    let memory = || {
        let text = std::fs::read_to_string(format!("/proc/{keeper}/statm")).unwrap();
        text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    for _ in 0..20 {
        Client::connect(&url, NoTls).unwrap().simple_query("SELECT 1").unwrap();
    }
    assert!(memory() < 32 << 20, "{}", memory());
    let mut all = Vec::new();
    rows.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), 100_000 * 1001);
    drop(rows);
    stop(server);
}

/// Row 16.
#[test]
fn a_taken_port_fails_the_start_by_name_and_leaves_the_server_stopped() {
    let cluster = with_port();
    let port = cluster.spec.address.port.unwrap();
    let ephemeral = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let low: u16 = ephemeral.split_ascii_whitespace().next().unwrap().parse().unwrap();
    assert!(port < low);
    let squatter = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let error = cluster.start().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.message().contains(&port.to_string()) && error.message().contains(&std::process::id().to_string()), "{error}");
    assert_eq!(cluster.status(), ServerStatus::Stopped);
    drop(squatter);
    let server = cluster.start().unwrap();
    let client = Client::connect(&url(&cluster), NoTls).unwrap();
    assert!(!client.is_closed());
    std::thread::sleep(Duration::ZERO);
    stop(server);
}
