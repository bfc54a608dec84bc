//! HTML fragments to plain text.

/// Turns a fragment of HTML into plain text.
///
/// Tags are removed (a tag that starts a new line or paragraph becomes a line break), character references are
/// decoded once, every kind of white space becomes a space, runs of it one; lines are trimmed and empty ones
/// dropped. A `<` that starts no tag stays as it is.
pub fn plain_text(html: &str) -> String {
    let mut raw = String::with_capacity(html.len());
    let mut rest = html;
    while let Some(at) = rest.find(['<', '&']) {
        raw.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some((tag, length)) = tag(rest) {
            if breaks_line(tag) {
                raw.push('\n');
            }
            rest = &rest[length..];
        } else if let Some((decoded, length)) = character_reference(rest) {
            raw.push(decoded);
            rest = &rest[length..];
        } else {
            raw.push_str(&rest[..1]);
            rest = &rest[1..];
        }
    }
    raw.push_str(rest);
    raw.retain(|c| !is_invisible(c));

    let mut text = String::with_capacity(raw.len());
    for line in raw.split('\n') {
        let mut first = true;
        for word in line.split_whitespace() {
            if !text.is_empty() {
                text.push(if first { '\n' } else { ' ' });
            }
            text.push_str(word);
            first = false;
        }
    }
    text
}

/// The name of the tag that starts `text`, and the tag's length in bytes.
fn tag(text: &str) -> Option<(&str, usize)> {
    let inside = text.strip_prefix('<')?;
    if let Some(comment) = inside.strip_prefix("!--") {
        return comment.find("-->").map(|end| ("", end + 7));
    }
    let name = inside.strip_prefix('/').unwrap_or(inside);
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return None;
    }
    let length = text.find('>')? + 1;
    let name_length = name.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(name.len());
    Some((&name[..name_length], length))
}

fn breaks_line(tag: &str) -> bool {
    ["br", "p", "div", "li", "ul", "ol", "tr", "table", "h1", "h2", "h3", "h4", "h5", "h6", "hr"]
        .iter()
        .any(|name| name.eq_ignore_ascii_case(tag))
}

/// Zero-width characters, soft hyphens, controls: a reader never sees them, but they split words for a tokenizer.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{feff}' | '\u{2060}')
        || (c.is_control() && !c.is_whitespace())
}

/// The character that the reference at the start of `text` stands for, and the reference's length in bytes.
fn character_reference(text: &str) -> Option<(char, usize)> {
    let inside = text.strip_prefix('&')?;
    // The longest name in the table has 8 letters; a semicolon far away belongs to something else.
    let end = inside.bytes().take(12).position(|byte| byte == b';')?;
    let name = &inside[..end];
    let decoded = if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16).ok()?,
            None => number.parse().ok()?,
        };
        char::from_u32(code)?
    } else {
        NAMED.iter().find(|(known, _)| *known == name)?.1
    };
    Some((decoded, end + 2))
}

