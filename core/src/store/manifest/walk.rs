//! Every chunk that a manifest needs: its blocks, the nodes of its chunk lists, and the content.

use super::EntryKind;
use super::block::wrong;
use super::list::{self, Node, TOP};
use super::reader::{descend, open};
use crate::error::Result;
use crate::progress::Control;
use crate::store::pack::Kind;
use crate::store::{ChunkId, Reader};

/// Calls `visit` with every id that the manifest needs, and whether it stands for content or for metadata. Where `visit`
/// says false of metadata, it knew that as metadata, and nothing below it is read again. (The same bytes may also be the
/// content of a file, which says nothing of what lies below.) Only metadata is read.
pub(in crate::store) fn walk(
    reader: &Reader,
    root: &ChunkId,
    control: &Control,
    visit: &mut impl FnMut(&ChunkId, Kind) -> bool,
) -> Result<()> {
    if !visit(root, Kind::Metadata) {
        return Ok(());
    }
    let mut stack = vec![open(reader, root)?];
    while let Some(block) = stack.last_mut() {
        if block.level > 0 {
            let level = block.level;
            match block.child().map_err(|why| block.wrong(why))? {
                Some(child) if visit(&child.id, Kind::Metadata) => stack.push(descend(reader, level, &child)?),
                Some(_) => {}
                None => {
                    stack.pop();
                }
            }
            continue;
        }
        control.check()?;
        while let Some((entry, list)) = block.entry().map_err(|why| block.wrong(why))? {
            if let EntryKind::File { chunks, .. } = &entry.kind {
                chunks.iter().for_each(|chunk| {
                    visit(&chunk.id, Kind::Data);
                });
            }
            if let Some(list) = list {
                walk_list(reader, &list.root, TOP, visit)?;
            }
        }
        stack.pop();
    }
    Ok(())
}

fn walk_list(reader: &Reader, id: &ChunkId, above: u8, visit: &mut impl FnMut(&ChunkId, Kind) -> bool) -> Result<()> {
    if !visit(id, Kind::Metadata) {
        return Ok(());
    }
    let (level, node) = list::parse(&reader.blob(id)?, above).map_err(|why| wrong(id, why))?;
    match node {
        Node::Chunks(chunks) => chunks.iter().for_each(|chunk| {
            visit(&chunk.id, Kind::Data);
        }),
        Node::Nodes(nodes) => {
            for (child, _) in nodes {
                walk_list(reader, &child, level, visit)?;
            }
        }
    }
    Ok(())
}
