//! GBNF, the grammars of llama.cpp and SGLang (`root ::= "yes" | "no"`), as Lark, which llguidance reads.

/// Is `text` written in GBNF? Lark has no `::=`.
pub(super) fn is_gbnf(text: &str) -> bool {
    text.contains("::=")
}

/// The same grammar in Lark: `root` is `start`, and character classes are regular expressions.
///
/// # Errors
/// A string or a class that does not end, or no rule `root`.
pub(super) fn to_lark(text: &str) -> Result<String, String> {
    let pieces = pieces(text)?;
    let heads: Vec<usize> = (0..pieces.len()).filter(|i| pieces.get(i + 1) == Some(&Piece::Becomes)).collect();
    let mut lark = String::new();
    for (i, piece) in pieces.iter().enumerate() {
        if heads.contains(&i) && !lark.is_empty() {
            lark.push('\n');
        }
        match piece {
            Piece::Name(name) => lark.push_str(&rule(name)),
            Piece::Becomes => lark.push(':'),
            Piece::Literal(literal) => lark.push_str(literal),
            Piece::Class(class) => lark.push_str(&format!("/{}/", with_escaped_slashes(class))),
            Piece::Sign(sign) => lark.push(*sign),
        }
        lark.push(' ');
    }
    let is_root = |i: &usize| pieces[*i] == Piece::Name("root".to_owned());
    if heads.iter().any(is_root) { Ok(lark) } else { Err("a GBNF grammar needs a rule named root".to_owned()) }
}

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Name(String),
    Becomes,
    /// With its quotes.
    Literal(String),
    /// With its brackets, or a dot.
    Class(String),
    Sign(char),
}

fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        let len = match first {
            c if c.is_whitespace() => c.len_utf8(),
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '"' | '[' => {
                let close = if first == '"' { '"' } else { ']' };
                let len = quoted(rest, close).ok_or_else(|| format!("{close} is missing after {}", shown(rest)))?;
                let piece = rest[..len].to_owned();
                pieces.push(if first == '"' { Piece::Literal(piece) } else { Piece::Class(piece) });
                len
            }
            '.' => {
                pieces.push(Piece::Class("(?s:.)".to_owned()));
                1
            }
            '{' => {
                let len = rest.find('}').ok_or_else(|| format!("}} is missing after {}", shown(rest)))? + 1;
                pieces.push(Piece::Literal(rest[..len].to_owned()));
                len
            }
            _ if rest.starts_with("::=") => {
                pieces.push(Piece::Becomes);
                3
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                let end = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-');
                let len = rest.find(end).unwrap_or(rest.len());
                pieces.push(Piece::Name(rest[..len].to_owned()));
                len
            }
            '|' | '(' | ')' | '*' | '+' | '?' => {
                pieces.push(Piece::Sign(first));
                1
            }
            _ => return Err(format!("GBNF has no meaning for {}", shown(rest))),
        };
        rest = &rest[len..];
    }
    Ok(pieces)
}

/// The length of what begins `text` and ends with `close`, both ends counted.
fn quoted(text: &str, close: char) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                chars.next();
            }
            c if c == close => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// A slash ends a regular expression of Lark, unless it is escaped.
fn with_escaped_slashes(class: &str) -> String {
    let mut escaped = false;
    let letter = |c: char| {
        let bare = c == '/' && !escaped;
        escaped = c == '\\' && !escaped;
        if bare { "\\/".to_owned() } else { c.to_string() }
    };
    class.chars().map(letter).collect()
}

fn shown(text: &str) -> String {
    format!("'{}'", text.chars().take(20).collect::<String>())
}

/// A rule of Lark: lower case, and no two of GBNF become the same one.
fn rule(name: &str) -> String {
    if name == "root" {
        return "start".to_owned();
    }
    let spelled = |c: char| match c {
        'A'..='Z' => format!("_u{}", c.to_ascii_lowercase()),
        '-' => "_d".to_owned(),
        '_' => "__".to_owned(),
        c => c.to_string(),
    };
    format!("r_{}", name.chars().map(spelled).collect::<String>())
}
