use proptest::prelude::*;

use super::*;
use crate::store::codec::{self, Codec};
use crate::store::pack::{self, Blob, Kind, OpenPack, Trailer};

const UUID: [u8; 16] = [9; 16];

fn sample() -> (Vec<u8>, Vec<Blob>, Vec<Vec<u8>>) {
    let plain: Vec<Vec<u8>> = vec![noise(1, 700), vec![b'x'; 5000], noise(2, 1), b"text ".repeat(900)];
    let mut open = OpenPack::default();
    for (at, bytes) in plain.iter().enumerate() {
        let kind = if at == 3 { Kind::Metadata } else { Kind::Data };
        codec::encode(bytes, |codec, payload| {
            open.push(ChunkId::of(bytes), kind, bytes.len() as u32, codec, payload);
            Ok(())
        })
        .unwrap();
    }
    let (id, parts, blobs) = open.close(&UUID);
    let bytes = parts.concat();
    assert_eq!(blake3::hash(&bytes).as_bytes(), &id.0);
    (bytes, blobs, plain)
}

fn footer(bytes: &[u8]) -> std::result::Result<Vec<Blob>, crate::store::wire::Malformed> {
    pack::check_header(bytes.get(..pack::HEADER).unwrap_or_default(), &UUID)?;
    let at = bytes.len().saturating_sub(pack::TRAILER);
    let trailer = Trailer::parse(&bytes[at..], bytes.len() as u64)?;
    trailer.blobs(&bytes[trailer.offset as usize..(trailer.offset + trailer.len) as usize])
}

#[test]
fn a_pack_describes_itself_twice() {
    let (bytes, blobs, plain) = sample();
    assert_eq!(footer(&bytes).unwrap(), blobs);
    assert_eq!(pack::salvage(&bytes), blobs);
    for (blob, plain) in blobs.iter().zip(&plain) {
        let payload = &bytes[blob.offset as usize + pack::BLOB_HEADER..blob.end() as usize];
        assert_eq!(&pack::check(blob, payload).unwrap(), plain);
    }
    assert_eq!(blobs[0].codec, Codec::Raw, "noise is kept raw");
    assert_eq!(blobs[1].codec, Codec::Zstd);
}

#[test]
fn two_open_packs_become_one() {
    let (mut a, mut b) = (OpenPack::default(), OpenPack::default());
    a.push(ChunkId::of(b"a"), Kind::Data, 1, Codec::Raw, b"a");
    b.push(ChunkId::of(b"b"), Kind::Metadata, 1, Codec::Raw, b"b");
    assert!(a.has_room_for(&b, pack::TARGET));
    a.append(b);
    let (_, parts, blobs) = a.close(&UUID);
    assert_eq!(pack::salvage(&parts.concat()), blobs);
    assert_eq!(blobs.len(), 2);
}

#[test]
fn row_14_a_truncated_pack_gives_what_is_whole() {
    let (bytes, blobs, _) = sample();
    for len in 0..bytes.len() {
        assert!(footer(&bytes[..len]).is_err());
        let whole: Vec<Blob> = blobs.iter().filter(|blob| blob.end() <= len as u64).copied().collect();
        assert_eq!(pack::salvage(&bytes[..len]), whole, "{len}");
    }
}

#[test]
fn any_flip_in_a_pack_is_found() {
    let (bytes, blobs, _) = sample();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let by_footer = footer(&damaged).map(|found| {
            assert_eq!(found, blobs, "a footer is right or refused: {at}");
            found
                .iter()
                .filter(|blob| pack::check(blob, &damaged[blob.offset as usize + pack::BLOB_HEADER..blob.end() as usize]).is_err())
                .count()
        });
        let in_payload = blobs.iter().any(|blob| (blob.offset as usize + pack::BLOB_HEADER..blob.end() as usize).contains(&at));
        let in_blob_header = blobs.iter().any(|blob| (blob.offset as usize..blob.offset as usize + pack::BLOB_HEADER).contains(&at));
        match by_footer {
            Ok(wrong) if in_payload => assert!(wrong <= 1),
            Ok(wrong) => assert!(in_blob_header && wrong == 0, "{at}"),
            Err(_) => assert!(!in_payload && !in_blob_header),
        }
        for blob in pack::salvage(&damaged) {
            assert!(blobs.contains(&blob));
        }
    }
}

#[test]
fn row_52_tiny_frame_declaring_terabytes() {
    // A zstd frame whose header says 1 TiB, and one whose window is 2 GiB without a size.
    let giant = [0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 1, 0, 0, 0x01, 0, 0];
    let window = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0, 0];
    for frame in [&giant[..], &window[..]] {
        assert!(codec::decode_into(Codec::Zstd, frame, 100, &mut Vec::new()).is_err());
    }
    // A real frame that is longer than declared.
    let real = zstd::bulk::compress(&vec![1; 1 << 20], 1).unwrap();
    assert!(codec::decode_into(Codec::Zstd, &real, 1 << 10, &mut Vec::with_capacity(8 << 20)).is_err());
    // Declared lengths are refused before anything is allocated.
    for (codec, plain, stored) in
        [(Codec::Zstd, u32::MAX, 16), (Codec::Zstd, (4 << 20) + 1, 16), (Codec::Raw, 16, 15), (Codec::Zstd, 16, 16), (Codec::Raw, 0, 0)]
    {
        assert!(codec.check_lengths(plain, stored).is_err());
    }
}

proptest! {
    #[test]
    fn any_bytes_parse_or_fail(bytes: Vec<u8>, size: u64) {
        let _ = Blob::parse(&bytes, 0);
        let _ = Trailer::parse(&bytes, size);
        drop(pack::salvage(&bytes));
    }

    #[test]
    fn a_trailer_with_any_footer_parses_or_fails(entries: Vec<u8>, offset in 32_u64..1000, count in 0_u32..50) {
        let mut bytes = b"FLKTAIL\n".to_vec();
        bytes.extend(offset.to_le_bytes());
        bytes.extend((entries.len() as u64).to_le_bytes());
        bytes.extend(count.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(blake3::hash(&entries).as_bytes());
        if let Ok(trailer) = Trailer::parse(&bytes, offset + entries.len() as u64 + 64) {
            drop(trailer.blobs(&entries));
        }
    }

    #[test]
    fn chunks_round_trip(bytes in proptest::collection::vec(any::<u8>(), 1..5000)) {
        codec::encode(&bytes, |codec, payload| {
            codec.check_lengths(bytes.len() as u32, payload.len() as u32).unwrap();
            let mut plain = b"older".to_vec();
            codec::decode_into(codec, payload, bytes.len() as u32, &mut plain).unwrap();
            assert_eq!(plain, bytes);
            Ok(())
        }).unwrap();
    }
}
