//! Puts mutants into the text of a file, each behind the question whether it is switched on.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use proc_macro2::LineColumn;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::listed::{Mutant, Place};

/// The mutants of a file, by where they begin.
#[derive(Default)]
pub(crate) struct Insertions<'a>(BTreeMap<Place, Vec<(usize, &'a Mutant)>>);

/// The text with the mutants, and where in it they are.
pub(crate) struct Inserted {
    pub(crate) text: String,
    /// The questions, each with the number of the mutant.
    pub(crate) questions: Vec<(Range<usize>, usize)>,
    /// What stands there if one is switched on.
    pub(crate) replacements: Vec<(Range<usize>, usize)>,
    /// Expressions with all that stands in their place.
    pub(crate) wraps: Vec<(Range<usize>, Vec<usize>)>,
    /// For these there is no place.
    pub(crate) left_out: Vec<usize>,
}

/// Something in the text that mutants replace, or that stands before it.
struct Change {
    place: Range<usize>,
    kind: Kind,
    /// Each with what stands in the place of the text.
    mutants: Vec<(usize, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Expression,
    /// Before the statements of a function.
    Body,
    /// After the pattern of an arm that has no guard.
    Pattern,
}

impl<'a> Insertions<'a> {
    pub(crate) fn add(&mut self, number: usize, mutant: &'a Mutant) {
        let here = self.0.entry(mutant.span.start).or_default();
        here.push((number, mutant));
    }

    pub(crate) fn put_into(&self, text: &str) -> Inserted {
        let mut finder = Finder {
            text,
            lines: std::iter::once(0)
                .chain(text.match_indices('\n').map(|(at, _)| at + 1))
                .collect(),
            mutants: self,
            changes: Vec::new(),
        };
        finder.visit_file(&syn::parse_file(text).unwrap());
        for (place, mutants) in &self.0 {
            // An iterator that is only said to be one cannot be another one as well.
            let is_body =
                |it: &Mutant| it.genre == "FnValue" && !it.replacement.starts_with("::std::iter::");
            let bodies = mutants.iter().filter(|(_, it)| is_body(it));
            let mutants: Vec<_> = bodies
                .map(|(number, it)| (*number, it.replacement.clone()))
                .collect();
            if !mutants.is_empty() {
                let at = finder.byte(*place);
                finder.changes.push(Change {
                    place: at..at,
                    kind: Kind::Body,
                    mutants,
                });
            }
        }
        let mut changes = finder.changes;
        changes.sort_by_key(|change| (change.place.start, usize::MAX - change.place.end));
        let found = changes
            .iter()
            .flat_map(|change| change.mutants.iter().map(|(number, _)| *number));
        let found: Vec<usize> = found.collect();
        let all = self.0.values().flatten().map(|(number, _)| *number);
        let mut made = Inserted {
            text: String::new(),
            questions: Vec::new(),
            replacements: Vec::new(),
            wraps: Vec::new(),
            left_out: all.filter(|number| !found.contains(number)).collect(),
        };
        made.write(text, 0..text.len(), &changes);
        made
    }
}

impl Inserted {
    /// Writes a part of the text, with the changes in it, of which the outer ones come first.
    fn write(&mut self, text: &str, part: Range<usize>, mut changes: &[Change]) {
        let mut at = part.start;
        while let Some((change, rest)) = changes.split_first() {
            let inner = rest
                .iter()
                .take_while(|it| it.place.start < change.place.end)
                .count();
            let (inner, rest) = rest.split_at(inner);
            changes = rest;
            self.text.push_str(&text[at..change.place.start]);
            at = change.place.end;
            let begin = self.text.len();
            let mut first = true;
            self.text.push_str(if change.kind == Kind::Expression {
                "("
            } else {
                " "
            });
            for (number, replacement) in &change.mutants {
                let before = self.text.len();
                let question = format!("crate::mutant::is({number})");
                match change.kind {
                    Kind::Expression => write!(
                        self.text,
                        "{} {question} ",
                        if first { "if" } else { "else if" }
                    ),
                    Kind::Body => write!(self.text, "if {question} "),
                    Kind::Pattern => write!(
                        self.text,
                        "{} !{question} ",
                        if first { "if" } else { "&&" }
                    ),
                }
                .unwrap();
                first = false;
                self.questions.push((before..self.text.len(), *number));
                let before = self.text.len();
                match change.kind {
                    Kind::Expression => write!(self.text, "{{ {replacement} }} "),
                    Kind::Body => write!(self.text, "{{ return {replacement}; }} "),
                    Kind::Pattern => Ok(()),
                }
                .unwrap();
                self.replacements.push((before..self.text.len(), *number));
            }
            if change.kind == Kind::Expression {
                self.text.push_str("else { ");
                self.write(text, change.place.clone(), inner);
                self.text.push_str(" })");
            }
            let numbers = change.mutants.iter().map(|(number, _)| *number).collect();
            self.wraps.push((begin..self.text.len(), numbers));
        }
        self.text.push_str(&text[at..part.end]);
    }
}

/// Finds what the mutants of operators and arms replace.
struct Finder<'a> {
    text: &'a str,
    /// Where each line begins.
    lines: Vec<usize>,
    mutants: &'a Insertions<'a>,
    changes: Vec<Change>,
}

