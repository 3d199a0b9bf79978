// SPDX-License-Identifier: MIT
// Dead letters of a namespace, grouped by reason or host. The server paces a redrive; closing the tab changes nothing.

import { get, path, post, remove } from './api.js';
import { parts } from './chart.js';
import { ask } from './dialog.js';
import { button, count, div, field, gap, h, h1, h2, muted, name, p, plural, swap } from './dom.js';
import { byFilter, each, listing } from './list.js';
import { BOTH, columns, label } from './page-timers.js';
import { link, withParam } from './router.js';
import { can } from './state.js';
import { table } from './table.js';
import { time } from './time.js';

const FINAL = 'They cannot be redriven afterwards.';
const redriven = (n) => `Redriven: ${plural(n, 'timer')}.`;
const deleted = (n) => `Deleted ${plural(n, 'dead letter')}.`;

function redriveMatching(namespace, filter, reload) {
  const rate = h('input', { type: 'number', min: 1, max: 1000000, placeholder: 'no limit' });
  return byFilter({
    filter, reload, verb: 'Redrive', what: 'dead letter', run: (query) => post(`${path('dead', namespace)}/redrive`, undefined, query),
    body: [p('They become timers again, due from now on. Their attempts count from 1.'), field('Timers per second', rate, 'The server keeps this pace, even if you close this page.')],
    final: (query) => withParam(query, 'rate', rate.value), done: (answer) => redriven(answer.redriven),
  });
}

const deleteMatching = (namespace, filter, reload) => byFilter({
  filter, reload, verb: 'Delete', what: 'dead letter', danger: true, run: (query) => remove(path('dead', namespace), query), body: p(FINAL),
  done: (answer) => deleted(answer.deleted),
});

function groupList(namespace, route, kind, answer) {
  const most = Math.max(...answer.groups.map((group) => group.count), 1);
  const chosen = route.query.get(kind);
  return h('ul', { class: 'groups' }, answer.groups.map((group) => {
    const value = group[kind] ?? '';
    const on = route.query.has(kind) && chosen === value;
    const query = new URLSearchParams(route.query);
    query.delete('cursor');
    if (on) query.delete(kind);
    else query.set(kind, value);
    return h('li', {}, h('a', { href: link('dead', [namespace], query), 'aria-current': on ? 'true' : null },
      h('span', { class: 'num' }, count(group.count)), parts([[group.count, 'bad'], [most - group.count, 'none']], ''), group[kind] === null ? muted('no target') : name(value)));
  }), !answer.complete && h('li', { class: 'muted' }, 'There are more groups.'));
}

export async function show(view, route, page) {
  const [namespace] = route.parts;
  const writes = can('write', namespace);
  const reasons = div();
  const hosts = div();
  const total = muted();
  const one = (row) => path('dead', namespace, row.id);
  const finish = () => {
    list.clear();
    shown.reload();
  };
  const redrive = async (rows) => {
    await each(rows, (row) => post(`${one(row)}/redrive`), redriven);
    finish();
  };
  const erase = async (rows) => {
    if (!await ask({ title: `Delete ${plural(rows.length, 'dead letter')}?`, body: p(FINAL), action: 'Delete', danger: true })) return;
    await each(rows, (row) => remove(one(row)), deleted);
    finish();
  };
  const [title, ...rest] = columns(namespace, 'dead');
  const list = table({
    caption: 'Dead letters', key: (row) => row.id, label,
    empty: () => p(route.query.size ? 'No dead letter matches the filter.' : 'No dead letters. Timers that finally fail appear here.'),
    columns: [{ head: 'Died', kind: 'due', cell: (row) => time(row.died, 'both') }, title, { head: 'Reason', kind: 'wide', cell: (row) => name(row.reason) }, ...rest],
    bulk: writes ? [{ label: 'Redrive', act: redrive }, { label: 'Delete', kind: 'danger', act: erase }] : [],
  });

  const groups = async (kind, place) => {
    const query = shown.filter();
    query.delete(kind);
    query.set('group', kind);
    query.set('limit', '20');
    const answer = await get(path('dead', namespace), query);
    swap(place, groupList(namespace, route, kind, answer));
    total.textContent = plural(answer.total, 'dead letter');
  };
  const shown = listing({
    route, page, list, where: path('dead', namespace), rows: 'timers', params: ['reason', 'host'], fields: [...BOTH, { key: 'reason_contains', label: 'Reason contains' }], what: 'dead letter', extra: { payload: 'false' },
    also: () => Promise.all([groups('reason', reasons), groups('host', hosts)]),
    refresh: { namespace, every: 5000, when: (sample) => sample.counts.dead > 0 },
  });
  view.append(div('head', h1('Dead letters of ', name(namespace)), total, gap(),
    writes && [button('Redrive by filter…', () => redriveMatching(namespace, shown.filter(), shown.reload)),
      button('Delete by filter…', () => deleteMatching(namespace, shown.filter(), shown.reload), 'danger')]),
  div('two', h('section', {}, h2('By reason'), reasons), h('section', {}, h2('By host'), hosts)),
  shown.bar, list.el, shown.foot);
  await shown.load();
}
