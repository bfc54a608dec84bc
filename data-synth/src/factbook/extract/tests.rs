use super::*;

fn answer(extract: fn(&str) -> Result<Value, Messy>, text: &str) -> Option<String> {
    extract(text).ok().map(|value| value.answer)
}

fn check(extract: fn(&str) -> Result<Value, Messy>, cases: &[(&str, Option<&str>)]) {
    for (text, expected) in cases {
        assert_eq!(answer(extract, text).as_deref(), *expected, "{text}");
        if let Ok(value) = extract(text) {
            assert!(text.contains(&value.finding), "{text}: the finding is {:?}", value.finding);
            assert!(!value.aliases.contains(&value.answer), "{text}");
        }
    }
}

#[test]
fn elevations() {
    check(
        elevation_name,
        &[
            ("Mount Kenya 5,199 m", Some("Mount Kenya")),
            ("Loma Mansa (Bintimani) 1,948 m", Some("Loma Mansa")),
            ("K2 (Mt. Godwin-Austen) 8,611 m", Some("K2")),
            ("Mount McKinley 6,190 m (highest point in North America)", Some("Mount McKinley")),
            ("Dead Sea -431 m", Some("Dead Sea")),
            ("unnamed elevation 675 m; located 2.5 km southeast of the town of Kotopounga", None),
            ("1 km SW of The Bluff on Cayman Brac 50 m", None),
            ("junction of the Orange and Makhaleng Rivers 1,400 m", None),
            ("Aoraki/Mount Cook 3,724 m; note - the mountain's height was 3,764 m until 1991", None),
            ("Mont Blanc 4,810", None),
            ("Queen Mary's Peak on Tristan da Cunha 2,060 m; Green Mountain on Ascension Island 859 m", None),
        ],
    );
    check(elevation_height, &[("Mount Kenya 5,199 m", Some("5,199 m")), ("Dead Sea -431 m", None)]);
    let bintimani = elevation_name("Loma Mansa (Bintimani) 1,948 m").unwrap();
    assert_eq!(bintimani.aliases, ["Bintimani"]);
}

#[test]
fn quantities_keep_their_unit_and_accept_other_spellings() {
    check(
        quantity,
        &[
            ("823 km (Caribbean Sea 669 km; Gulf of Fonseca 163 km)", Some("823 km")),
            ("580,367 sq km", Some("580,367 sq km")),
            ("20.5 years (2025 est.)", Some("20.5 years")),
            ("65,554 km (2014)", Some("65,554 km")),
            ("0 km (landlocked)", None),
            ("3 - 5 km", None),
            ("about 3 km", None),
            ("none", None),
        ],
    );
    let area = quantity("580,367 sq km").unwrap();
    for alias in ["580367 sq km", "580,367 square kilometers", "580367 square kilometres", "580,367 km2"] {
        assert!(area.aliases.iter().any(|known| known == alias), "{alias}");
    }
    for value in [area, quantity("536 km").unwrap(), percent("85.5% (2023 est.)").unwrap()] {
        let bare = |alias: &&String| !alias.contains(|c: char| c.is_alphabetic() || c == '%');
        assert_eq!(value.aliases.iter().find(bare), None, "{value:?}");
    }
    check(
        count,
        &[
            ("61 (55 cultural, 6 natural)", Some("61")),
            ("0 (2024)", None),
            ("about 5", None),
            ("3 (2024); 5", None),
        ],
    );
    check(percent, &[("85.5% (2023 est.)", Some("85.5%")), ("0% (2023)", None), ("85 (2023)", None)]);
}

