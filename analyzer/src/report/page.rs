//! Lines of text for a given width: nothing is longer, and colours are there only where they are wanted.

use anstyle::{AnsiColor, Style};

/// Narrowest page; a narrower terminal wraps by itself.
pub const MIN_WIDTH: usize = 80;
/// Widest page: longer lines are hard to read.
pub const MAX_WIDTH: usize = 120;

/// How a page looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Characters in a line.
    pub width: usize,
    /// Whether colours are wanted.
    pub colours: bool,
    /// Whether also that is wanted which few need.
    pub full: bool,
}

impl Look {
    /// For a width that may be any.
    pub fn new(width: usize, colours: bool) -> Self {
        Look { width: width.clamp(MIN_WIDTH, MAX_WIDTH), colours, full: false }
    }

    /// The same with what few need.
    pub fn full(self, full: bool) -> Self {
        Look { full, ..self }
    }
}

/// What a word is painted as. Colour never says anything that the words do not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// As it is.
    Plain,
    /// A heading.
    Bold,
    /// A failure.
    Failure,
    /// A failure that the program ignored.
    Dropped,
    /// Less important.
    Faint,
}

impl Paint {
    fn style(self) -> Style {
        let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into())).bold();
        match self {
            Paint::Plain => Style::new(),
            Paint::Bold => Style::new().bold(),
            Paint::Failure => colour(AnsiColor::Yellow),
            Paint::Dropped => colour(AnsiColor::Red),
            Paint::Faint => Style::new().dimmed(),
        }
    }
}

/// A text that grows line by line.
#[derive(Clone, Debug)]
pub struct Page {
    /// How it looks.
    pub look: Look,
    text: String,
}

impl Page {
    /// An empty page.
    pub fn new(look: Look) -> Self {
        Page { look, text: String::new() }
    }

    /// The text so far.
    pub fn into_text(self) -> String {
        self.text
    }

    /// An empty line.
    pub fn gap(&mut self) {
        self.text.push('\n');
    }

    /// One line, cut at the width. A cut shows: half a number would be another number.
    pub fn line(&mut self, text: &str) {
        let text = text.trim_end();
        if text.chars().count() <= self.look.width {
            return self.finish(text);
        }
        let kept: String = text.chars().take(self.look.width.saturating_sub(1)).collect();
        self.finish(&format!("{kept}…"));
    }

    /// A line with a left and a right part; the left one is shortened so that both fit.
    pub fn two_sides(&mut self, left: &str, right: &str) {
        let right = crate::words::shorten(right, self.look.width.saturating_sub(24));
        let room = self.look.width.saturating_sub(right.chars().count() + 2);
        let left = crate::words::shorten(left, room);
        self.line(&format!("{left:<room$}  {right}"));
    }

    /// A heading with a paragraph behind it; further lines begin below the paragraph's first word.
    pub fn headed(&mut self, heading: &str, paint: Paint, text: &str) {
        self.paragraph(heading, &" ".repeat(heading.chars().count() + 2), paint, "  ", text);
    }

    /// A paragraph: `first` stands before the first line, `rest` before the others.
    pub fn indented(&mut self, first: &str, rest: &str, text: &str) {
        self.paragraph(first, rest, Paint::Plain, "", text);
    }

    /// A paragraph whose first word is painted.
    pub fn painted(&mut self, indent: &str, word: &str, paint: Paint, text: &str) {
        let first = format!("{indent}{word}");
        let start = self.text.len() + indent.len();
        self.paragraph(&first, indent, Paint::Plain, " ", text);
        if self.look.colours && paint != Paint::Plain {
            let painted = self.paint(word, paint);
            self.text.replace_range(start..start + word.len(), &painted);
        }
    }

    /// A line that is there to be copied: it is never cut, however narrow the page is.
    pub fn verbatim(&mut self, text: &str) {
        self.finish(text);
    }

    fn paragraph(&mut self, first: &str, rest: &str, paint: Paint, between: &str, text: &str) {
        let mut column = first.chars().count();
        let mut line = self.paint(first, paint);
        let mut before = between;
        for word in text.split(' ') {
            let length = word.chars().count();
            if column + before.chars().count() + length > self.look.width && column > rest.chars().count() {
                self.finish(&line);
                line = rest.to_owned();
                (column, before) = (rest.chars().count(), "");
            }
            line.push_str(before);
            // A single word that is longer than a line is the only thing that is cut.
            let room = self.look.width.saturating_sub(column + before.chars().count()).max(8);
            let word = crate::words::shorten(word, room);
            column += before.chars().count() + word.chars().count();
            line.push_str(&word);
            before = " ";
        }
        self.finish(&line);
    }

    fn finish(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// A word as it is painted on this page.
    pub fn paint(&self, word: &str, paint: Paint) -> String {
        if !self.look.colours || paint == Paint::Plain {
            return word.to_owned();
        }
        let style = paint.style();
        format!("{style}{word}{style:#}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_keep_the_width_and_their_indent() {
        let mut page = Page::new(Look::new(80, false));
        page.headed("VERDICT", Paint::Bold, &"twelve words ".repeat(20));
        page.indented("  - ", "    ", &"x".repeat(300));
        let text = page.into_text();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let second = text.lines().nth(1).unwrap();
        assert!(second.starts_with("         ") && !second.starts_with("          "), "{text}");
    }

    #[test]
    fn a_line_that_is_cut_says_so() {
        let mut page = Page::new(Look::new(80, false));
        page.line(&format!("{:>80}  ", 12345));
        page.line(&format!("{:>82}", 12345));
        let text = page.into_text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("12345") && lines[1].ends_with("12…") && lines[1].chars().count() == 80, "{text}");
    }

    #[test]
    fn colours_take_no_room() {
        let mut plain = Page::new(Look::new(80, false));
        let mut colourful = Page::new(Look::new(80, true));
        for page in [&mut plain, &mut colourful] {
            page.painted("    ", "dropped:", Paint::Dropped, "the program went on");
        }
        let (plain, colourful) = (plain.into_text(), colourful.into_text());
        assert_eq!(plain, "    dropped: the program went on\n");
        assert_eq!(anstream::adapter::strip_str(&colourful).to_string(), plain);
        assert!(colourful.contains("\x1b["));
    }
}