impl Finder<'_> {
    fn byte(&self, Place { line, column }: Place) -> usize {
        let begin = self.lines[line - 1];
        let mut places = self.text[begin..].char_indices().map(|(at, _)| begin + at);
        places.nth(column - 1).unwrap_or(self.text.len())
    }

    fn range(&self, of: &impl Spanned) -> Range<usize> {
        let span = of.span();
        self.byte(place(span.start()))..self.byte(place(span.end()))
    }

    fn text_of(&self, of: &impl Spanned) -> &str {
        &self.text[self.range(of)]
    }

    fn at(&self, of: &impl Spanned, genre: &str) -> Vec<(usize, &str)> {
        let here = self.mutants.0.get(&place(of.span().start()));
        let here = here
            .into_iter()
            .flatten()
            .filter(|(_, it)| it.genre == genre);
        here.map(|(number, it)| (*number, &*it.replacement))
            .collect()
    }

    fn change(&mut self, place: Range<usize>, kind: Kind, mutants: Vec<(usize, String)>) {
        if !mutants.is_empty() {
            self.changes.push(Change {
                place,
                kind,
                mutants,
            });
        }
    }
}

fn place(it: LineColumn) -> Place {
    Place {
        line: it.line,
        column: it.column + 1,
    }
}

/// Whether an expression binds variables for what comes after it.
fn binds(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(it) => binds(&it.left) || binds(&it.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_expr_binary(&mut self, it: &'ast syn::ExprBinary) {
        if !binds(&it.left) && !binds(&it.right) {
            let (left, right) = (self.text_of(&it.left), self.text_of(&it.right));
            let mutants = self.at(&it.op, "BinaryOperator").into_iter();
            let mutants = mutants
                .map(|(number, op)| (number, format!("{left} {op} {right}")))
                .collect();
            self.change(self.range(it), Kind::Expression, mutants);
        }
        visit::visit_expr_binary(self, it);
    }

    fn visit_expr_unary(&mut self, it: &'ast syn::ExprUnary) {
        let operand = self.text_of(&it.expr);
        let mutants = self.at(&it.op, "UnaryOperator").into_iter();
        let mutants = mutants
            .map(|(number, op)| (number, format!("{op}{operand}")))
            .collect();
        self.change(self.range(it), Kind::Expression, mutants);
        visit::visit_expr_unary(self, it);
    }

    fn visit_expr_match(&mut self, it: &'ast syn::ExprMatch) {
        let takes_all = |arm: &syn::Arm| {
            let is_open = matches!(arm.pat, syn::Pat::Wild(_));
            is_open && arm.guard.is_none()
        };
        let has_rest = it.arms.iter().any(takes_all);
        for arm in &it.arms {
            let deleted = self.at(arm, "MatchArm").into_iter();
            let deleted = deleted
                .filter(|_| has_rest)
                .map(|(number, _)| (number, "false".to_owned()));
            match &arm.guard {
                Some((_, guard)) => {
                    let constant = self.at(guard, "MatchArmGuard").into_iter();
                    let constant = constant.map(|(number, constant)| (number, constant.to_owned()));
                    let mutants = constant.chain(deleted).collect();
                    self.change(self.range(guard), Kind::Expression, mutants);
                }
                None => {
                    let mutants = deleted.collect();
                    let end = self.range(&arm.pat).end;
                    self.change(end..end, Kind::Pattern, mutants);
                }
            }
        }
        visit::visit_expr_match(self, it);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listed::Span;

    const TEXT: &str = "\
fn f(a: u8) -> bool {
    match a {
        1 if a > 2 => !g(),
        3 => a < 4 && a < 5,
        _ => true,
    }
}
";

    #[test]
    fn each_mutant_stands_behind_its_question() {
        let mutants = [
            ("FnValue", (2, 5), "false"),
            ("MatchArmGuard", (3, 14), "true"),
            ("UnaryOperator", (3, 23), ""),
            ("MatchArm", (4, 9), ""),
            ("BinaryOperator", (4, 20), "||"),
            ("BinaryOperator", (4, 16), "<="),
            ("StructField", (5, 9), ""),
        ];
        let mutants = mutants.map(|(genre, (line, column), replacement)| {
            let start = Place { line, column };
            Mutant {
                file: String::new(),
                genre: genre.to_owned(),
                name: String::new(),
                replacement: replacement.to_owned(),
                span: Span { start },
            }
        });
        let mut insertions = Insertions::default();
        for (number, mutant) in mutants.iter().enumerate() {
            insertions.add(number, mutant);
        }
        let made = insertions.put_into(TEXT);
        assert_eq!(made.left_out, [6], "there is no other way to write it");
        let is = |number| format!("crate::mutant::is({number})");
        let less = format!("(if {} {{ a <= 4 }} else {{ a < 4 }})", is(5));
        let arm = format!(
            "(if {} {{ a < 4 || a < 5 }} else {{ {less} && a < 5 }})",
            is(4)
        );
        let expected = TEXT
            .replace(
                "    match",
                &format!("     if {} {{ return false; }} match", is(0)),
            )
            .replace(
                "a > 2",
                &format!("(if {} {{ true }} else {{ a > 2 }})", is(1)),
            )
            .replace("!g()", &format!("(if {} {{ g() }} else {{ !g() }})", is(2)))
            .replace("3 =>", &format!("3 if !{}  =>", is(3)))
            .replace("a < 4 && a < 5", &arm);
        assert_eq!(made.text, expected);
        for (range, number) in made.questions {
            assert!(made.text[range].contains(&is(number)));
        }
    }
}
