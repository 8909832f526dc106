//! Prompts in the vocabulary of SmolLM2: prose, chat, code, digits, other scripts, short and long.

/// `Once upon a time, in a village by the sea,`
const PROSE: &[u32] = &[6403, 1980, 253, 655, 28, 281, 253, 6560, 411, 260, 3426, 28];
/// A question in the chat template.
const QUESTION: &[u32] = &[1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198];
/// The head of a Python function.
const CODE: &[u32] =
    &[1604, 3987, 46477, 24, 94, 727, 472, 1620, 14362, 260, 304, 29, 373, 24681, 46477, 1230, 7996, 198];
/// `The first digits of pi are 3.14159265358979 and 2 to the power of 10 is`
const DIGITS: &[u32] = &[
    504, 808, 18638, 282, 16916, 359, 216, 35, 30, 33, 36, 33, 37, 41, 34, 38, 37, 35, 37, 40, 41, 39, 41, 284, 216,
    34, 288, 260, 1149, 282, 216, 33, 32, 314,
];
/// `Погода сегодня хорошая. 今日はいい天気です。🎈 The weather balloon`
const SCRIPTS: &[u32] = &[
    155, 249, 41455, 37625, 6511, 21986, 6643, 29441, 37625, 8831, 16885, 216, 32122, 33175, 6485, 37123, 6511, 16885,
    30, 216, 15076, 228, 23274, 115, 7365, 124, 41679, 41679, 18614, 119, 177, 125, 241, 7365, 117, 39958, 19076,
    10813, 232, 226, 378, 3947, 16670,
];
/// `Gravity is`
const SHORT: &[u32] = &[22007, 6463, 314];
/// A system message and a request.
const CHAT: &[u32] = &[
    1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2, 198,
    1, 4093, 198, 36971, 281, 1296, 8545, 1701, 260, 6376, 314, 4461, 30, 2, 198, 1, 520, 9531, 198,
];
/// Lines of JSON, the second one begun.
const JSON: &[u32] = &[
    39428, 1245, 1799, 476, 2270, 3686, 31006, 1002, 476, 8416, 1799, 933, 33, 28, 216, 34, 28, 216, 35, 1750, 476,
    17517, 1799, 216, 33, 34, 30, 37, 32, 109, 198, 39428, 1245, 1799, 476,
];

/// All of them.
pub(crate) const PROMPTS: [&[u32]; 8] = [PROSE, QUESTION, CODE, DIGITS, SCRIPTS, SHORT, CHAT, JSON];

/// A prompt of `len` tokens: all others, over and over.
pub(crate) fn long(len: usize) -> Vec<u32> {
    PROMPTS.iter().flat_map(|prompt| prompt.iter().copied()).cycle().take(len).collect()
}
