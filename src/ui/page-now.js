// SPDX-License-Identifier: MIT
// Now: what comes next, what happened in the last hour, and how the server stands.

import { get, path } from './api.js';
import { bars, heat } from './chart.js';
import { a, brief, count, div, h, h1, h2, plural, text } from './dom.js';
import { throttle } from './live.js';
import { link } from './router.js';
import { allSpaces, now, state } from './state.js';
import { local, span } from './time.js';

const SPANS = [['1h', 'Next hour, by minute', 30000], ['1d', 'Next 24 hours, by hour', 120000], ['30d', 'Next 30 days, by day', 120000]];
const KEEP = 360; // steps of ten seconds
const WIDE = 3; // steps per column of the heat map
const KINDS = ['fired', 'failed', 'dead', 'created'];

const FIGURES = [
  ['pending', 'pending'], ['in_flight', 'in flight'], ['leased', 'leased'], ['waiting_for_lease', 'wait for a lease'],
  ['waiting_for_host', 'wait for a host'], ['oldest_overdue_ms', 'oldest overdue'], ['servers', 'servers'], ['shards', 'shards'],
];

const sum = (list) => list.reduce((a, b) => a + b, 0);

const bound = (ms) => (ms < 1000 ? `${ms}ms` : `${ms / 1000}s`);

function barLabel(span1, at) {
  if (span1 === '30d') return local(at).slice(5, 10);
  return local(at, { date: false }).slice(0, 5);
}

// The first bar begins with the viewer's minute, hour or day.
function beginOf(span1) {
  const d = new Date(now());
  d.setSeconds(0, 0);
  if (span1 !== '1h') d.setMinutes(0);
  if (span1 === '30d') d.setHours(0);
  return d.toISOString();
}

function forecast(namespace, [span1, title, every]) {
  const chart = bars({
    title, series: [['timers', 'accent'], ['from schedules', 'soft']], summary: (values) => plural(sum(values.flat()), 'timer'),
  });
  let loaded = -Infinity;
  let asked = 0;
  const load = () => draw().catch((problem) => {
    loaded = -Infinity;
    chart.say(problem.message);
  });
  const draw = async () => {
    loaded = performance.now();
    asked = now();
    const { bars: list, complete } = await get('v1/forecast', { span: span1, from: beginOf(span1), ...(namespace && { namespace }) });
    const at = list.map((bar) => Date.parse(bar.at));
    const every1 = { '1h': 10, '1d': 4, '30d': 5 }[span1];
    chart.set({
      values: [list.map((bar) => bar.timers - bar.occurrences), list.map((bar) => bar.occurrences)],
      ticks: at.map((ms, i) => ({ i, label: barLabel(span1, ms) })).filter(({ i }) => i % every1 === 0),
      describe: (i) => `${span1 === '30d' ? local(at[i]).slice(0, 10) : local(at[i]).slice(5, 16)} · ${complete ? list[i].exact ? '' : 'about ' : 'at least '}${plural(list[i].timers, 'timer')}${list[i].occurrences ? `, ${count(list[i].occurrences)} of them from schedules` : ''}`,
    });
  };
  return { el: chart.el, load, stale: () => performance.now() - loaded > every || (state.test && asked !== now()) };
}

