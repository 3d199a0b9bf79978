// SPDX-License-Identifier: MIT
// Live: single events as they happen, the latest rows only. When more events come than people can read, the page closes the stream
// and shows counts until the rate falls.

import { a, brief, button, div, h, h1, mono, name, pill, swap } from './dom.js';
import { filterBar } from './list.js';
import { stream, throttle } from './live.js';
import { link, pick, withParam } from './router.js';
import { setClock, state } from './state.js';
import { local, utc } from './time.js';

const ROWS = 200;
const FAST = 500; // events per second above which single events are not shown
const SLOW = 100; // below this they are shown again

const TYPES = ['scheduled', 'fired', 'failed', 'dead', 'cancelled', 'skipped', 'moved', 'paused', 'resumed'];

const KIND = { fired: 'good', failed: 'warn', dead: 'bad', skipped: 'warn', paused: 'warn' };

function line(event) {
  const { type, namespace, host, id } = event;
  const about = host ?? event.name ?? event.schedule ?? id;
  const where = host ? link('targets', [], { prefix: host }) : id ? link(type === 'dead' ? 'dead' : 'timers', [namespace, id]) : link('schedules', [namespace, about]);
  return h('tr', { 'data-row': '' },
    h('td', { class: 'num' }, h('time', { datetime: event.at, title: utc(event.at) }, local(Date.parse(event.at), { date: state.test, millis: true }))),
    h('td', {}, pill(type, KIND[type] ?? '')), h('td', {}, name(namespace ?? '')),
    h('td', {}, about ? a(where, (about === id ? mono : name)(about)) : '–'),
    h('td', { class: 'num' }, event.attempt ?? ''), h('td', { class: 'wide' }, name(event.reason ?? '')));
}

// feed(query) -> {el, close}
export function feed(query) {
  const body = h('tbody', {});
  const note = h('p', { class: 'muted', 'aria-live': 'polite' }, 'Waiting for events…');
  const rates = h('div', { class: 'figures', hidden: true });
  const grid = h('table', { class: 'dense' }, h('caption', { class: 'sr' }, 'Events, newest first'), h('thead', {}, h('tr', {},
    ['Time', 'Event', 'Namespace', 'Timer', 'Attempt', 'Reason'].map((head) => h('th', { scope: 'col' }, head)))), body);
  let fresh = [];
  let total = 0;
  let paused = false;
  let current = null;
  let second = { begins: 0, n: 0 };
  const onState = (value, problem) => problem && (note.textContent = problem.message);

  const draw = throttle(() => {
    const rows = fresh.splice(0).slice(-ROWS).reverse().map(line);
    body.prepend(...rows);
    while (body.childElementCount > ROWS) body.lastElementChild.remove();
    note.textContent = total === 0 ? 'Waiting for events…' : `${brief(total)} events since the page opened${total > ROWS ? `, the latest ${ROWS} are shown` : ''}.`;
  });

  function tooFast() {
    const at = performance.now();
    if (at - second.begins > 1000) second = { begins: at, n: 0 };
    return ++second.n > FAST;
  }

  function single() {
    rates.hidden = true;
    grid.hidden = false;
    current = stream({
      query, onState,
      onEvent(type, data) {
        if (type === 'dropped') note.textContent = data.count === null ? 'Some events were missed.' : `${brief(data.count)} events were missed.`;
        if (type === 'dropped' || paused) return;
        if (state.test && data.at) setClock(data.at);
        total++;
        fresh.push(data);
        if (fresh.length > ROWS * 2) fresh = fresh.slice(-ROWS);
        if (tooFast()) follow(sampled);
        else draw();
      },
    });
  }

  function sampled() {
    let calm = 0;
    grid.hidden = true;
    rates.hidden = false;
    note.textContent = `More than ${FAST} events per second. These are events per second by type; choose a namespace or a type to see single events.`;
    const seen = [];
    current = stream({
      query: withParam(withParam(query, 'type', ''), 'sample', '4/s'), onState,
      onEvent(type, data) {
        seen.push(data);
        if (seen.length < 4) return;
        const spanS = Math.max((Date.parse(data.at) - Date.parse(seen[0].at)) / 1000, 0.25);
        const sums = Object.keys(data.counts).map((key) => [key, seen.slice(1).reduce((sum, one) => sum + one.counts[key], 0) / spanS]);
        seen.splice(0, seen.length - 4);
        swap(rates, sums.map(([key, rate]) => div('', h('b', {}, brief(Math.round(rate))), h('span', {}, `${key} per second`))));
        calm = sums.reduce((sum, [, rate]) => sum + rate, 0) < SLOW ? calm + 1 : 0;
        if (calm > 8) follow(single);
      },
    });
  }

  function follow(how) {
    current?.close();
    second = { begins: 0, n: 0 };
    how();
  }

  const pause = button('Pause', () => {
    paused = !paused;
    pause.textContent = paused ? 'Continue' : 'Pause';
  });
  const clear = button('Clear', () => body.replaceChildren(), 'quiet');
  follow(single);
  return { el: div('', div('row', pause, clear, note), rates, grid), close: () => current.close() };
}

export function show(view, route) {
  let current = null;
  const place = div();
  const open = () => {
    current?.close();
    current = feed(pick(route.query, ['namespace', 'type']));
    swap(place, current.el);
  };
  const bar = filterBar(route, [
    { key: 'type', label: 'Event', search: true, options: [['', 'all'], ...TYPES, ['failed,dead', 'failed and dead']] },
  ], open);
  view.append(h1('Live'), bar, place);
  open();
  return { stop: () => current?.close() };
}
