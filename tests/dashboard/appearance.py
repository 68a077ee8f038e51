"""What a browser finds wrong with the appearance of a page: scripts that return a list of texts."""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

# Words of the dashboard's own that stand on two lines.
BROKEN = """() => {
  const broken = [];
  for (const element of document.body.querySelectorAll("*:not(.quiet):not(code):not(svg *)")) {
    for (const node of element.childNodes) {
      if (node.nodeType !== 3) continue;
      for (const word of node.nodeValue.matchAll(/\\p{L}{3,14}/gu)) {
        const range = document.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        if (new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1) broken.push(word[0]);
      }
    }
  }
  return broken;
}"""

# Texts of table cells that are printed over one another.
OVERLAPPING = """() => {
  const boxes = [];
  for (const element of document.querySelectorAll("td *, td")) {
    for (const node of element.childNodes) {
      if (node.nodeType !== 3 || !node.nodeValue.trim()) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      for (const box of range.getClientRects()) boxes.push([node.nodeValue.trim(), box]);
    }
  }
  const over = [];
  for (const [n, [text, a]] of boxes.entries()) {
    for (const [other, b] of boxes.slice(n + 1)) {
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 2 && high > 6) over.push(text + " over " + other);
    }
  }
  return over;
}"""


# Words whose color differs too little from their ground: less than 4.5 to 1, as WCAG 2 reckons.
PALE = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const rgb = parse(getComputedStyle(e).backgroundColor);
      if (rgb.length && (rgb.length === 3 || rgb[3] > 0.99)) return rgb.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const pale = [];
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.nodeValue.trim());
    if (!own || element.closest("svg, button:disabled, .skip") || !element.offsetParent) continue;
    const a = light(parse(getComputedStyle(element).color).slice(0, 3)), b = light(ground(element));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) pale.push(element.className + " " + element.textContent.trim().slice(0, 40) + " " + ratio);
  }
  return pale;
}"""


def inaccessible(page: Page) -> list[str]:
    """What is against the Web Content Accessibility Guidelines 2.2, at their level AA, and where."""
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa"]
    # What is in order is not listed element by element, which took a third of the time.
    options = {"runOnly": {"type": "tag", "values": tags}, "resultTypes": ["violations"]}
    found = Axe().run(page, options=options).response["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html']}" for each in found]
