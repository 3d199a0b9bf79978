// SPDX-License-Identifier: MIT
// All elements are built here. Text always becomes a text node, so a name that looks like markup stays text.

const PROPERTIES = new Set(['value', 'checked', 'disabled', 'indeterminate', 'hidden', 'textContent', 'selected', 'open']);

function fill(el, props, children) {
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) el.addEventListener(key.slice(2), value);
    else if (PROPERTIES.has(key)) el[key] = value;
    else el.setAttribute(key, value === true ? '' : value);
  }
  add(el, children);
  return el;
}

export function add(el, ...children) {
  el.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
  return el;
}

export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);

// The elements that pages are mostly made of.
export const div = (kind, ...children) => h('div', { class: kind }, children);
export const muted = (...children) => h('span', { class: 'muted' }, children);
export const p = (...children) => h('p', {}, children);
export const h1 = (...children) => h('h1', {}, children);
export const h2 = (title) => h('h2', {}, title);
export const a = (href, ...children) => h('a', { href }, children);
export const gap = () => h('span', { class: 'grow' });
export const errorLine = () => h('p', { class: 'error', role: 'alert', hidden: true });

export const s = (tag, props, ...children) => fill(document.createElementNS('http://www.w3.org/2000/svg', tag), props, children);

// The focus stays at the same button or link.
export function swap(el, ...children) {
  const all = () => [...el.querySelectorAll('a, button')];
  const at = all().indexOf(document.activeElement);
  el.replaceChildren();
  add(el, children);
  all()[at]?.focus({ preventScroll: true });
  return el;
}

// Writes only if the text differs: otherwise every update would make a screen reader and the layout work.
export function text(el, value) {
  const string = String(value);
  if (el.textContent !== string) el.textContent = string;
}

// A text that a client chose, isolated so that its direction does not reorder what is around it.
export const name = (value, more = '') => h('bdi', { class: `name ${more}` }, value);

// The same inside a longer string, such as a label: FIRST STRONG ISOLATE … POP DIRECTIONAL ISOLATE.
export const iso = (value) => `\u2068${value}\u2069`;

export const mono = (value) => h('bdi', { class: 'mono' }, value);

export const pill = (label, kind = '') => h('span', { class: `pill ${kind}` }, label);

export const button = (label, onclick, kind = '', props = {}) => h('button', { type: 'button', class: kind, onclick, ...props }, label);

let ids = 0;
export const newId = () => `f${++ids}`;

// A labelled control. `control` is an input, a select or a textarea.
export function field(label, control, hint) {
  control.id ||= newId();
  const note = hint && h('span', { class: 'hint', id: newId() }, hint);
  if (note) control.setAttribute('aria-describedby', note.id);
  return h('div', { class: 'field' }, h('label', { for: control.id }, label), control, note);
}

export const select = (options, value, props = {}) =>
  h('select', props, options.map((option) => {
    const [key, label] = Array.isArray(option) ? option : [option, option];
    return h('option', { value: key, selected: key === (value ?? '') }, label);
  }));

const counts = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

export const count = (n) => (n === undefined || n === null ? '–' : counts.format(n));
export const brief = (n) => (n === undefined || n === null ? '–' : n < 10000 ? counts.format(n) : compact.format(n));
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

export function bytes(n) {
  if (n < 1024) return `${n} B`;
  return n < 1048576 ? `${counts.format(n / 1024)} KiB` : `${counts.format(n / 1048576)} MiB`;
}
