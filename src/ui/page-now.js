// SPDX-License-Identifier: MIT
// Now: what comes next, what happened in the last hour, and how the server stands.

import { get, path } from './api.js';
import { bars, heat } from './chart.js';
import { brief, count, div, h, h2, plural, text } from './dom.js';
import { throttle } from './live.js';
import { link } from './router.js';
import { allSpaces, now } from './state.js';
import { local, span } from './time.js';

const SPANS = [['1h', 'Next hour, by minute', 15000], ['1d', 'Next 24 hours, by hour', 60000], ['30d', 'Next 30 days, by day', 60000]];
const KEEP = 360; // steps of ten seconds

const FIGURES = [
  ['pending', 'pending'], ['in_flight', 'in flight'], ['leased', 'leased'], ['waiting_for_lease', 'wait for a lease'],
  ['waiting_for_host', 'wait for a host'], ['dead', 'dead letters'], ['oldest_overdue_ms', 'oldest overdue'],
];

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
    title, height: 150, series: [['timers', 'accent'], ['from schedules', 'soft']],
    summary: ({ values }) => `${plural(values.flat().reduce((sum, n) => sum + n, 0), 'timer')}. Use the arrow keys to read the bars.`,
  });
  let loaded = -Infinity;
  const load = async () => {
    loaded = performance.now();
    const { bars: list } = await get('v1/forecast', { span: span1, from: beginOf(span1), ...(namespace && { namespace }) });
    const at = list.map((bar) => Date.parse(bar.at));
    const every1 = { '1h': 10, '1d': 4, '30d': 5 }[span1];
    chart.set({
      values: [list.map((bar) => bar.timers), list.map((bar) => bar.occurrences)],
      faint: list.map((bar) => !bar.exact),
      ticks: at.map((ms, i) => ({ i, label: barLabel(span1, ms) })).filter(({ i }) => i % every1 === 0),
      describe: (i) => `${span1 === '30d' ? local(at[i]).slice(0, 10) : local(at[i]).slice(5, 16)} · ${list[i].exact ? '' : '≈ '}${plural(list[i].timers, 'timer')}${list[i].occurrences ? ` + ${count(list[i].occurrences)} from schedules` : ''}`,
    });
  };
  return { el: chart.el, load, stale: () => performance.now() - loaded > every };
}

// The last hour: arrays of /v1/stats, which samples continue.
function history() {
  const rates = bars({
    title: 'Attempts per 10 seconds', height: 150, series: [['fired', 'accent'], ['failed', 'warn'], ['dead', 'bad']],
    summary: ({ values }) => ['fired', 'failed', 'dead'].map((label, k) => `${count(values[k].reduce((a, b) => a + b, 0))} ${label}`).join(', '),
  });
  let late = null;
  let data = null;
  const place = div();

  const grow = () => {
    for (const list of [data.created, data.fired, data.failed, data.dead, ...data.lateness.counts]) {
      list.push(0);
      if (list.length > KEEP) list.shift();
    }
    if (data.total === KEEP) data.first += data.step;
    else data.total++;
  };
  const pad = (list) => [...new Array(KEEP - list.length).fill(0), ...list.slice(-KEEP)];

  return {
    el: div('stack', rates.el, place),
    set(stats) {
      const { lateness } = stats;
      data = {
        created: pad(stats.created), fired: pad(stats.fired), failed: pad(stats.failed), dead: pad(stats.dead),
        lateness: { le_ms: lateness.le_ms, counts: lateness.counts.map(pad) },
        step: stats.step_s * 1000, first: Date.parse(stats.from) - (KEEP - Math.min(stats.fired.length, KEEP)) * stats.step_s * 1000, total: KEEP,
      };
      if (!late) {
        late = heat({ title: 'Lateness of the first attempt', rows: [...lateness.le_ms.map((ms) => `≤${bound(ms)}`), `>${bound(lateness.le_ms.at(-1))}`] });
        place.append(late.el);
      }
    },
    add(sample) {
      if (!data) return;
      const at = Date.parse(sample.at);
      if (at > data.first + (KEEP + KEEP) * data.step) return;
      while (at >= data.first + KEEP * data.step) grow();
      data.created[KEEP - 1] += sample.counts.scheduled;
      for (const key of ['fired', 'failed', 'dead']) data[key][KEEP - 1] += sample.counts[key];
      sample.lateness?.forEach((n, b) => {
        data.lateness.counts[b][KEEP - 1] += n;
      });
    },
    draw() {
      if (!data) return;
      const at = (i) => data.first + i * data.step;
      const ticks = [];
      for (let i = 0; i < KEEP; i++) if (at(i) % 600000 === 0) ticks.push({ i, label: local(at(i), { date: false }).slice(0, 5) });
      rates.set({
        values: [data.fired, data.failed, data.dead], ticks,
        describe: (i) => `${local(at(i), { date: false })} · ${count(data.fired[i])} fired, ${count(data.failed[i])} failed, ${count(data.dead[i])} dead, ${count(data.created[i])} created`,
      });
      const wide = 3; // steps per column of the heat map
      const cells = data.lateness.counts.map((list) => Array.from({ length: KEEP / wide }, (_, i) => list[i * wide] + list[i * wide + 1] + list[i * wide + 2]));
      const names = [...data.lateness.le_ms.map((ms) => `≤${bound(ms)}`), 'later'];
      late.set({
        cells, ticks: ticks.map(({ i, label }) => ({ i: i / wide, label })),
        describe: (i) => `${local(at(i * wide), { date: false })} · ${cells.map((list, b) => (list[i] ? `${names[b]}: ${brief(list[i])}` : '')).filter(Boolean).join(', ') || 'no attempts'}`,
      });
    },
  };
}

