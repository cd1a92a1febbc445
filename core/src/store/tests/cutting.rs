use super::*;
use crate::store::ChunkRef;

fn lengths(bytes: &[u8], cutting: Cutting) -> Vec<u32> {
    let (_folder, store) = new_store();
    let session = store.session(&Control::silent()).unwrap();
    session.put_bytes(bytes, cutting).unwrap().chunks.iter().map(|chunk| chunk.len).collect()
}

#[test]
fn fixed_grids_start_at_zero_and_end_with_the_rest() {
    let bytes = noise(1, 100_000);
    assert_eq!(lengths(&bytes, Cutting::Pages), [32_768, 32_768, 32_768, 1_696]);
    assert_eq!(lengths(&noise(2, (1 << 20) + 5), Cutting::Wal), [1 << 20, 5]);
    assert_eq!(lengths(&[], Cutting::Pages), [0_u32; 0]);
}

#[test]
fn content_is_whole_up_to_128_kib() {
    assert_eq!(lengths(&noise(3, 128 << 10), Cutting::Content), [128 << 10]);
    assert!(lengths(&noise(3, (128 << 10) + 1), Cutting::Content).len() > 1);
}

/// Cut points are part of the format: with others, nothing that is stored would be found again.
#[test]
fn golden_cut_points() {
    let text: Vec<u8> = (0..200_000_u32).flat_map(|line| format!("line {line} of a file\n").into_bytes()).take(2 << 20).collect();
    assert_eq!(lengths(&noise(42, 2 << 20), Cutting::Content), NOISE_42);
    assert_eq!(lengths(&text, Cutting::Content), TEXT);
    assert_eq!(lengths(&vec![7; (1 << 20) + 3], Cutting::Content), [512 << 10, 512 << 10, 3]);
}

const NOISE_42: &[u32] =
    &[83_555, 312_356, 52_222, 156_097, 174_607, 50_006, 181_953, 144_614, 169_182, 95_051, 146_286, 165_326, 88_780, 234_215, 42_902];
const TEXT: &[u32] =
    &[83_766, 133_264, 187_047, 220_848, 128_088, 116_667, 103_436, 389_631, 88_725, 161_464, 134_543, 112_552, 187_443, 49_678];

#[test]
fn a_stream_is_cut_as_the_whole() {
    let (folder, store) = new_store();
    let session = store.session(&Control::silent()).unwrap();
    for (seed, len) in [(1, 0), (2, 1), (3, 32_768), (4, 131_072), (5, 131_073), (6, (4 << 20) - 1), (7, 4 << 20), (8, (9 << 20) + 77)] {
        let bytes = noise(seed, len);
        let path = folder.path().join("file");
        sys::fs::replace(&path, &bytes, 0o600, &sys::fs::Syncs::new()).unwrap();
        for cutting in [Cutting::Pages, Cutting::Wal, Cutting::Content] {
            let file = std::fs::File::open(&path).unwrap();
            assert_eq!(session.put_file(&file, &path, cutting).unwrap(), session.put_bytes(&bytes, cutting).unwrap(), "{len} {cutting:?}");
        }
    }
}

#[test]
fn zeros_take_no_space() {
    let (_folder, store) = new_store();
    let session = store.session(&Control::silent()).unwrap();
    let read = session.put_bytes(&vec![0; 80_000], Cutting::Pages).unwrap();
    assert!(read.chunks.iter().all(|chunk| chunk.id == ChunkId::ZERO));
    assert_eq!(session.put(&[]).unwrap(), ChunkId::ZERO);
    let mut almost = vec![0; 1000];
    almost[999] = 1;
    assert_ne!(session.put(&almost).unwrap(), ChunkId::ZERO);
    assert_eq!(session.report().bytes_new, 1000);
    let reader = store.reader(&Control::silent()).unwrap();
    let mut out = Vec::new();
    reader.copy(&[ChunkRef { id: ChunkId::ZERO, len: 200_000 }], &mut out).unwrap();
    assert_eq!(out, vec![0; 200_000]);
}

#[test]
fn ids_are_hexadecimal_text() {
    let id = ChunkId::of(b"x");
    let json = serde_json::to_string(&id).unwrap();
    assert_eq!(json, format!("\"{id}\""));
    assert_eq!(json.len(), 66);
    assert_eq!(serde_json::from_str::<ChunkId>(&json).unwrap(), id);
    assert_eq!(id.to_string().parse::<ChunkId>().unwrap(), id);
    for bad in ["", "00", &id.to_string().to_uppercase(), &format!("{id}0")] {
        assert!(bad.parse::<ChunkId>().is_err(), "{bad}");
    }
}

#[test]
fn a_sparse_file_is_cut_as_if_it_were_read() {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let store = Store::open_or_create(&folder.path().join("store")).unwrap();
    let session = store.session(&Control::silent()).unwrap();
    let data = noise(9, 700_001);
    for (name, pieces, len) in [
        ("empty", &[][..], 40 << 20),
        ("middle", &[11 << 20, 19 << 20], 40 << 20),
        ("ends", &[0, (40 << 20) - 700_001], 40 << 20),
        ("odd", &[(6 << 20) + 4095], (33 << 20) + 5),
    ] {
        let path = folder.path().join(name);
        let file = std::fs::File::create_new(&path).unwrap();
        file.set_len(len).unwrap();
        let mut bytes = vec![0; usize::try_from(len).unwrap()];
        for at in pieces {
            std::os::unix::fs::FileExt::write_all_at(&file, &data, *at).unwrap();
            let at = usize::try_from(*at).unwrap();
            bytes[at..at + data.len()].copy_from_slice(&data);
        }
        let file = std::fs::File::open(&path).unwrap();
        assert_eq!(
            session.put_file(&file, &path, Cutting::Content).unwrap(),
            session.put_bytes(&bytes, Cutting::Content).unwrap(),
            "{name}"
        );
    }
}
