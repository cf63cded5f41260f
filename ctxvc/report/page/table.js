// A table that sorts by its columns and shows long lists a part at a time.
import { h, replace } from "./dom.js";
import { whole } from "./text.js";

const PART = 200;

// Columns are `{name, cell(row), sort(row), number, wide}`; `sort` gives what a column is sorted by, where it can be.
export function table(caption, columns, rows, { sorted = null, part = PART } = {}) {
  const body = h("tbody");
  const more = h("button", { type: "button", class: "more" });
  let order = sorted;
  let shownRows = part;
  const heads = columns.map((column, index) => head(column, () => sortBy(index)));
  const element = h(
    "div",
    { "data-arranged": caption },
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
      h("table", null, h("caption", { class: "visually-hidden" }, caption), h("thead", null, h("tr", null, heads)), body),
    ),
    more,
  );
  more.addEventListener("click", () => {
    shownRows += 5 * part;
    draw();
  });
  element.fill = (next) => {
    rows = next;
    shownRows = part;
    draw();
  };
  element.arrangement = () => [order, shownRows];
  element.arrange = (arrangement) => {
    [order, shownRows] = arrangement;
    draw();
  };
  draw();
  return element;

  function sortBy(index) {
    order = order?.[0] === index ? [index, -order[1]] : [index, columns[index].number ? -1 : 1];
    draw();
  }

  function draw() {
    const all = order ? rows.toSorted((a, b) => order[1] * compare(columns[order[0]].sort(a), columns[order[0]].sort(b))) : rows;
    heads.forEach((cell, index) => {
      if (!columns[index].sort) return;
      cell.setAttribute("aria-sort", order?.[0] === index ? (order[1] > 0 ? "ascending" : "descending") : "none");
    });
    replace(body, all.slice(0, shownRows).map((row) => h("tr", null, columns.map((column) => cell(column, row)))));
    more.hidden = all.length <= shownRows;
    more.textContent = `Show more of ${whole(all.length)}`;
  }
}

function head(column, sort) {
  const name = column.sort ? h("button", { type: "button", on: { click: sort } }, column.name) : column.name;
  return h("th", { scope: "col", class: column.number ? "number" : null, "aria-sort": column.sort ? "none" : null }, name);
}

function cell(column, row) {
  const style = [column.number ? "number" : "", column.wide ? "wide" : ""].join(" ").trim();
  return h("td", { class: style || null }, column.cell(row));
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a ?? "").localeCompare(String(b ?? ""), "en", { numeric: true });
}

// A picture's table, folded below it; made when it is opened for the first time.
export function tableBelow(title, make) {
  const details = h("details", null, h("summary", null, title));
  let list = null;
  details.addEventListener("toggle", () => {
    if (!details.open || list) return;
    list = make();
    details.append(list);
  });
  details.fill = (rows) => list?.fill(rows);
  return details;
}
