//! Starting, keeping, finding and stopping real servers.

use crate::support::{Cluster, stop};
use forklift::postgres::ServerStatus;

#[test]
fn a_server_starts_serves_and_stops() {
    let cluster = Cluster::new();
    let server = cluster.start().unwrap();
    assert_eq!(cluster.client().unwrap().query_one("SELECT 1", &[]).unwrap().get::<_, i32>(0), 1);
    assert!(matches!(cluster.status(), ServerStatus::Running { pid, .. } if pid == server.pid()));
    stop(server);
    assert_eq!(cluster.status(), ServerStatus::Stopped);
    assert!(cluster.client().is_err());
}
