//! The picture of the way of a request in the README and the guide, in a browser.

use std::fs;
use std::path::Path;

use super::chromium::dom;

/// Every text must stand inside of the smallest shape around its middle. Says which does not, and how many there are.
const CHECK: &str = r#"
<script>
const svg = document.querySelector('svg');
const boxes = [...svg.querySelectorAll('rect, circle')].map(shape => shape.getBBox());
const texts = [...svg.querySelectorAll('text')];
const wrong = texts.filter(text => {
    const at = text.getBBox(), x = at.x + at.width / 2, y = at.y + at.height / 2;
    const around = boxes.filter(b => b.x <= x && x <= b.x + b.width && b.y <= y && y <= b.y + b.height);
    around.sort((a, b) => a.width * a.height - b.width * b.height);
    const b = around[0];
    const beside = at.x < b.x + 2 || at.x + at.width > b.x + b.width - 2;
    return beside || at.y < b.y || at.y + at.height > b.y + b.height;
});
document.title = texts.length + ' texts, outside: ' + wrong.map(text => text.textContent).join('; ');
</script>
"#;

#[tokio::test]
async fn its_texts_stand_inside_of_its_boxes() {
    let picture = include_str!("../../src/docs/way.svg");
    // Blank lines would end it in the guide, whose pages are Markdown.
    assert!(!picture.contains("\n\n"), "{picture}");
    let page = format!("<!DOCTYPE html><body style='width: 860px'>{picture}{CHECK}");
    let file =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("way-{}.html", std::process::id()));
    fs::write(&file, page).unwrap();
    let dom = dom(&format!("file://{}", file.display())).await;
    fs::remove_file(&file).unwrap();
    let texts = picture.matches("<text").count();
    assert!(texts > 20, "{picture}");
    let title = format!("<title>{texts} texts, outside: </title>");
    assert!(dom.contains(&title), "{dom}");
}

#[test]
fn it_has_the_exits_that_the_readme_lists() {
    let picture = include_str!("../../src/docs/way.svg");
    for word in [
        "invalid-key",
        "contended",
        "wait-timeout",
        "queue-full",
        "no-quorum",
        "lock-lost",
    ] {
        assert!(picture.contains(word), "{word}");
        assert!(
            include_str!("../../README.md").contains(&format!("`{word}`")),
            "{word}"
        );
    }
    assert!(include_str!("../../README.md").contains("](src/docs/way.svg)"));
}