function figures(namespace) {
  const values = Object.fromEntries(FIGURES.map(([key]) => [key, h('b', {}, '–')]));
  const servers = h('b', {}, '–');
  const shards = h('b', {}, '–');
  const dead = namespace ? link('dead', [namespace]) : null;
  const el = div('figures', FIGURES.map(([key, label]) => div(`figure-${key}`, values[key],
    h('span', {}, key === 'dead' && dead ? h('a', { href: dead }, label) : label))),
  div('', servers, h('span', {}, h('a', { href: '#/cluster' }, 'servers'))), div('', shards, h('span', {}, h('a', { href: '#/cluster' }, 'shards'))));
  return {
    el,
    gauges(gauges) {
      for (const [key] of FIGURES) {
        const value = gauges[key];
        if (value === undefined && !(key in gauges)) values[key].parentElement.hidden = true;
        else text(values[key], key === 'oldest_overdue_ms' ? (value ? span(value) : 'none') : count(value));
        if (value !== undefined) values[key].parentElement.hidden = false;
      }
    },
    async cluster() {
      const { servers: list, shards: all } = await get(path('cluster'));
      text(servers, list.filter((one) => one.linked).length === list.length ? count(list.length) : `${list.filter((one) => one.linked).length} of ${list.length}`);
      const owned = all.filter((one) => one.owner !== null).length;
      text(shards, owned === all.length ? count(owned) : `${owned} of ${all.length}`);
    },
  };
}

export async function show(view, route, page) {
  const namespace = route.query.get('namespace') ?? (allSpaces() ? '' : page.firstSpace());
  const top = figures(namespace);
  const past = history();
  const charts = SPANS.map((one) => forecast(namespace, one));
  view.append(h('h1', {}, 'Now'), top.el, h2('Coming up'), div('three', charts.map((chart) => chart.el)),
    h2('Last hour'), past.el);

  const draw = throttle(() => past.draw());
  const load = async () => {
    const stats = await get('v1/stats', namespace && { namespace });
    past.set(stats);
    top.gauges(stats.gauges);
    past.draw();
    await Promise.all([...charts.map((chart) => chart.load()), top.cluster()]);
  };
  // Forecasts change slowly: they are loaded again when they are old, not with each sample.
  const beat = setInterval(() => {
    if (document.hidden) return;
    for (const chart of charts) if (chart.stale()) chart.load().catch(() => {});
  }, 5000);
  page.follow(namespace, (sample) => {
    top.gauges(sample.gauges);
    past.add(sample);
    draw();
  }, load);
  await load();
  return {
    stop() {
      clearInterval(beat);
      draw.cancel();
    },
  };
}
