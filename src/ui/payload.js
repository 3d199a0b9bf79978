// SPDX-License-Identifier: MIT
// Payloads are loaded when the viewer asks for them, and only their beginning, so that no payload freezes the page.

import { open, url } from './api.js';
import { button, bytes, div, gap, h, muted, swap } from './dom.js';

const SHOWN = 65536; // bytes of a payload that are loaded and shown

// Indents JSON without parsing it: numbers keep their digits, and the text may be cut off. It must not look at `out`: each look
// would copy it.
export function pretty(json) {
  let out = '';
  let depth = 0;
  let empty = false; // an array or object without content is open
  const line = () => `\n${'  '.repeat(Math.min(depth, 20))}`;
  for (let i = 0; i < json.length; i++) {
    const c = json[i];
    if (c === '"') {
      let end = i + 1;
      while (end < json.length && json[end] !== '"') end += json[end] === '\\' ? 2 : 1;
      out += json.slice(i, end + 1);
      i = end;
    } else if (c === '{' || c === '[') {
      empty = /^\s*[}\]]/.test(json.slice(i + 1, i + 20));
      depth++;
      out += empty ? c : c + line();
    } else if (c === '}' || c === ']') {
      depth = Math.max(depth - 1, 0);
      out += empty ? c : line() + c;
      empty = false;
    } else if (c === ',') out += c + line();
    else if (c === ':') out += ': ';
    else if (!/\s/.test(c)) out += c;
  }
  return out;
}

function dump(data) {
  const lines = [];
  const hex = (n, digits) => n.toString(16).padStart(digits, '0');
  for (let at = 0; at < data.length; at += 16) lines.push(`${hex(at, 6)}  ${Array.from(data.subarray(at, at + 16), (byte) => hex(byte, 2)).join(' ')}`);
  return lines.join('\n');
}

// The first bytes of the payload; the rest stays at the server.
export async function beginning(where) {
  const response = await open('GET', where);
  const reader = response.body.getReader();
  const chunks = [];
  let size = 0;
  let done = false;
  while (!done && size < SHOWN) {
    const part = await reader.read();
    done = part.done;
    if (part.value) {
      chunks.push(part.value);
      size += part.value.length;
    }
  }
  if (!done) reader.cancel();
  const data = new Uint8Array(await new Blob(chunks).arrayBuffer()).subarray(0, SHOWN);
  return { data, json: (response.headers.get('Content-Type') ?? '').includes('json') };
}

// Shows a text in two forms, with buttons to choose.
export function viewer(forms, note) {
  const pre = h('pre', { tabindex: 0, class: 'payload', dir: 'auto' });
  const choices = Object.keys(forms).map((label) => button(label, () => show(label), 'tab', { 'aria-pressed': 'false' }));
  const show = (label) => {
    pre.textContent = forms[label]();
    choices.forEach((choice) => choice.setAttribute('aria-pressed', String(choice.textContent === label)));
  };
  show(Object.keys(forms)[0]);
  return div('', div('row', choices.length > 1 && choices, note), pre);
}

// `where` is the path of the bytes, `size` their number.
export function payload(where, size, type) {
  const box = div('load');
  const link = () => h('a', { href: url(where), download: '' }, `Download ${bytes(size)}`);
  const load = async () => {
    swap(box, h('p', { class: 'muted' }, 'Loading…'));
    try {
      const { data, json } = await beginning(where);
      const raw = () => new TextDecoder().decode(data);
      const forms = json ? { Pretty: () => pretty(raw()), Raw: raw } : { Bytes: () => dump(data.subarray(0, 8192)), Text: raw };
      const cut = size > data.length && muted(`The first ${bytes(data.length)} of ${bytes(size)}.`);
      swap(box, viewer(forms, [cut, gap(), link()]));
    } catch (problem) {
      swap(box, h('p', { class: 'error' }, problem.message));
    }
  };
  if (!size) return h('p', { class: 'muted' }, 'No payload.');
  swap(box, button(`Show payload (${bytes(size)}${type === 'binary' ? ', binary' : ''})`, load), ' ', link());
  box.load = load;
  return box;
}
