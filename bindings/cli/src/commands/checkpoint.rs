//! Finding the checkpoint that `branch create --at` means: the library wants its exact id.

use forklift::branch::Branches;
use forklift::store::{Ref, Store};
use forklift::{Error, ErrorKind, Result};

/// The id of the one checkpoint with a database that has this name, or an id that starts so; of this branch where one is said.
pub(super) fn find(store: &Store, branches: &Branches, branch: Option<&str>, checkpoint: &str) -> Result<String> {
    let branch = branch.map(|name| branches.find(name)).transpose()?;
    let (refs, _) = store.refs()?;
    let refs: Vec<Ref> = refs
        .into_iter()
        .filter(|found| found.cluster.is_some())
        .filter(|found| {
            branch
                .as_ref()
                .is_none_or(|branch| found.branch.as_ref().is_some_and(|id| *id == branch.record().id || *id == branch.record().name))
        })
        .collect();
    let named: Vec<&Ref> = refs.iter().filter(|found| found.name.as_deref() == Some(checkpoint)).collect();
    let found = if named.is_empty() {
        refs.iter().filter(|found| !checkpoint.is_empty() && found.id.starts_with(checkpoint)).collect()
    } else {
        named
    };
    match found.as_slice() {
        [one] => Ok(one.id.clone()),
        [] => {
            let known: Vec<&str> = refs.iter().rev().take(5).map(|found| found.name.as_deref().unwrap_or(&found.id)).collect();
            let hint = if known.is_empty() {
                "capture one with `forklift project capture NAME`".to_owned()
            } else {
                format!("there is {}", known.join(", "))
            };
            Err(Error::new(ErrorKind::NotFound, format!("no checkpoint of a database is named {checkpoint} or has an id that starts so"))
                .hint(hint)
                .with("checkpoint", checkpoint))
        }
        several => {
            let ids: Vec<&str> = several.iter().map(|found| found.id.as_str()).collect();
            Err(Error::new(ErrorKind::InvalidArgument, format!("{} checkpoints answer to {checkpoint}", several.len()))
                .hint(format!("name one by its id: {}", ids.join(", ")))
                .with("checkpoint", checkpoint))
        }
    }
}
