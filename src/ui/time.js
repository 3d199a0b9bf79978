// SPDX-License-Identifier: MIT
// Times are shown in the viewer's zone, with UTC on hover. Durations are written as the API writes them.

import { h, muted } from './dom.js';
import { now } from './state.js';

const two = (n) => String(n).padStart(2, '0');

export function local(ms, { millis = false, date = true } = {}) {
  const d = new Date(ms);
  if (Number.isNaN(d.getTime())) return '–';
  const day = `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`;
  const clock = `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}${millis ? `.${String(d.getMilliseconds()).padStart(3, '0')}` : ''}`;
  return date ? `${day} ${clock}` : clock;
}

export const utc = (value) => `${new Date(value).toISOString().replace('T', ' ').replace('Z', '')} UTC`;

const UNITS = [['w', 604800000], ['d', 86400000], ['h', 3600000], ['m', 60000], ['s', 1000], ['ms', 1]];

// The two largest units that count: 2d 4h, 3m 20s. Weeks are left to people.
export function span(ms) {
  let rest = Math.abs(ms);
  if (rest < 1000) return `${Math.round(rest)}ms`;
  if (rest < 10000) return `${Math.floor(rest / 100) / 10}s`;
  const parts = [];
  for (const [unit, size] of UNITS.slice(1, 5)) {
    const n = Math.floor(rest / size);
    if (n > 0 || parts.length > 0) parts.push(`${n}${unit}`);
    rest -= n * size;
    if (parts.length === 2) break;
  }
  return parts.filter((part) => !part.startsWith('0')).join(' ');
}

export function relative(ms) {
  const left = ms - now();
  const rounded = Math.round(left / 1000) * 1000;
  if (Math.abs(left) < 1000) return 'now';
  return left > 0 ? `in ${span(Math.max(rounded, 1000))}` : `${span(rounded)} ago`;
}

export function parseDuration(value) {
  const match = /^(?=.)(?:([\d.]+)w)?(?:([\d.]+)d)?(?:([\d.]+)h)?(?:([\d.]+)m)?(?:([\d.]+)s)?(?:([\d.]+)ms)?$/.exec(value.replace(/\s/g, ''));
  if (!match) return NaN;
  return UNITS.reduce((sum, [, size], i) => sum + (match[i + 1] ? Number(match[i + 1]) * size : 0), 0);
}

// An element with the time; `how` is absolute, relative or both.
export function time(value, how = 'absolute', options) {
  if (value === null || value === undefined) return muted('–');
  const ms = Date.parse(value);
  const el = h('time', { datetime: value, title: utc(ms) });
  if (how === 'absolute') {
    el.textContent = local(ms, options);
    return el;
  }
  el.dataset.relative = ms;
  el.textContent = relative(ms);
  if (how === 'relative') return el;
  return h('span', { class: 'when' }, el, h('time', { datetime: value, title: utc(ms), class: 'muted' }, local(ms, options)));
}

export function tick() {
  for (const el of document.querySelectorAll('time[data-relative]')) {
    const label = relative(Number(el.dataset.relative));
    if (el.textContent !== label) el.textContent = label;
  }
}

// <input type=datetime-local> has no zone: it is the viewer's.
export const toInput = (value) => (value ? local(Date.parse(value)).replace(' ', 'T') : '');
export const fromInput = (value) => (value ? new Date(value).toISOString() : '');

export function zoneLabel() {
  const minutes = -new Date(now()).getTimezoneOffset();
  const offset = `UTC${minutes < 0 ? '−' : '+'}${two(Math.floor(Math.abs(minutes) / 60))}:${two(Math.abs(minutes) % 60)}`;
  return `${Intl.DateTimeFormat().resolvedOptions().timeZone} (${offset})`;
}

// Moments between `from` and `to` at which clocks of `zone` change, to the quarter of an hour.
export function clockChanges(zone, from, to) {
  const quarter = 900000;
  const changes = [];
  let format;
  try {
    format = new Intl.DateTimeFormat('en', { timeZone: zone, timeZoneName: 'longOffset' });
  } catch {
    return []; // a zone that this browser does not know
  }
  const offset = (ms) => format.formatToParts(ms).find((part) => part.type === 'timeZoneName').value;
  for (let at = Math.ceil(from / quarter) * quarter; at < to; at += 86400000) {
    let [low, high] = [at, at + 86400000];
    const [before, after] = [offset(low), offset(high)];
    while (before !== after && high - low > quarter) {
      const middle = Math.floor((low + high) / 2 / quarter) * quarter;
      if (offset(middle) === before) low = middle;
      else high = middle;
    }
    if (before !== after && high < to) changes.push({ at: high, label: `${before} → ${after}` });
  }
  return changes;
}
