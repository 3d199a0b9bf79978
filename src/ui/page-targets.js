// SPDX-License-Identifier: MIT
// Targets by host: calls, responses, latency, waiting, paused.

import { path } from './api.js';
import { parts } from './chart.js';
import { count, h, h1, name, p } from './dom.js';
import { listing } from './list.js';
import { pausedPill, pauseButton } from './pause.js';
import { can } from './state.js';
import { table } from './table.js';
import { span } from './time.js';

const RESPONSES = [['2xx', 'accent'], ['3xx', 'soft'], ['4xx', 'warn'], ['5xx', 'bad'], ['none', 'lost']];

const word = (key) => (key === 'none' ? 'no response' : key);

function responses(host) {
  const list = RESPONSES.map(([key, kind]) => [host.responses?.[key] ?? 0, kind]);
  const label = RESPONSES.filter(([key]) => host.responses?.[key]).map(([key]) => `${word(key)}: ${count(host.responses[key])}`).join(', ') || 'no calls';
  const bar = parts(list, label);
  return h('span', { title: label, class: 'with-bar' }, bar);
}

const latency = (host, key) => (host.latency_ms ? span(host.latency_ms[key]) : '–');

export async function show(view, route, page) {
  const list = table({
    caption: 'Targets by host', key: (host) => host.host,
    empty: () => p(route.query.get('prefix') ? 'No host matches the filter.' : 'No calls yet. A host appears here when a timer calls it.'),
    columns: [
      { head: 'Host', kind: 'main', cell: (host) => [h('b', {}, name(host.host)), pausedPill(host.paused)] },
      { head: 'Calls', kind: 'num', cell: (host) => count(host.calls) },
      { head: 'Failures', kind: 'num', cell: (host) => h('span', { class: host.failures ? 'bad' : 'muted' }, count(host.failures)) },
      { head: 'Responses', kind: 'bar-cell', cell: responses },
      { head: 'p50', kind: 'num', cell: (host) => latency(host, 'p50') }, { head: 'p90', kind: 'num', cell: (host) => latency(host, 'p90') },
      { head: 'p99', kind: 'num', cell: (host) => latency(host, 'p99') },
      { head: 'In flight', kind: 'num', cell: (host) => count(host.in_flight) }, { head: 'Waiting', kind: 'num', cell: (host) => count(host.waiting) },
      can('admin') && { head: 'Actions', kind: 'act', cell: (host) => pauseButton(['hosts', host.host], host.paused, () => shown.reload(), 'quiet small') },
    ].filter(Boolean),
  });
  const shown = listing({
    route, page, list, where: path('hosts'), rows: 'hosts', what: 'host', fields: [{ key: 'prefix', label: 'Host begins with', search: true }],
    refresh: { namespace: '', every: 2000 },
  });
  const legend = h('p', { class: 'legend muted' }, 'Responses: ', RESPONSES.map(([key, kind]) => h('span', { class: `key ${kind}` }, word(key))));
  view.append(h1('Targets'), shown.bar, legend, list.el, shown.foot);
  await shown.load();
}