#[test]
fn names() {
    check(
        city,
        &[
            ("Hanoi (Ha Noi)", Some("Hanoi")),
            ("Washington, D.C.", Some("Washington, D.C.")),
            ("San Marino (city)", Some("San Marino")),
            ("La Paz (administrative capital); Sucre (constitutional capital)", None),
            ("no official capital; government offices in the Yaren District", None),
            ("Chisinau in Romanian (Kishinev in Russian)", None),
        ],
    );
    check(
        name,
        &[
            ("Siam", Some("Siam")),
            ("none", None),
            ("Serendib, Ceylon", None),
            ("Ellas or Ellada", None),
            ("Cocos (Keeling) Islands Shire Council", None),
            ("National Assembly (Bunge)", Some("National Assembly")),
        ],
    );
    check(
        legislature,
        &[("The Cortes (Las Cortes Generales)", Some("Cortes")), ("Parliament", Some("Parliament"))],
    );
    check(
        symbol,
        &[
            ("troupial (bird)", Some("troupial")),
            ("lion, elephant", None),
            ("red cross on white field", None),
        ],
    );
    check(
        official_name,
        &[("Republic of Kenya", Some("Republic of Kenya")), ("United Kingdom; note - the island", None)],
    );
    check(only_neighbour, &[("Spain 1.2 km", Some("Spain")), ("Belgium 130 km; France 69 km", None)]);
}

#[test]
fn codes_dates_and_nouns() {
    check(internet_code, &[(".ke", Some(".ke")), (".gp; note - .fr is used", None), ("ke", None)]);
    check(aircraft_prefix, &[("5Y", Some("5Y")), ("C-FXXX, CF", None)]);
    check(
        holiday_date,
        &[
            ("Jamhuri Day (Independence Day), 12 December (1963)", Some("12 December")),
            ("Independence and Republic Day, 12 March (1968, 1992)", Some("12 March")),
            ("Independence Day, 5 July (1962); Revolution Day, 1 November (1954)", None),
            ("Naadam (games) holiday, 11-15 July", None),
            ("Constitution Day, the first Monday in August (1965)", None),
        ],
    );
    let aliases = holiday_date("Independence Day, 11 August (1960)").unwrap().aliases;
    assert_eq!(aliases, ["August 11", "11 August 1960", "August 11, 1960"]);
    check(
        full_date,
        &[
            ("12 December 1963 (from the UK)", Some("12 December 1963")),
            ("none (overseas collectivity of France)", None),
            ("19 July 1949 (from France); 22 October 1953 (Franco-Lao Treaty)", None),
        ],
    );
    check(
        demonym,
        &[
            ("Kenyan(s)", Some("Kenyan")),
            ("Swiss (singular and plural)", Some("Swiss")),
            ("Mosotho (singular), Basotho (plural)", Some("Mosotho")),
            ("Kittitian(s), Nevisian(s)", None),
            ("Lao(s) or Laotian(s)", None),
            ("none", None),
        ],
    );
}

#[test]
fn titles_currencies_cities_and_colours() {
    check(
        anthem_title,
        &[
            ("\"God Save the King\"", None),
            ("\"L'Aube Nouvelle\" (The Dawn of a New Day)", Some("L'Aube Nouvelle")),
            ("“Mila Rodino” (Dear Homeland)", Some("Mila Rodino")),
            ("\"Kalibusiswe\" [Ndebele] \"Simudzai\" [Shona]", None),
        ],
    );
    check(
        currency,
        &[
            ("Kenyan shillings (KES) per US dollar -", Some("Kenyan shillings")),
            ("Tuvaluan dollars or Australian dollars (AUD) per US dollar -", None),
            ("Aruban guilders/florins per US dollar -", None),
        ],
    );
    assert_eq!(currency("euros (EUR) per US dollar -").unwrap().aliases, ["euro", "EUR"]);
    check(
        largest_city,
        &[
            ("11.070 million BANGKOK (capital), 1.359 million Samut Prakan (2023)", Some("Bangkok")),
            ("15.946 million Lagos, 3.840 million ABUJA (capital) (2023)", Some("Lagos")),
            ("1.936 million LA PAZ (capital) (2022); 278,000 Sucre (2018)", None),
            ("1.5 million A, 1.5 million B (2023)", None),
            ("1.454 Chon Buri (2023)", None),
        ],
    );
    check(colours, &[("red, white", Some("red, white")), ("red", None), ("red, white; blue", None)]);
    let flag = colours("red, white, blue").unwrap();
    assert!(flag.aliases.iter().any(|alias| alias == "blue, red and white"));
}
