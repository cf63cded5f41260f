// Elements from code. Text becomes text nodes and nothing else, so no recorded content is ever parsed as markup.
import { shown } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : shown(String(child)));
  }
  return element;
}

// An element of HTML with attributes (`on` holds listeners) and children; strings are made visible as text.
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// The same for SVG.
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function replace(parent, ...children) {
  parent.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

// A canvas with as many pixels as the screen has, and its context in CSS pixels.
export function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

// Says something to those who listen to the page.
export function announce(text) {
  const region = document.getElementById("announced");
  if (region) region.textContent = text;
}

// What stands where nothing is, with the reason.
export function empty(title, reason) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), h("p", null, withCode(reason)));
}

// A sentence of ours, with what stands between `backticks` as code.
export function withCode(sentence) {
  return sentence.split("`").map((part, at) => (at % 2 ? h("code", null, part) : part));
}

// Calls `work` once for many requests before the next frame.
export function framed(work) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      work();
    });
  };
}
