//! Markdown as GitHub reads it. Texts of a trace are a stranger's: nothing in them becomes a mark-up, a mention or a link.

use crate::words::clean;

/// A fence that no line of a text closes.
const FENCE: &str = "~~~~~~~~";

/// A document that grows block by block.
#[derive(Clone, Debug, Default)]
pub struct Markdown {
    text: String,
}

impl Markdown {
    /// The text so far.
    pub fn into_text(self) -> String {
        self.text
    }

    fn block(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text.trim_end());
        self.text.push('\n');
    }

    /// A heading; the text is plain.
    pub fn heading(&mut self, level: usize, text: &str) {
        self.block(&format!("{} {}", "#".repeat(level), plain(text)));
    }

    /// A paragraph of mark-up.
    pub fn paragraph(&mut self, text: &str) {
        self.block(text);
    }

    /// A list of mark-up; numbered or not.
    pub fn list(&mut self, numbered: bool, items: &[String]) {
        let item = |(index, text): (usize, &String)| match numbered {
            true => format!("{}. {text}", index + 1),
            false => format!("- {text}"),
        };
        let lines: Vec<String> = items.iter().enumerate().map(item).collect();
        if !lines.is_empty() {
            self.block(&lines.join("\n"));
        }
    }

    /// A table of mark-up. Columns whose head begins with `>` hold numbers.
    pub fn table(&mut self, heads: &[&str], rows: &[Vec<String>]) {
        if rows.is_empty() {
            return;
        }
        let names: Vec<&str> = heads.iter().map(|head| head.trim_start_matches('>')).collect();
        let lines: Vec<&str> = heads.iter().map(|head| if head.starts_with('>') { "---:" } else { "---" }).collect();
        let mut text = format!("| {} |\n| {} |\n", names.join(" | "), lines.join(" | "));
        for row in rows {
            text.push_str(&format!("| {} |\n", row.join(" | ")));
        }
        self.block(&text);
    }

    /// Text as it stands.
    pub fn fenced(&mut self, text: &str) {
        let text: Vec<String> = text.lines().map(|line| clean(line).replace(FENCE, "~ ~ ~")).collect();
        self.block(&format!("{FENCE}text\n{}\n{FENCE}", text.join("\n").trim_end()));
    }

    /// A remark of mark-up beside the rest.
    pub fn note(&mut self, text: &str) {
        self.block(&format!("> **Note:** {text}"));
    }

    /// What is folded away until somebody opens it.
    pub fn details(&mut self, title: &str, inside: impl FnOnce(&mut Markdown)) {
        self.block(&format!("<details><summary>{}</summary>", plain(title)));
        inside(self);
        self.block("</details>");
    }

    /// Text as it stands, folded away.
    pub fn folded(&mut self, title: &str, text: &str) {
        self.details(title, |page| page.fenced(text));
    }
}

/// Plain text as mark-up. Behind `#` and `@` stands a sign without width: else they would link and call people.
pub fn plain(text: &str) -> String {
    let mut done = String::with_capacity(text.len());
    for c in clean(text).chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' => done.extend(['\\', c]),
            '<' => done.push_str("&lt;"),
            '>' => done.push_str("&gt;"),
            '&' => done.push_str("&amp;"),
            '#' | '@' => done.extend([c, '\u{2060}']),
            _ => done.push(c),
        }
    }
    done
}

/// Text as code within a line; the sign for columns would end a cell of a table.
pub fn code(text: &str) -> String {
    let text = clean(text).replace('`', "'").replace('|', "¦");
    let text = text.trim();
    if text.is_empty() { String::new() } else { format!("`{text}`") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strangers_text_stays_text() {
        assert_eq!(plain("<b>*x*</b> a_b|c [l](u)"), "&lt;b&gt;\\*x\\*&lt;/b&gt; a\\_b\\|c \\[l\\](u)");
        assert_eq!(plain("@alice #12"), "@\u{2060}alice #\u{2060}12");
        assert_eq!(code("a`b|c\n"), "`a'b¦c\u{fffd}`");
        let mut page = Markdown::default();
        page.fenced(&format!("x\n{FENCE}\n# no heading"));
        let text = page.into_text();
        assert_eq!(text.matches(FENCE).count(), 2, "{text}");
    }

    #[test]
    fn tables_without_rows_and_empty_lists_are_left_out() {
        let mut page = Markdown::default();
        page.table(&["a", ">b"], &[]);
        page.list(true, &[]);
        page.table(&["a", ">b"], &[vec!["x".into(), "1".into()]]);
        assert_eq!(page.into_text(), "| a | b |\n| --- | ---: |\n| x | 1 |\n");
    }
}
