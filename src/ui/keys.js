// SPDX-License-Identifier: MIT
// Keys: / searches, j and k move, x selects, ? helps. They can be turned off, because speech input types letters, too.

import { ask } from './dialog.js';
import { h, p } from './dom.js';

const KEY = 'foliot-keys-off';

const HELP = [
  ['/', 'Search'], ['j', 'Next row'], ['k', 'Previous row'], ['x', 'Select the row'], ['Enter', 'Open the row'],
  ['← →', 'Read a chart bar by bar, or move a timer on its timeline'], ['?', 'This help'],
];

export function help() {
  const off = h('input', { type: 'checkbox', id: 'keys-on', checked: !localStorage.getItem(KEY) });
  off.addEventListener('change', () => (off.checked ? localStorage.removeItem(KEY) : localStorage.setItem(KEY, '1')));
  ask({
    title: 'Keys',
    body: [
      h('dl', { class: 'keys' }, HELP.map(([key, label]) => [h('dt', {}, h('kbd', {}, key)), h('dd', {}, label)])),
      p(off, ' ', h('label', { for: 'keys-on' }, 'Use keys without Ctrl or Alt')),
    ],
  });
}

const rows = () => [...document.querySelectorAll('#main tr[data-row]')];
const rowOf = (el) => el?.closest?.('tr[data-row]');
const focusIn = (row) => (row.querySelector('a, button') ?? row.querySelector('input') ?? Object.assign(row, { tabIndex: -1 })).focus();

function move(step) {
  const all = rows();
  if (all.length === 0) return;
  const at = all.indexOf(rowOf(document.activeElement));
  const next = at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + step, 0), all.length - 1);
  focusIn(all[next]);
  all[next].scrollIntoView({ block: 'nearest' });
}

const ACTIONS = {
  '/': () => document.querySelector('#main [data-search]')?.focus(),
  j: () => move(1),
  k: () => move(-1),
  x: () => rowOf(document.activeElement)?.querySelector('input[type=checkbox]')?.click(),
  '?': help,
};

export function listen() {
  document.addEventListener('keydown', (event) => {
    const typing = event.target.matches?.('input:not([type=checkbox]), textarea, select, [contenteditable]');
    if (event.key === 'Escape' && typing && event.target.matches('[data-search]')) event.target.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
    if (!ACTIONS[event.key] || localStorage.getItem(KEY)) return;
    event.preventDefault();
    ACTIONS[event.key]();
  });
}
