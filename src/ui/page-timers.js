// SPDX-License-Identifier: MIT
// Timers of a namespace: one page of the list, filtered as in the API.

import { get, path, remove } from './api.js';
import { ask } from './dialog.js';
import { a, button, bytes, div, gap, h, h1, iso, mono, muted, name, p, pill, plural } from './dom.js';
import { byFilter, each, listing } from './list.js';
import { payload } from './payload.js';
import { link } from './router.js';
import { can } from './state.js';
import { expander, table } from './table.js';
import { time } from './time.js';

export const BOTH = [ // dead letters have these filters, too
  { key: 'name_contains', label: 'Name contains', search: true }, { key: 'prefix', label: 'Name begins with' },
  { key: 'target_prefix', label: 'Target begins with', example: 'https://' }, { key: 'schedule', label: 'Schedule' },
];
const FIELDS = [...BOTH, { key: 'due_after', label: 'Due from', time: true }, { key: 'due_before', label: 'Due before', time: true }];
const SCANS = ['name_contains', 'target_prefix', 'schedule']; // these read timers that do not match, so they are not repeated by themselves

// A browser cannot request a path with the name '.' or '..', so those timers are addressed by ID.
export const address = (timer) => (timer.name === undefined || timer.name === '.' || timer.name === '..' ? timer.id : timer.name);

export const label = (timer) => timer.name ?? timer.id;

export const title = (timer) => (timer.name !== undefined ? name(timer.name) : timer.schedule !== undefined
  ? h('span', {}, name(timer.schedule), muted(' (schedule)')) : mono(timer.id));

export const columns = (namespace, kind) => [
  { head: 'Timer', kind: 'main', cell: (timer) => a(link(kind, [namespace, kind === 'dead' ? timer.id : address(timer)]), title(timer)) },
  { head: 'Target', kind: 'target', cell: (timer) => (timer.target ? name(timer.target, 'muted') : muted('lease')) },
  { head: 'Attempts', kind: 'num', cell: (timer) => (timer.attempt && kind !== 'dead' ? pill(timer.attempt, 'warn') : timer.attempt) },
  {
    head: 'Payload', kind: 'num', cell: (timer, tr) => (timer.payload_bytes ? expander(bytes(timer.payload_bytes), tr, () => {
      const box = payload(path(kind, namespace, timer.id, 'payload'), timer.payload_bytes, timer.payload_type);
      box.load();
      return box;
    }) : muted('–')),
  },
];

const cancelled = (n) => `Cancelled ${plural(n, 'timer')}.`;

async function cancelSelected(namespace, rows, reload) {
  const done = await ask({
    title: `Cancel ${plural(rows.length, 'timer')}?`, danger: true, action: 'Cancel them',
    body: [p('They will not fire.'), h('ul', { class: 'names' }, rows.slice(0, 8).map((timer) => h('li', {}, title(timer))), rows.length > 8 && h('li', {}, `and ${rows.length - 8} more`))],
    act: () => each(rows, (timer) => remove(path('timers', namespace, timer.id)), cancelled).then(() => true),
  });
  if (done) reload();
}

const cancelMatching = (namespace, filter, reload) => byFilter({
  filter, reload, verb: 'Cancel', what: 'timer', danger: true, run: (query) => remove(path('timers', namespace), query),
  body: p(String(filter) === '' ? `These are all timers of ${iso(namespace)}.` : 'Timers that match by the time you confirm are cancelled too.'),
  done: (answer) => cancelled(answer.cancelled),
});

const emptyList = (namespace, query) => (query.size ? p('No timer matches the filter.') : [
  p('No timer is pending here. Create one:'),
  h('pre', { tabindex: 0 }, `foliot add --after 5m -- '${namespace.replaceAll("'", "'\\''")}' tea`),
]);

export async function show(view, route, page) {
  const [namespace] = route.parts;
  const writes = can('write', namespace);
  const pending = muted();
  const list = table({
    caption: 'Timers', key: (timer) => timer.id, label, empty: () => emptyList(namespace, route.query),
    columns: [{ head: 'Due', kind: 'due', cell: (timer) => time(timer.due, 'both') }, ...columns(namespace, 'timers')],
    bulk: writes ? [{ label: 'Cancel', kind: 'danger', act: (rows) => cancelSelected(namespace, rows, shown.reload) }] : [],
  });
  const shown = listing({
    route, page, list, where: path('timers', namespace), rows: 'timers', fields: FIELDS, what: 'timer', order: 'due', extra: { payload: 'false' },
    also: async () => {
      pending.textContent = `${plural((await get(path('namespaces', namespace))).pending, 'timer')} pending`;
    },
    refresh: { namespace, every: 2000, unless: () => SCANS.some((key) => route.query.has(key)) },
  });
  view.append(div('head', h1('Timers of ', name(namespace)), pending, gap(),
    writes && button('Cancel by filter…', () => cancelMatching(namespace, shown.filter(), shown.reload))), shown.bar, list.el, shown.foot);
  await shown.load();
}
