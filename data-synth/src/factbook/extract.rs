//! From the text of a field to one short answer, or to the reason why there is none.
//!
//! The Factbook writes for readers: remarks, ranges, several values. An extractor accepts only the forms that it
//! understands completely and refuses the rest, so that an answer is never half a value.

use std::sync::LazyLock;

use regex::Regex;

/// One short answer found in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The answer as one would say it.
    pub answer: String,
    /// Other ways of saying the same.
    pub aliases: Vec<String>,
    /// The answer as it stands in the text, letter by letter.
    pub finding: String,
}

/// Why a text holds no usable answer, in words.
pub type Messy = &'static str;

impl Value {
    fn plain(answer: &str) -> Self {
        Self { answer: answer.to_owned(), aliases: Vec::new(), finding: answer.to_owned() }
    }

    fn with_aliases(mut self, aliases: impl IntoIterator<Item = String>) -> Self {
        for alias in aliases {
            if !alias.is_empty() && alias != self.answer && !self.aliases.contains(&alias) {
                self.aliases.push(alias);
            }
        }
        self
    }
}

macro_rules! pattern {
    ($name:ident, $pattern:literal) => {
        static $name: LazyLock<Regex> =
            LazyLock::new(|| Regex::new($pattern).expect("the pattern is a constant and compiles"));
    };
}

