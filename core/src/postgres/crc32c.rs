//! CRC-32C (Castagnoli), with which Postgres guards pg_control, WAL records and slot files.

const TABLE: [u32; 256] = table();

/// The CRC-32C of `parts`, one after the other.
pub(super) fn crc32c(parts: &[&[u8]]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        let [low, ..] = (crc ^ u32::from(*byte)).to_le_bytes();
        crc >> 8 ^ TABLE.get(usize::from(low)).copied().unwrap_or_default()
    };
    !parts.iter().flat_map(|part| part.iter()).fold(u32::MAX, step)
}

#[allow(clippy::indexing_slicing, reason = "evaluated at compile time, where an index out of range does not compile")]
const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn the_check_value_of_the_standard_comes_out_in_one_part_and_in_two() {
        assert_eq!(crc32c(&[b"123456789"]), 0xE306_9283);
        assert_eq!(crc32c(&[b"1234", b"56789"]), 0xE306_9283);
    }
}