/// The named references of HTML 4 for Latin-1 and the common punctuation and symbols.
#[rustfmt::skip]
const NAMED: &[(&str, char)] = &[
    ("amp", '&'), ("lt", '<'), ("gt", '>'), ("quot", '"'), ("apos", '\''), ("nbsp", '\u{a0}'),
    ("iexcl", '¡'), ("cent", '¢'), ("pound", '£'), ("curren", '¤'), ("yen", '¥'), ("brvbar", '¦'), ("sect", '§'),
    ("uml", '¨'), ("copy", '©'), ("ordf", 'ª'), ("laquo", '«'), ("not", '¬'), ("shy", '\u{ad}'), ("reg", '®'),
    ("macr", '¯'), ("deg", '°'), ("plusmn", '±'), ("sup2", '²'), ("sup3", '³'), ("acute", '´'), ("micro", 'µ'),
    ("para", '¶'), ("middot", '·'), ("cedil", '¸'), ("sup1", '¹'), ("ordm", 'º'), ("raquo", '»'), ("frac14", '¼'),
    ("frac12", '½'), ("frac34", '¾'), ("iquest", '¿'),
    ("Agrave", 'À'), ("Aacute", 'Á'), ("Acirc", 'Â'), ("Atilde", 'Ã'), ("Auml", 'Ä'), ("Aring", 'Å'), ("AElig", 'Æ'),
    ("Ccedil", 'Ç'), ("Egrave", 'È'), ("Eacute", 'É'), ("Ecirc", 'Ê'), ("Euml", 'Ë'), ("Igrave", 'Ì'),
    ("Iacute", 'Í'), ("Icirc", 'Î'), ("Iuml", 'Ï'), ("ETH", 'Ð'), ("Ntilde", 'Ñ'), ("Ograve", 'Ò'), ("Oacute", 'Ó'),
    ("Ocirc", 'Ô'), ("Otilde", 'Õ'), ("Ouml", 'Ö'), ("times", '×'), ("Oslash", 'Ø'), ("Ugrave", 'Ù'),
    ("Uacute", 'Ú'), ("Ucirc", 'Û'), ("Uuml", 'Ü'), ("Yacute", 'Ý'), ("THORN", 'Þ'), ("szlig", 'ß'), ("agrave", 'à'),
    ("aacute", 'á'), ("acirc", 'â'), ("atilde", 'ã'), ("auml", 'ä'), ("aring", 'å'), ("aelig", 'æ'), ("ccedil", 'ç'),
    ("egrave", 'è'), ("eacute", 'é'), ("ecirc", 'ê'), ("euml", 'ë'), ("igrave", 'ì'), ("iacute", 'í'), ("icirc", 'î'),
    ("iuml", 'ï'), ("eth", 'ð'), ("ntilde", 'ñ'), ("ograve", 'ò'), ("oacute", 'ó'), ("ocirc", 'ô'), ("otilde", 'õ'),
    ("ouml", 'ö'), ("divide", '÷'), ("oslash", 'ø'), ("ugrave", 'ù'), ("uacute", 'ú'), ("ucirc", 'û'), ("uuml", 'ü'),
    ("yacute", 'ý'), ("thorn", 'þ'), ("yuml", 'ÿ'),
    ("OElig", 'Œ'), ("oelig", 'œ'), ("Scaron", 'Š'), ("scaron", 'š'), ("Yuml", 'Ÿ'), ("fnof", 'ƒ'), ("circ", 'ˆ'),
    ("tilde", '˜'), ("ensp", ' '), ("emsp", ' '), ("thinsp", ' '), ("zwnj", '\u{200c}'), ("zwj", '\u{200d}'),
    ("ndash", '–'), ("mdash", '—'), ("lsquo", '‘'), ("rsquo", '’'), ("sbquo", '‚'), ("ldquo", '“'), ("rdquo", '”'),
    ("bdquo", '„'), ("dagger", '†'), ("Dagger", '‡'), ("bull", '•'), ("hellip", '…'), ("permil", '‰'),
    ("prime", '′'), ("Prime", '″'), ("lsaquo", '‹'), ("rsaquo", '›'), ("frasl", '⁄'), ("euro", '€'), ("trade", '™'),
    ("larr", '←'), ("rarr", '→'), ("minus", '−'), ("asymp", '≈'), ("ne", '≠'), ("le", '≤'), ("ge", '≥'),
];

#[cfg(test)]
mod tests {
    use super::plain_text;

    #[test]
    fn tags_go_and_line_breaks_stay() {
        assert_eq!(plain_text("<p>a <b>b</b></p> <p> </p><br><br/>c&nbsp;d\u{a0}e"), "a b\nc d e");
        assert_eq!(plain_text("<strong>note:</strong> x<!-- gone -->y"), "note: xy");
    }

    #[test]
    fn references_are_decoded_once() {
        assert_eq!(
            plain_text("C&ocirc;te d&#39;Ivoire &amp;lt; &#x41; 5 &lt; 6"),
            "Côte d'Ivoire &lt; A 5 < 6"
        );
        assert_eq!(plain_text("AT&T; R&D &unknown; &"), "AT&T; R&D &unknown; &");
    }

    #[test]
    fn a_less_than_sign_is_not_a_tag() {
        assert_eq!(plain_text("a < b <3 and 1<2 > 0"), "a < b <3 and 1<2 > 0");
    }
}
