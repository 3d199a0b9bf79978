// SPDX-License-Identifier: MIT
// Schedules of a namespace: next and last run, and a strip of the next seven days for each.

import { get, patch, path, post } from './api.js';
import { strip } from './chart.js';
import { attempt } from './dialog.js';
import { a, button, div, gap, h, h1, mono, muted, name, p, pill, swap } from './dom.js';
import { listing } from './list.js';
import { link } from './router.js';
import { can, now } from './state.js';
import { table } from './table.js';
import { clockChanges, time } from './time.js';

const MARKS = 200; // occurrences per strip; more of them are drawn as a band
const DAYS = 7;
const ROWS = 25;

export const rule = (schedule) => (schedule.cron !== undefined
  ? [mono(schedule.cron), muted(` ${schedule.zone ?? 'UTC'}`)]
  : ['every ', mono(schedule.every)]);

export function status(schedule) {
  if (schedule.paused) return pill('paused', 'warn');
  return schedule.next === null ? pill('finished') : null;
}

export async function trigger(namespace, schedule) {
  await attempt(() => post(`${path('schedules', namespace, schedule.name)}/trigger`), 'Triggered: one occurrence is due now.');
}

export async function pause(namespace, schedule) {
  const paused = !schedule.paused;
  return attempt(() => patch(path('schedules', namespace, schedule.name), { paused }), paused ? 'Paused the schedule.' : 'The schedule continues.');
}

// Strips are loaded when they come into view, a few at a time.
function strips(namespace) {
  const queue = [];
  let running = 0;
  const next = () => {
    const job = running < 3 && queue.shift();
    if (!job) return;
    running++;
    job().catch(() => {}).finally(() => {
      running--;
      next();
    });
    next();
  };
  const watcher = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      watcher.unobserve(target);
      queue.push(target.load);
      next();
    }
  });
  return {
    cell(schedule) {
      const el = div('strip-place');
      el.load = async () => {
        const { occurrences } = await get(`${path('schedules', namespace, schedule.name)}/preview`, { n: MARKS });
        const from = now();
        const end = from + DAYS * 86400000;
        const marks = occurrences.map((one) => Date.parse(one.at));
        const inside = marks.filter((ms) => ms < end).length;
        const changes = schedule.cron === undefined ? [] : clockChanges(schedule.zone ?? 'UTC', from, end);
        const label = `${inside >= MARKS ? `more than ${MARKS}` : inside} occurrences in the next ${DAYS} days${changes.length ? '; clocks change' : ''}`;
        swap(el, strip({ from, days: DAYS, marks, more: marks.length === MARKS && marks.at(-1) < end, changes, label }));
        el.title = label;
      };
      watcher.observe(el);
      return el;
    },
    stop: () => watcher.disconnect(),
  };
}

export async function show(view, route, page) {
  const [namespace] = route.parts;
  const writes = can('write', namespace);
  const lanes = strips(namespace);
  const list = table({
    caption: 'Schedules', key: (one) => one.name,
    empty: () => p(route.query.size ? 'No schedule matches the filter.' : ['No schedules here. ', writes && a(link('new-schedule', [namespace]), 'Create one')]),
    columns: [
      { head: 'Schedule', kind: 'main', cell: (one) => [a(link('schedules', [namespace, one.name]), name(one.name)), ' ', status(one)] },
      { head: 'Rule', cell: rule },
      { head: 'Next', kind: 'due', cell: (one) => time(one.next, 'both') },
      { head: 'Last', kind: 'due', cell: (one) => time(one.last, 'relative') },
      { head: 'Next seven days', kind: 'lane', cell: (one) => lanes.cell(one) },
      writes && { head: 'Actions', kind: 'act', cell: (one) => [
        button('Trigger', () => trigger(namespace, one), 'quiet small'),
        button(one.paused ? 'Resume' : 'Pause', async () => (await pause(namespace, one)) && shown.reload(), 'quiet small')] },
    ].filter(Boolean),
  });

  const shown = listing({
    route, page, list, where: path('schedules', namespace), rows: 'schedules', what: 'schedule', order: 'next', rowsPerPage: ROWS, extra: { payload: 'false' },
    fields: [{ key: 'name_contains', label: 'Name contains', search: true }, { key: 'prefix', label: 'Name begins with' }],
    refresh: { namespace, every: 5000, when: (sample) => sample.counts.fired + sample.counts.scheduled > 0 },
  });
  view.append(div('head', h1('Schedules of ', name(namespace)), gap(),
    writes && h('a', { class: 'button', href: link('new-schedule', [namespace]) }, 'New schedule')), shown.bar, list.el, shown.foot);
  await shown.load();
  return { stop: lanes.stop };
}
