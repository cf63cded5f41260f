// What a person has open, has sorted, has scrolled to and has the focus on, over a page that is drawn anew.

const FOCUSABLE = "a[href], button, input, select, summary, canvas, [tabindex]";
const SCROLLED = ".scroll, .lanes-scroll, .tree, pre.body";

// Notes all that of a page; gives the function that puts it back on the page as it is then, as far as it is still there.
export function keep(page) {
  const focused = page.contains(document.activeElement) ? nameIn(page, FOCUSABLE, document.activeElement) : null;
  const caret = focused && selection(document.activeElement);
  const opened = named(page, "details").filter(([, details]) => details.open).map(([name]) => name);
  const arranged = named(page, "[data-arranged]").map(([name, element]) => [name, element.arrangement()]);
  const scrolled = named(page, SCROLLED).map(([name, element]) => [name, element.scrollTop, element.scrollLeft]).filter(([, top, left]) => top || left);
  const dialog = page.querySelector("dialog[open]")?.getAttribute("aria-labelledby");
  const place = [scrollX, scrollY];

  return () => {
    const first = arrange(page, arranged);
    for (const name of opened) open(new Map(named(page, "details")).get(name)); // one may be made by opening another
    arrange(page, arranged.filter(([name]) => !first.has(name))); // the tables that came with what was opened
    const scrollable = new Map(named(page, SCROLLED));
    for (const [name, top, left] of scrolled) scrollable.get(name)?.scrollTo(left, top);
    if (dialog) page.querySelector(`dialog[aria-labelledby="${dialog}"]`)?.showModal();
    scrollTo(...place);
    const next = focused && new Map(named(page, FOCUSABLE)).get(focused);
    next?.focus({ preventScroll: true });
    if (next && caret) next.setSelectionRange(...caret);
  };
}

// Puts what is there in its arrangement; gives the names of all that is there.
function arrange(page, arranged) {
  const arrangeable = new Map(named(page, "[data-arranged]"));
  for (const [name, arrangement] of arranged) arrangeable.get(name)?.arrange(arrangement);
  return arrangeable;
}

// A table below a picture is made by this event, which a browser sends too late for what follows.
function open(details) {
  if (!details) return;
  details.open = true;
  details.dispatchEvent(new Event("toggle"));
}

// The elements with names that they have on the page drawn anew too: what they are called, and the how many-th so called.
function named(page, selector) {
  const counts = new Map();
  return [...page.querySelectorAll(selector)].map((element) => {
    const own = nameOf(element);
    const count = counts.get(own) || 0;
    counts.set(own, count + 1);
    return [`${own} ${count}`, element];
  });
}

function nameIn(page, selector, element) {
  return named(page, selector).find(([, one]) => one === element)?.[0] ?? null;
}

function nameOf(element) {
  const label = element.id || element.dataset.arranged || element.getAttribute("aria-label") || element.getAttribute("href");
  return `${element.tagName} ${label || (element.firstChild?.textContent || "").slice(0, 80)}`;
}

// Where the caret stands in a field for text; null in anything else.
function selection(element) {
  const isText = element.matches("input[type=search], input[type=text]");
  return isText ? [element.selectionStart, element.selectionEnd] : null;
}