// The last hour: the arrays of /v1/stats, which samples continue.
function history() {
  const rates = bars({
    title: 'Attempts per 10 seconds', series: [['fired', 'accent'], ['failed', 'warn'], ['dead', 'bad']],
    summary: (values) => values.map((list, k) => `${count(sum(list))} ${KINDS[k]}`).join(', '),
  });
  const place = div('', rates.el);
  let late = null;
  let lists = null; // of KINDS, then one per bucket of lateness; each has KEEP steps
  let first = 0; // time of the first step, in ms
  let step = 0;
  let names = [];
  const pad = (list) => [...new Array(KEEP).fill(0), ...list].slice(-KEEP);

  return {
    el: place,
    set({ lateness, ...stats }) {
      lists = [...KINDS.map((key) => stats[key]), ...lateness.counts].map(pad);
      step = stats.step_s * 1000;
      first = Date.parse(stats.from) + (stats.fired.length - KEEP) * step;
      names = [...lateness.le_ms.map((ms) => `≤${bound(ms)}`), `>${bound(lateness.le_ms.at(-1))}`];
      if (late) return;
      late = heat({ title: 'Lateness of the first attempt', rows: names, summary: (values) => plural(sum(values.flat()), 'attempt') });
      place.append(late.el);
    },
    // Returns false if the sample is far from what is shown: a test clock has jumped.
    add({ at, counts, lateness }) {
      const ahead = Math.floor((Date.parse(at) - first) / step) - KEEP + 1;
      if (!lists || ahead > KEEP) return !lists;
      for (let i = 0; i < ahead; i++) lists.forEach((list) => list.push(0) && list.shift());
      first += Math.max(ahead, 0) * step;
      [counts.fired, counts.failed, counts.dead, counts.scheduled, ...lateness].forEach((n, k) => {
        lists[k][KEEP - 1] += n;
      });
      return true;
    },
    draw() {
      if (!lists) return;
      const at = (i) => local(first + i * step, { date: false });
      const ticks = [];
      for (let i = 0; i < KEEP; i++) if ((first + i * step) % 600000 === 0) ticks.push({ i, label: at(i).slice(0, 5) });
      rates.set({ values: lists.slice(0, 3), ticks, describe: (i) => `${at(i)} · ${KINDS.map((key, k) => `${count(lists[k][i])} ${key}`).join(', ')}` });
      const cells = lists.slice(KINDS.length).map((list) => Array.from({ length: KEEP / WIDE }, (_, i) => list[i * WIDE] + list[i * WIDE + 1] + list[i * WIDE + 2]));
      late.set({
        values: cells, ticks: ticks.map(({ i, label }) => ({ i: i / WIDE, label })),
        describe: (i) => `${at(i * WIDE)} · ${names.map((name, b) => cells[b][i] && `${name}: ${brief(cells[b][i])}`).filter(Boolean).join(', ') || 'no attempts'}`,
      });
    },
  };
}

function figures() {
  const values = Object.fromEntries(FIGURES.map(([key]) => [key, h('b', {}, '–')]));
  const part = (list, good) => (good.length === list.length ? count(list.length) : `${count(good.length)} of ${count(list.length)}`);
  return {
    el: div('figures', FIGURES.map(([key, label]) => div('', values[key], h('span', {}, key.startsWith('s') ? a(link('cluster'), label) : label)))),
    // A gauge that is not counted per namespace is absent.
    gauges(gauges) {
      for (const [key] of FIGURES.slice(0, -2)) {
        values[key].parentElement.hidden = !(key in gauges);
        text(values[key], key === 'oldest_overdue_ms' ? (gauges[key] ? span(gauges[key]) : 'none') : count(gauges[key]));
      }
    },
    async cluster() {
      const { servers, shards } = await get(path('cluster'));
      text(values.servers, part(servers, servers.filter((one) => one.linked)));
      text(values.shards, part(shards, shards.filter((one) => one.owner !== null)));
    },
  };
}

export async function show(view, route, page) {
  const namespace = route.query.get('namespace') ?? (allSpaces() ? '' : page.firstSpace());
  const top = figures();
  const past = history();
  const charts = SPANS.map((one) => forecast(namespace, one));
  view.append(h1('Now'));
  if (!page.firstSpace()) page.welcome(view);
  view.append(top.el);
  view.append(h2('Coming up'), div('three', charts.map((chart) => chart.el)), h2('Last hour'), past.el);

  const draw = throttle(() => past.draw());
  const load = async () => {
    const stats = await get('v1/stats', namespace && { namespace });
    past.set(stats);
    top.gauges(stats.gauges);
    past.draw();
    charts.forEach((chart) => chart.load());
    await top.cluster();
  };
  // Forecasts change slowly: they are loaded again when they are old, not with each sample.
  const beat = setInterval(() => {
    if (document.hidden) return;
    for (const chart of charts) if (chart.stale()) chart.load();
  }, 5000);
  page.follow(namespace, (sample) => {
    top.gauges(sample.gauges);
    if (past.add(sample)) draw();
    else load().catch(() => {});
  }, load);
  await load();
  return { stop: () => clearInterval(beat) };
}
