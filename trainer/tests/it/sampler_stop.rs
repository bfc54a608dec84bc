//! Stop strings in text that arrives in pieces.

use drgym_trainer::sampler::StopWatch;
use proptest::prelude::*;

#[test]
fn a_string_cut_by_pieces_and_inside_characters_is_found() {
    let stops = ["</search>".to_owned(), "é!".to_owned()];
    let mut watch = StopWatch::new(&stops);
    let found: Vec<Option<usize>> =
        ["a</sea", "rch", ">b", "\u{e9}"].iter().map(|piece| watch.push(piece.as_bytes())).collect();
    assert_eq!(found, [None, None, Some(0), None]);
    assert_eq!(watch.push(b"!"), Some(1));
    // é in UTF-8, byte by byte.
    let mut watch = StopWatch::new(&stops);
    assert_eq!([&b"\xc3"[..], b"\xa9", b"!"].map(|piece| watch.push(piece)), [None, None, Some(1)]);
}

#[test]
fn what_was_found_is_not_found_again_unless_it_comes_again() {
    let mut watch = StopWatch::new(&["aa".to_owned()]);
    let found = ["a", "a", "b", "aa"].map(|piece| watch.push(piece.as_bytes()).is_some());
    assert_eq!(found, [false, true, false, true]);
    assert_eq!(StopWatch::new(&[]).push(b"anything"), None);
}

proptest! {
    /// The watch agrees with a search of the whole text after every piece.
    #[test]
    fn the_watch_agrees_with_a_search_of_the_whole_text(
        stops in prop::collection::vec("[ab]{1,4}", 1..4),
        pieces in prop::collection::vec("[abc]{0,5}", 0..12),
    ) {
        let mut watch = StopWatch::new(&stops);
        let mut text = String::new();
        for piece in &pieces {
            let before = text.len();
            text.push_str(piece);
            let expected = (before + 1..=text.len())
                .find_map(|end| stops.iter().position(|stop| text[..end].ends_with(stop.as_str())));
            prop_assert_eq!(watch.push(piece.as_bytes()), expected);
        }
    }
}
