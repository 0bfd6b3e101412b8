//! Names of functions as people say them: without parameters and template arguments.

/// A name without what stands in parentheses and angle brackets, and without what compilers add behind it. Which overload
/// it is does not show.
pub fn short(name: &str) -> String {
    let plain = without_brackets(without_clones(name));
    let plain = without_result(&plain);
    if plain.is_empty() { name.to_owned() } else { plain.to_owned() }
}

/// What precedes the marks of copies that a compiler made: `[clone ...]`, `.constprop.0`, `.part.1`, `.isra.0`, `.cold`,
/// `.llvm.123`, and Rust's hash.
pub(super) fn without_clones(name: &str) -> &str {
    let name = name.split(" [clone ").next().unwrap_or(name);
    let mut name = name.trim_end();
    while let Some((before, suffix)) = name.rsplit_once('.') {
        let is_number = !suffix.is_empty() && suffix.bytes().all(|byte| byte.is_ascii_digit());
        if before.is_empty() || !(is_number || CLONES.contains(&suffix)) {
            break;
        }
        name = before;
    }
    match name.rsplit_once("::h") {
        Some((before, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => before,
        _ => name,
    }
}

/// What GCC and LLVM append to the copies that they make of functions.
const CLONES: [&str; 13] = [
    "constprop",
    "part",
    "isra",
    "cold",
    "llvm",
    "lto_priv",
    "localalias",
    "specialized",
    "resume",
    "destroy",
    "cleanup",
    "__uniq",
    "_omp_fn",
];

/// Leaves out angle brackets and parentheses with what is in them. Those that are part of a name stay: `operator<`,
/// `operator()`, `(anonymous namespace)`, `<T as Trait>::method`.
fn without_brackets(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut depth = 0usize;
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        if depth == 0
            && let Some(whole) = kept(rest, &out)
        {
            out.push_str(whole);
            rest = &rest[whole.len()..];
            continue;
        }
        match first {
            // The arrow of a lambda's or a Rust function's result closes nothing.
            '-' if rest.starts_with("->") => rest = &rest[1..],
            '<' | '(' => depth += 1,
            '>' | ')' if depth > 0 => depth -= 1,
            other if depth == 0 => out.push(other),
            _ => {}
        }
        rest = &rest[first.len_utf8().min(rest.len())..];
    }
    // Behind the parameters stands at most a qualifier.
    let trimmed = out.trim();
    ["const", "volatile", "&", "&&"]
        .iter()
        .fold(trimmed, |text, word| text.strip_suffix(&format!(" {word}")).unwrap_or(text))
        .trim_end()
        .to_owned()
}

/// The part at the beginning of `rest` whose brackets belong to the name.
fn kept<'a>(rest: &'a str, before: &str) -> Option<&'a str> {
    const WHOLE: [&str; 2] = ["(anonymous namespace)", "<impl "];
    const OPERATORS: [&str; 12] = [
        "operator<=>",
        "operator<<=",
        "operator>>=",
        "operator<<",
        "operator>>",
        "operator<=",
        "operator>=",
        "operator->*",
        "operator->",
        "operator()",
        "operator<",
        "operator>",
    ];
    if let Some(operator) = OPERATORS.iter().find(|operator| rest.starts_with(**operator)) {
        return Some(&rest[..operator.len()]);
    }
    if rest.starts_with(WHOLE[0]) {
        return Some(&rest[..WHOLE[0].len()]);
    }
    // Rust's `<T as Trait>::method` and `<impl T for U>::method`: brackets at the beginning of a part.
    let begins = before.is_empty() || before.ends_with("::");
    if rest.starts_with('<') && begins {
        let end = closing(rest)?;
        return rest[end..].starts_with("::").then_some(&rest[..end]);
    }
    None
}

/// Where the bracket that `text` begins with is closed.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut last = ' ';
    for (index, character) in text.char_indices() {
        match character {
            '<' => depth += 1,
            '>' if last != '-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(index + 1);
        }
        last = character;
    }
    None
}

/// Functions that come from templates have their result before their name: `void ns::f<int>(int)`.
fn without_result(name: &str) -> &str {
    let mut start = 0;
    let mut depth = 0usize;
    for (index, character) in name.char_indices() {
        match character {
            '<' | '(' | '{' => depth += 1,
            '>' | ')' | '}' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 => {
                let operator = name[start..index].ends_with("operator");
                let conversion = name[start..index].contains("operator ");
                if operator || conversion {
                    return &name[start..];
                }
                start = index + 1;
            }
            _ => {}
        }
    }
    &name[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_and_arguments_go() {
        for (name, expected) in [
            ("main", "main"),
            ("llama_context::llama_context(llama_model const&, int)", "llama_context::llama_context"),
            ("std::vector<int, std::allocator<int> >::push_back(int const&)", "std::vector::push_back"),
            (
                "void at::native::gpu_kernel<Op<int> >(at::TensorIteratorBase&, Op<int> const&)",
                "at::native::gpu_kernel",
            ),
            (
                "at::(anonymous namespace)::wrapper_CUDA_add(at::Tensor const&)",
                "at::(anonymous namespace)::wrapper_CUDA_add",
            ),
            ("foo::operator()(int) const", "foo::operator()"),
            ("foo::operator<<(std::ostream&)", "foo::operator<<"),
            ("operator new(unsigned long)", "operator new"),
            ("foo::operator bool() const", "foo::operator bool"),
            ("run()::{lambda(int)#1}::operator()(int) const", "run::{lambda#1}::operator()"),
            ("<alloc::vec::Vec<T> as core::ops::Drop>::drop", "<alloc::vec::Vec<T> as core::ops::Drop>::drop"),
            ("core::ops::function::FnOnce<fn() -> i32>::call_once", "core::ops::function::FnOnce::call_once"),
            ("foo::bar() [clone .constprop.0]", "foo::bar"),
            ("alloc_buffer.part.0", "alloc_buffer"),
            ("alloc_buffer.isra.0.cold", "alloc_buffer"),
            ("pool_grow.llvm.1234567890", "pool_grow"),
            ("foo::bar::h0123456789abcdef", "foo::bar"),
            ("foo::bar::hello", "foo::bar::hello"),
            ("broken<int", "broken"),
            ("broken>)", "broken>)"),
            ("<", "<"),
            ("", ""),
        ] {
            assert_eq!(short(name), expected, "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_has_a_short_form(name in "[a-z<>()\\[\\]{}:.&* \\-]{0,60}|\\PC{0,30}") {
            let short = short(&name);
            proptest::prop_assert!(short.len() <= name.len() && short.is_empty() == name.is_empty());
        }
    }
}
