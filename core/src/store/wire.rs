//! Reading and writing little-endian fields and varints; every reader is bounded and never panics.

use std::fmt;

/// Why bytes do not parse: a few words for the message of the error around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Result of parsing.
pub(super) type Parsed<T> = std::result::Result<T, Malformed>;

/// Appends an unsigned LEB128 number: seven bits a byte, lowest first, the top bit set on all but the last.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number as a varint with the sign in the lowest bit.
pub(super) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Appends a length as varint and the bytes.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Takes fields off the front of a slice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What was not taken yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn take(&mut self, len: usize) -> Parsed<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(Malformed("it ends too early"))?;
        self.rest = rest;
        Ok(head)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Parsed<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed("it ends too early"))?;
        self.rest = rest;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Parsed<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u32(&mut self) -> Parsed<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Parsed<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// The constant that has to stand here.
    pub(super) fn expect(&mut self, constant: &[u8], what: &'static str) -> Parsed<()> {
        if self.take(constant.len())? == constant { Ok(()) } else { Err(Malformed(what)) }
    }

    /// A varint of the shortest form.
    pub(super) fn varint(&mut self) -> Parsed<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Malformed("a number is too large"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return if byte == 0 && shift > 0 { Err(Malformed("a number is not in its shortest form")) } else { Ok(value) };
            }
        }
        Err(Malformed("a number is too long"))
    }

    /// A varint of at most `limit`.
    pub(super) fn at_most(&mut self, limit: u64, what: &'static str) -> Parsed<u64> {
        let value = self.varint()?;
        if value <= limit { Ok(value) } else { Err(Malformed(what)) }
    }

    pub(super) fn signed(&mut self) -> Parsed<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// A length of at most `limit` and that many bytes.
    pub(super) fn bytes(&mut self, limit: usize, what: &'static str) -> Parsed<&'a [u8]> {
        let len = self.at_most(limit as u64, what)?;
        self.take(len as usize)
    }

    /// Nothing may be left.
    pub(super) fn end(&self) -> Parsed<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed("bytes follow its end")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_round_trip(value: u64, signed: i64) {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            put_signed(&mut out, signed);
            let mut cursor = Cursor::new(&out);
            prop_assert_eq!(cursor.varint().unwrap(), value);
            prop_assert_eq!(cursor.signed().unwrap(), signed);
            cursor.end().unwrap();
        }

        #[test]
        fn any_bytes_parse_or_fail(bytes: Vec<u8>) {
            let mut cursor = Cursor::new(&bytes);
            if let Ok(value) = cursor.varint() {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                prop_assert!(bytes.starts_with(&out), "one number has one form");
            }
        }
    }
}
