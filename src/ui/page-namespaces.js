// SPDX-License-Identifier: MIT
// Namespaces with their counts, and the settings of one.

import { get, patch, path } from './api.js';
import { guard, toast } from './dialog.js';
import { a, count, div, errorLine, gap, h, h1, h2, muted, name, p, plural, swap } from './dom.js';
import { listing } from './list.js';
import { pauseButton, pausedPill } from './pause.js';
import { link } from './router.js';
import { sheet } from './sheet.js';
import { can } from './state.js';
import { table } from './table.js';
import { time } from './time.js';

function summary({ settings }) {
  const words = [
    settings.retry && 'retry', settings.skip_older && `skip older than ${settings.skip_older}`, settings.max_rate && `${count(settings.max_rate)}/s`,
    settings.spread && `spread ${settings.spread}`, settings.secret_count > 0 && plural(settings.secret_count, 'secret'), settings.history && 'history',
  ].filter(Boolean);
  return words.length > 0 ? words.join(', ') : muted('defaults');
}

async function showAll(view, route, page) {
  const linked = (kind, one, value) => a(link(kind, [one.namespace]), count(value));
  const list = table({
    caption: 'Namespaces', key: (one) => one.namespace, empty: p('No namespace matches. A namespace exists when it has timers or settings.'),
    columns: [
      { head: 'Namespace', kind: 'main', cell: (one) => [a(link('namespaces', [one.namespace]), name(one.namespace)), pausedPill(one.paused)] },
      { head: 'Pending', kind: 'num', cell: (one) => linked('timers', one, one.pending) },
      { head: 'Schedules', kind: 'num', cell: (one) => linked('schedules', one, one.schedules) },
      { head: 'Dead letters', cell: (one) => a(link('dead', [one.namespace]), 'Show') },
      { head: 'Settings', kind: 'wide', cell: summary },
      { head: 'Actions', kind: 'act', cell: (one) => can('admin', one.namespace) && pauseButton(['namespaces', one.namespace], one.paused, () => shown.reload(), 'quiet small') },
    ],
  });
  const shown = listing({
    route, page, list, where: path('namespaces'), rows: 'namespaces', params: ['prefix'], what: 'namespace',
    fields: [{ key: 'name_contains', label: 'Name contains', search: true }], refresh: { namespace: '', every: 3000 },
  });
  view.append(h1('Namespaces'), shown.bar, list.el, shown.foot);
  await shown.load();
}

// Settings of the form: path of the key, label, kind.
const SETTINGS = [
  { group: 'Rate' },
  { key: 'max_rate', label: 'Webhooks per second', number: true, hint: 'Further webhooks wait' },
  { key: 'spread', label: 'Spread', example: '30s', hint: 'Timers due at one moment begin within this duration' },
  { key: 'skip_older', label: 'Skip older than', example: '1h', hint: 'Missed timers that are later than this do not fire' },
  { group: 'Retry' },
  { key: 'retry.max_attempts', label: 'Attempts', number: true, hint: '0: no limit' }, { key: 'retry.initial', label: 'First wait', example: '1s' },
  { key: 'retry.multiplier', label: 'Multiplier', number: true }, { key: 'retry.max_interval', label: 'Longest wait', example: '1h' },
  { key: 'retry.max_age', label: 'Give up after', example: '1d' },
  { group: 'History' },
  { key: 'history.only', label: 'Keep', options: [['', 'default'], 'none', 'failures', 'all'] },
  { key: 'history.keep', label: 'For', example: '3d' }, { key: 'history.body', label: 'Bytes of a response', number: true },
  { group: 'Signatures' },
  { key: 'secrets', label: 'New secrets, newest first', wide: true, lines: true, hint: 'Write-only: whsec_…, separated by a space. Empty: the secrets stay', example: 'whsec_…' },
];

const at = (settings, key) => key.split('.').reduce((value, part) => value?.[part], settings);
const sorted = (object) => JSON.stringify(Object.entries(object ?? {}).sort());

// What the server says of the namespace; the form below keeps what the viewer types.
function head(one, reload) {
  const { namespace, paused } = one;
  const figure = (value, label, kind) => div('', h('b', {}, count(value)), h('span', {}, kind ? a(link(kind, [namespace]), label) : label));
  return [
    div('head', h1(name(namespace)), gap(), can('admin', namespace) && pauseButton(['namespaces', namespace], paused, reload)),
    paused && h('p', { class: 'notice' }, 'Paused since ', time(paused.since), paused.until && [' until ', time(paused.until)], paused.reason && [': ', name(paused.reason)]),
    div('figures', figure(one.pending, 'pending', 'timers'), figure(one.schedules, 'schedules', 'schedules'), figure(one.settings.secret_count, 'secrets')),
  ];
}

// The body of PATCH: what changed; a group whole; null for what was emptied.
function changes(settings, values) {
  const next = {};
  for (const [key, value] of Object.entries(values)) {
    const [group, part] = key.split('.');
    if (part) next[group] = { ...next[group], [part]: value };
    else next[group] = value;
  }
  const body = next.secrets ? { secrets: next.secrets } : {};
  for (const key of ['max_rate', 'spread', 'skip_older']) if (next[key] !== settings[key]) body[key] = next[key] ?? null;
  for (const key of ['retry', 'history']) if (sorted(next[key]) !== sorted(settings[key])) body[key] = next[key] ?? null;
  return body;
}

async function showOne(view, route, page) {
  const [namespace] = route.parts;
  const where = path('namespaces', namespace);
  const one = await get(where);
  const admin = can('admin', namespace);
  const { el, controls, values } = sheet(SETTINGS, (key) => at(one.settings, key));
  const error = errorLine();
  el.addEventListener('submit', (event) => {
    event.preventDefault();
    guard(error, async () => {
      await patch(where, changes(one.settings, values()));
      toast('Saved the settings.');
      page.reload();
    });
  });
  if (!admin) for (const input of controls.values()) input.disabled = true;
  if (admin) el.append(div('actions start', h('button', { type: 'submit', class: 'primary' }, 'Save settings'), error));
  const top = div();
  const load = async () => swap(top, head(await get(where), load));
  swap(top, head(one, load));
  view.append(h('p', { class: 'crumb' }, a(link('namespaces'), 'Namespaces')), top,
    p(a(link('dead', [namespace]), 'Dead letters'), ' · ', a(link('live', [], { namespace }), 'Live events')), h2('Settings'), el);
  page.refresh(namespace, load, { unless: () => top.matches(':active') });
}

export const show = (view, route, page) => (route.parts.length > 0 ? showOne : showAll)(view, route, page);
