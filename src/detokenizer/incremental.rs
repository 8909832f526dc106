//! Bytes to text, keeping a half character until its other half arrives.

/// Text put together from pieces that may end inside a character.
#[derive(Debug, Default)]
pub struct IncrementalText {
    tail: Vec<u8>,
}

impl IncrementalText {
    /// Appends to `out` what is whole; bytes that can never become a character turn into U+FFFD, as in
    /// [`String::from_utf8_lossy`].
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        self.tail.extend_from_slice(bytes);
        let mut rest = self.tail.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    out.push_str(text);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (whole, broken) = rest.split_at(error.valid_up_to());
                    out.push_str(&String::from_utf8_lossy(whole));
                    rest = broken;
                    let Some(len) = error.error_len() else { break };
                    out.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[len..];
                }
            }
        }
        self.tail = rest.to_vec();
    }

    /// Nothing follows: a half character is a broken one.
    pub fn finish(&mut self, out: &mut String) {
        out.push_str(&String::from_utf8_lossy(&std::mem::take(&mut self.tail)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every way of cutting some text into pieces of up to four bytes gives what decoding it at once gives.
    #[test]
    fn pieces_give_the_whole() {
        let mut seed = 1u64;
        let mut random = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        for _ in 0..2000 {
            let bytes: Vec<u8> = (0..random(24))
                .map(|_| b"a \xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xFF\xC0\xED\xA0"[random(15) as usize])
                .collect();
            let (mut text, mut out, mut rest) = (IncrementalText::default(), String::new(), bytes.as_slice());
            while !rest.is_empty() {
                let (piece, tail) = rest.split_at((random(4) as usize + 1).min(rest.len()));
                text.push(piece, &mut out);
                rest = tail;
            }
            text.finish(&mut out);
            assert_eq!(out, String::from_utf8_lossy(&bytes), "{bytes:?}");
        }
    }
}
