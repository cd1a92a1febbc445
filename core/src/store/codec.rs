//! Compression of single chunks; one zstd context a thread.

use std::cell::Cell;

use super::chunk::MAX_CHUNK;
use super::wire::{Malformed, Parsed};
use crate::error::{Error, ErrorKind, Result};

/// How a blob's payload is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    Raw = 0,
    Zstd = 1,
}

impl Codec {
    pub(super) fn of(number: u8) -> Parsed<Self> {
        match number {
            0 => Ok(Codec::Raw),
            1 => Ok(Codec::Zstd),
            _ => Err(Malformed("its codec is unknown")),
        }
    }

    /// Checks lengths that somebody declared, before anything is allocated for them.
    pub(super) fn check_lengths(self, plain: u32, stored: u32) -> Parsed<()> {
        let plain_len = plain as usize;
        let fits = match self {
            Codec::Raw => stored == plain,
            Codec::Zstd => stored < plain,
        };
        if plain_len == 0 || plain_len > MAX_CHUNK || stored == 0 || !fits { Err(Malformed("its lengths are impossible")) } else { Ok(()) }
    }
}

const LEVEL: i32 = 1;

struct Tools {
    compressor: zstd::bulk::Compressor<'static>,
    decompressor: zstd::bulk::Decompressor<'static>,
    packed: Vec<u8>,
    plain: Vec<u8>,
}

thread_local! {
    static TOOLS: Cell<Option<Box<Tools>>> = const { Cell::new(None) };
}

/// The tools of this thread; work that comes back here before it ends gets others.
fn with_tools<T>(work: impl FnOnce(&mut Tools) -> Result<T>) -> Result<T> {
    let mut tools = match TOOLS.take() {
        Some(tools) => tools,
        None => {
            let failed = |error: std::io::Error| Error::new(ErrorKind::Internal, format!("zstd: {error}"));
            Box::new(Tools {
                compressor: zstd::bulk::Compressor::new(LEVEL).map_err(failed)?,
                decompressor: zstd::bulk::Decompressor::new().map_err(failed)?,
                packed: Vec::new(),
                plain: Vec::new(),
            })
        }
    };
    let result = work(&mut tools);
    TOOLS.set(Some(tools));
    result
}

/// Gives the bytes to store for `plain` to `accept`: compressed where that saves at least 3 % and decodes to the same.
pub(super) fn encode<T>(plain: &[u8], accept: impl FnOnce(Codec, &[u8]) -> Result<T>) -> Result<T> {
    with_tools(|tools| {
        tools.packed.clear();
        tools.packed.reserve(zstd::zstd_safe::compress_bound(plain.len()));
        let packed = tools.compressor.compress_to_buffer(plain, &mut tools.packed);
        match packed {
            Ok(len) if len <= plain.len() - plain.len().div_ceil(33) => {
                tools.plain.resize(plain.len().max(tools.plain.len()), 0);
                let check = tools.plain.get_mut(..plain.len()).unwrap_or_default();
                match tools.decompressor.decompress_to_buffer(&tools.packed, check) {
                    Ok(len) if len == plain.len() && check == plain => accept(Codec::Zstd, &tools.packed),
                    _ => accept(Codec::Raw, plain),
                }
            }
            _ => accept(Codec::Raw, plain),
        }
    })
}

/// Puts the plain bytes of a payload into a buffer, whose content they replace; lengths must have passed [`Codec::check_lengths`].
pub(super) fn decode_into(codec: Codec, payload: &[u8], plain_len: u32, plain: &mut Vec<u8>) -> Parsed<()> {
    plain.clear();
    plain.reserve_exact(plain_len as usize);
    match codec {
        Codec::Raw => {
            plain.extend_from_slice(payload);
            Ok(())
        }
        // It never writes beyond the capacity, and what has another length is refused.
        Codec::Zstd => match with_tools(|tools| Ok(tools.decompressor.decompress_to_buffer(payload, plain).ok())) {
            Ok(Some(len)) if len == plain_len as usize => Ok(()),
            _ => Err(Malformed("its payload does not decompress to its length")),
        },
    }
}