pattern!(REMARK, r"\s*\(([^()]*)\)");
pattern!(ELEVATION, r"^(?<name>.*\D)\s(?<metres>-?\d[\d,]*(?:\.\d+)? m)\b(?<rest>.*)$");
pattern!(ONLY_REMARK, r"^\s*(?:\([^()]*\))?\s*$");
pattern!(QUANTITY, r"^(?<number>\d[\d,]*(?:\.\d+)?)\s(?<unit>sq km|km|m|years)\b(?<rest>.*)$");
pattern!(COUNT, r"^(?<number>\d[\d,]*)\s*(?:\([^()]*\))?\s*$");
pattern!(PERCENT, r"^(?<number>\d+(?:\.\d+)?)%\s*(?:\([^()]*\))?\s*$");
pattern!(HOLIDAY, r"^[^;]*,\s(?<day>\d{1,2}) (?<month>[A-Z][a-z]+)(?: \((?<years>[^()]*)\))?$");
pattern!(FULL_DATE, r"^(?<day>\d{1,2}) (?<month>[A-Z][a-z]+) (?<year>\d{3,4})\s*(?:\([^();]*\))?$");
pattern!(
    MONTH_NAME,
    r"\b(?:January|February|March|April|May|June|July|August|September|October|November|December)\b"
);
pattern!(INTERNET_CODE, r"^\.[a-z]{2}$");
pattern!(AIRCRAFT_PREFIX, r"^[A-Z0-9]{1,3}$");
pattern!(REGULAR_NOUN, r"^(?<stem>[\p{L}' -]+)\((?<ending>s|es)\)$");
pattern!(INVARIABLE_NOUN, r"^(?<noun>[\p{L}' -]+) \(singular and plural\)$");
pattern!(IRREGULAR_NOUN, r"^(?<one>[\p{L}' -]+) \(singular\), (?<many>[\p{L}' -]+) \(plural\)$");
pattern!(TITLE, r#"^["“”](?<title>[^"“”;]+)["“”]\s*(?:\((?<translation>[^()]+)\))?$"#);
pattern!(CURRENCY, r"^(?<name>[\p{L}' -]+?)(?: \((?<code>[A-Z]{3})\))? per US dollar\b");
pattern!(
    CITY,
    r"^(?<number>\d+(?:\.\d+)? million|\d{1,3}(?:,\d{3})+) (?<name>[^\d()]+?)(?<remarks>(?: \([^()]*\))*)$"
);
pattern!(NEIGHBOUR, r"^(?<name>[^\d();,]+?) \d[\d,]*(?:\.\d+)? km$");

/// Remarks that say where something lies are no other name for it.
fn is_other_name(remark: &str) -> bool {
    let words = remark.split_whitespace().count();
    words <= 4
        && remark.starts_with(char::is_uppercase)
        && !remark.contains([',', ';', ':', '"', '/'])
        && !remark.split_whitespace().any(|word| {
            matches!(
                word,
                "on" | "in" | "for" | "of" | "from" | "with" | "or" | "and" | "located" | "capital"
            )
        })
}

/// The text without its remarks in parentheses, and those remarks that are other names for it.
fn split_remarks(text: &str) -> (String, Vec<String>) {
    let other_names = REMARK
        .captures_iter(text)
        .map(|found| found[1].trim().to_owned())
        .filter(|remark| is_other_name(remark))
        .collect();
    (REMARK.replace_all(text, "").trim().to_owned(), other_names)
}

/// A proper name that consists of nothing but the name.
fn proper_name(text: &str) -> Result<Value, Messy> {
    let (name, other_names) = split_remarks(text);
    if !text.contains(&name) {
        return Err("a remark in the middle of the value");
    }
    if name.is_empty() || name.eq_ignore_ascii_case("none") || name == "NA" {
        return Err("the field says that there is none");
    }
    if name.contains([';', ',', ':', '(', ')', '[', ']', '/']) {
        return Err("several values, or a remark that cannot be told from the value");
    }
    if name.contains(" or ") || name.contains("note") || name.contains("referred to") {
        return Err("a remark that cannot be told from the value");
    }
    if name.chars().count() > 60 {
        return Err("longer than a name");
    }
    let finding = name.clone();
    Ok(Value { answer: name, aliases: Vec::new(), finding }.with_aliases(other_names))
}

/// `Mount Kenya 5,199 m`: the name.
pub fn elevation_name(text: &str) -> Result<Value, Messy> {
    let parts = ELEVATION.captures(text).ok_or("no elevation in metres after the name")?;
    if !ONLY_REMARK.is_match(&parts["rest"]) {
        return Err("more text after the elevation");
    }
    let value = proper_name(&parts["name"])?;
    let words: Vec<&str> = value.answer.split_whitespace().collect();
    if !value.answer.starts_with(char::is_uppercase) {
        return Err("a description, not a name");
    }
    if words.iter().any(|word| {
        matches!(
            *word,
            "unnamed" | "junction" | "near" | "location" | "on" | "bei" | "and" | "than" | "km" | "range"
        )
    }) {
        return Err("a description, not a name");
    }
    if value.answer.contains(|letter: char| letter.is_ascii_digit()) && words.len() > 1 {
        return Err("a description, not a name");
    }
    Ok(value)
}

/// `Mount Kenya 5,199 m`: the elevation.
pub fn elevation_height(text: &str) -> Result<Value, Messy> {
    let parts = ELEVATION.captures(text).ok_or("no elevation in metres after the name")?;
    if !ONLY_REMARK.is_match(&parts["rest"]) {
        return Err("more text after the elevation");
    }
    if parts["name"].contains(';') || parts["name"].contains(" m ") {
        return Err("several elevations");
    }
    quantity(&parts["metres"])
}

/// `536 km`, `580,367 sq km`, `762 m`, `20.5 years (2025 est.)`: number and unit. Zero is refused.
///
/// The number alone is no alias: judges let it stand for the number with its unit, while as a reference of its own it
/// would let any unit stand that the question happens to name.
pub fn quantity(text: &str) -> Result<Value, Messy> {
    let parts = QUANTITY.captures(text).ok_or("no number with a unit at the beginning")?;
    let (number, unit) = (&parts["number"], &parts["unit"]);
    let rest = parts["rest"].trim_start();
    if rest.starts_with(['-', '–', '/']) || rest.starts_with("to ") || rest.starts_with("or ") {
        return Err("a range");
    }
    if is_zero(number) {
        return Err("zero");
    }
    let bare = number.replace(',', "");
    let spoken: &[&str] = match unit {
        "sq km" => &["square kilometers", "square kilometres", "km2"],
        "km" => &["kilometers", "kilometres"],
        "m" => &["meters", "metres"],
        _ => &[],
    };
    let mut aliases = vec![format!("{bare} {unit}")];
    for unit in spoken {
        aliases.push(format!("{number} {unit}"));
        aliases.push(format!("{bare} {unit}"));
    }
    Ok(Value::plain(&format!("{number} {unit}")).with_aliases(aliases))
}

/// `61 (55 cultural, 6 natural)`, `1,410,170 (2025 est.)`: the number. Zero is refused.
pub fn count(text: &str) -> Result<Value, Messy> {
    let parts = COUNT.captures(text).ok_or("not a single number")?;
    let number = &parts["number"];
    if is_zero(number) {
        return Err("zero");
    }
    Ok(Value::plain(number).with_aliases([number.replace(',', "")]))
}

/// `85.5% (2023 est.)`: the share. The number alone is no alias, as for a [`quantity`].
pub fn percent(text: &str) -> Result<Value, Messy> {
    let parts = PERCENT.captures(text).ok_or("not a single percentage")?;
    let number = &parts["number"];
    if is_zero(number) {
        return Err("zero");
    }
    Ok(Value::plain(&format!("{number}%"))
        .with_aliases([format!("{number} percent"), format!("{number} per cent")]))
}

fn is_zero(number: &str) -> bool {
    number.chars().all(|letter| matches!(letter, '0' | ',' | '.'))
}

/// `Nairobi`, `Hanoi (Ha Noi)`.
pub fn city(text: &str) -> Result<Value, Messy> {
    let mut value = proper_name(text.strip_suffix(" (city)").unwrap_or(text)).or_else(|messy| {
        // The one capital that is written with a comma of its own.
        if text == "Washington, D.C." {
            Ok(Value::plain(text).with_aliases(["Washington".to_owned()]))
        } else {
            Err(messy)
        }
    })?;
    if text.contains("capital)") || text.contains("seat of government") {
        return Err("several capitals");
    }
    if !value.answer.starts_with(char::is_uppercase)
        || value.answer.split_whitespace().any(|word| word == "in")
    {
        return Err("a description, not a name");
    }
    if let Some(short) = value.answer.strip_suffix(" City") {
        let short = short.to_owned();
        value = value.with_aliases([short]);
    }
    Ok(value)
}

/// A name of any other kind: a former or local name.
pub fn name(text: &str) -> Result<Value, Messy> {
    let value = proper_name(text)?;
    if value.answer.contains(|letter: char| letter.is_ascii_digit()) {
        return Err("a description, not a name");
    }
    Ok(value)
}

/// `National Assembly (Bunge)`, `The Cortes (Las Cortes Generales)`: without the article.
pub fn legislature(text: &str) -> Result<Value, Messy> {
    let value = name(text)?;
    match value.answer.strip_prefix("The ") {
        Some(bare) => Ok(Value::plain(bare).with_aliases(value.aliases)),
        None => Ok(value),
    }
}

/// `lion`, `troupial (bird)`: one symbol, named in few words.
pub fn symbol(text: &str) -> Result<Value, Messy> {
    let value = name(text)?;
    let words: Vec<&str> = value.answer.split_whitespace().collect();
    let described = words.iter().any(|word| {
        matches!(
            *word,
            "and"
                | "with"
                | "over"
                | "under"
                | "on"
                | "in"
                | "between"
                | "known"
                | "each"
                | "no"
                | "official"
        )
    });
    if words.len() > 4 || described {
        return Err("a description, not a name");
    }
    Ok(value)
}

/// `red, white, blue`: two or three colours; their order does not matter.
pub fn colours(text: &str) -> Result<Value, Messy> {
    let colours: Vec<&str> = text.split(", ").collect();
    if !(2..=3).contains(&colours.len()) {
        return Err("not two or three colours");
    }
    let is_colour = |colour: &&str| {
        !colour.is_empty()
            && colour.split(' ').count() <= 2
            && colour.chars().all(|letter| letter.is_lowercase() || letter == ' ' || letter == '-')
            && !colour.split(' ').any(|word| matches!(word, "and" | "or"))
    };
    if !colours.iter().all(is_colour) {
        return Err("not a plain list of colours");
    }
    let orders: &[&[usize]] = if colours.len() == 2 {
        &[&[0, 1], &[1, 0]]
    } else {
        &[&[0, 1, 2], &[0, 2, 1], &[1, 0, 2], &[1, 2, 0], &[2, 0, 1], &[2, 1, 0]]
    };
    let mut aliases = Vec::new();
    for order in orders {
        let list: Vec<&str> = order.iter().map(|&index| colours[index]).collect();
        if let Some((last, first)) = list.split_last() {
            aliases.push(format!("{} and {last}", first.join(", ")));
        }
        aliases.push(list.join(", "));
    }
    Ok(Value::plain(text).with_aliases(aliases))
}

/// `.ke`.
pub fn internet_code(text: &str) -> Result<Value, Messy> {
    let code = text.trim();
    if INTERNET_CODE.is_match(code) { Ok(Value::plain(code)) } else { Err("not a single two-letter code") }
}

/// `5Y`.
pub fn aircraft_prefix(text: &str) -> Result<Value, Messy> {
    let prefix = text.trim();
    if AIRCRAFT_PREFIX.is_match(prefix) { Ok(Value::plain(prefix)) } else { Err("not a single prefix") }
}

/// `Jamhuri Day (Independence Day), 12 December (1963)`: day and month.
pub fn holiday_date(text: &str) -> Result<Value, Messy> {
    let parts = HOLIDAY.captures(text).ok_or("no single day and month at the end")?;
    if MONTH_NAME.find_iter(text).count() != 1 || !MONTH_NAME.is_match(&parts["month"]) {
        return Err("several dates");
    }
    let (day, month) = (&parts["day"], &parts["month"]);
    let mut aliases = vec![format!("{month} {day}")];
    if let Some(year) =
        parts.name("years").map(|years| years.as_str()).filter(|years| years.parse::<u16>().is_ok())
    {
        aliases.push(format!("{day} {month} {year}"));
        aliases.push(format!("{month} {day}, {year}"));
    }
    Ok(Value::plain(&format!("{day} {month}")).with_aliases(aliases))
}

/// `12 December 1963 (from the UK)`: the date.
pub fn full_date(text: &str) -> Result<Value, Messy> {
    let parts = FULL_DATE.captures(text).ok_or("not a single full date")?;
    let (day, month, year) = (&parts["day"], &parts["month"], &parts["year"]);
    if MONTH_NAME.find_iter(text).count() != 1 || !MONTH_NAME.is_match(month) {
        return Err("several dates");
    }
    Ok(Value::plain(&format!("{day} {month} {year}")).with_aliases([format!("{month} {day}, {year}")]))
}

/// `Kenyan(s)`, `Swiss (singular and plural)`, `Mosotho (singular), Basotho (plural)`: the singular.
pub fn demonym(text: &str) -> Result<Value, Messy> {
    if let Some(parts) = REGULAR_NOUN.captures(text) {
        let stem = parts["stem"].trim();
        if stem.contains(" or ") {
            return Err("several nouns");
        }
        return Ok(Value::plain(stem).with_aliases([format!("{stem}{}", &parts["ending"])]));
    }
    if let Some(parts) = INVARIABLE_NOUN.captures(text) {
        return Ok(Value::plain(parts["noun"].trim()));
    }
    if let Some(parts) = IRREGULAR_NOUN.captures(text) {
        return Ok(Value::plain(parts["one"].trim()).with_aliases([parts["many"].trim().to_owned()]));
    }
    Err("not a single noun with its plural")
}

/// `"L'Aube Nouvelle" (The Dawn of a New Day)`: the title, its translation as an alias.
///
/// The royal anthem is refused: for most countries under the crown this edition lists it and leaves out the national
/// one, so that the question would have another answer in the world than in the corpus.
pub fn anthem_title(text: &str) -> Result<Value, Messy> {
    let parts = TITLE.captures(text).ok_or("not a single title in quotation marks")?;
    let title = parts["title"].trim();
    if title == "God Save the King" {
        return Err("the royal anthem, which need not be the national one");
    }
    if title.chars().count() > 70 {
        return Err("longer than a title");
    }
    Ok(Value::plain(title)
        .with_aliases(parts.name("translation").map(|found| found.as_str().trim().to_owned())))
}

/// `Kenyan shillings (KES) per US dollar -`: the currency, its singular and its code as aliases.
pub fn currency(text: &str) -> Result<Value, Messy> {
    let parts = CURRENCY.captures(text).ok_or("not a single currency per US dollar")?;
    let name = &parts["name"];
    if name.contains(" or ") {
        return Err("several currencies");
    }
    let singular = match name.strip_suffix("ies") {
        Some(_) => None,
        None => name.strip_suffix('s').map(str::to_owned),
    };
    let code = parts.name("code").map(|code| code.as_str().to_owned());
    Ok(Value::plain(name).with_aliases(singular.into_iter().chain(code)))
}

/// `4.4 million NAIROBI (capital), 1.3 million Mombassa (2023)`: the city with the largest number.
pub fn largest_city(text: &str) -> Result<Value, Messy> {
    if text.contains(';') || text.contains("note") {
        return Err("figures of several years, or a note");
    }
    let mut cities: Vec<(f64, &str, &str)> = Vec::new();
    for item in text.split(", ") {
        let parts = CITY.captures(item).ok_or("a city that is not written as number and name")?;
        let (number, scale) = match parts["number"].strip_suffix(" million") {
            Some(number) => (number.to_owned(), 1e6),
            None => (parts["number"].replace(',', ""), 1.0),
        };
        let population: f64 = number.parse().map_err(|_| "a population that is not a number")?;
        let name = parts.name("name").map_or("", |found| found.as_str());
        let remarks = parts.name("remarks").map_or("", |found| found.as_str());
        cities.push((population * scale, name, remarks));
    }
    cities.sort_by(|left, right| right.0.total_cmp(&left.0));
    let Some(&(population, name, remarks)) = cities.first() else { return Err("no city") };
    if cities.get(1).is_some_and(|second| second.0 >= population) {
        return Err("two cities of the same size");
    }
    if name.contains(['/', '[', '-']) && name == name.to_uppercase() {
        return Err("a name whose spelling is unclear");
    }
    let (_, other_names) = split_remarks(remarks);
    let spoken = if name == name.to_uppercase() { title_case(name) } else { name.to_owned() };
    Ok(Value { answer: spoken, aliases: Vec::new(), finding: name.to_owned() }.with_aliases(other_names))
}

/// `SANTO DOMINGO` → `Santo Domingo`.
fn title_case(name: &str) -> String {
    let mut cased = String::with_capacity(name.len());
    let mut at_start = true;
    for letter in name.chars() {
        if at_start {
            cased.push(letter);
        } else {
            cased.extend(letter.to_lowercase());
        }
        at_start = letter == ' ';
    }
    cased
}

/// `Spain 1.2 km`: the neighbour, when there is exactly one.
pub fn only_neighbour(text: &str) -> Result<Value, Messy> {
    let parts = NEIGHBOUR.captures(text).ok_or("not exactly one neighbour")?;
    let name = &parts["name"];
    let aliases: &[&str] = match name {
        "UK" => &["United Kingdom"],
        "US" => &["United States"],
        "UAE" => &["United Arab Emirates"],
        _ => &[],
    };
    Ok(Value::plain(name).with_aliases(aliases.iter().map(|alias| (*alias).to_owned())))
}

/// `Republic of Kenya`.
pub fn official_name(text: &str) -> Result<Value, Messy> {
    let value = name(text)?;
    if value.aliases.is_empty() && !text.contains('(') { Ok(value) } else { Err("a remark in the name") }
}

#[cfg(test)]
mod tests;
