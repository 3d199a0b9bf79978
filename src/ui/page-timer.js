// SPDX-License-Identifier: MIT
// One timer, or one dead letter: when it is due, what it carries, what its attempts got, and what can be done with it.

import { get, patch, path, post, remove } from './api.js';
import { curlCommand, foliotCommand } from './commands.js';
import { ask, attempt, copy, toast } from './dialog.js';
import { a, button, div, field, h, h1, h2, iso, mono, name, p, pill, plural, swap, text } from './dom.js';
import { history } from './history.js';
import { label, title } from './page-timers.js';
import { beginning, payload } from './payload.js';
import { pausedPill } from './pause.js';
import { go, link } from './router.js';
import { allSpaces, can, now } from './state.js';
import { fromInput, local, parseDuration, relative, time, toInput, utc } from './time.js';
import { timeline } from './timeline.js';

const NO_PAYLOAD = { payload: 'false' };
const COPY_BYTES = 32768; // a longer payload does not belong on a command line

function facts(timer) {
  const retry = timer.retry && Object.entries(timer.retry).map(([key, value]) => `${key.replaceAll('_', ' ')} ${value}`).join(', ');
  const rows = [
    ['ID', mono(timer.id)], ['Due', time(timer.due, 'absolute', { millis: true })],
    timer.local !== undefined && ['Local time', `${timer.local} ${timer.zone}`],
    ['Created', time(timer.created, 'both')], timer.died !== undefined && ['Died', time(timer.died, 'both')],
    timer.reason !== undefined && ['Reason', name(timer.reason)], ['Attempts', String(timer.attempt)],
    ['Target', timer.target ? name(timer.target) : 'none: a worker leases this timer'],
    timer.schedule !== undefined && ['Schedule', a(link('schedules', [timer.namespace, timer.schedule]), name(timer.schedule))],
    timer.occurrence !== undefined && ['Occurrence', time(timer.occurrence)],
    timer.timeout !== undefined && ['Timeout', timer.timeout], retry && ['Retry', retry],
    timer.max_wait !== undefined && ['Debounce', `due within ${timer.max_wait} of its creation${timer.merge ? `, keeps the ${timer.merge} payload` : ''}`], timer.replaced && ['Replaced', plural(timer.replaced, 'time')],
    timer.headers !== undefined && ['Headers', h('ul', { class: 'plain' }, Object.entries(timer.headers).map(([key, value]) => h('li', { class: 'mono' }, h('bdi', {}, `${key}: ${value}`))))],
  ];
  return h('dl', { class: 'facts' }, rows.filter(Boolean).map(([key, value]) => div('', h('dt', {}, key), h('dd', {}, value))));
}

// The payload for a command, or nothing if it is too long for one.
async function content(timer) {
  if (!timer.payload_bytes || timer.payload_bytes > COPY_BYTES) return undefined;
  const { data, json } = await beginning(path('timers', timer.namespace, timer.id, 'payload'));
  if (json) return { text: new TextDecoder().decode(data), binary: false };
  return { text: JSON.stringify(btoa(String.fromCharCode(...data))), binary: true };
}

// Why a due timer waits, if its namespace or its host is paused.
async function hold({ due, namespace, target }) {
  if (Date.parse(due) > now()) return null;
  const { paused } = await get(path('namespaces', namespace));
  if (paused) return ['The namespace is', pausedPill(paused)];
  const { protocol, hostname, port } = new URL(target ?? 'lease:');
  if (!hostname || !allSpaces()) return null;
  const { hosts } = await get(path('hosts'), { prefix: `${hostname}:${port || (protocol === 'https:' ? 443 : 80)}`, limit: 1 });
  return hosts[0]?.paused && ['The host is', pausedPill(hosts[0].paused)];
}

const copyAs = (timer, make, what) => attempt(async () => {
  const command = make(timer, await content(timer));
  await copy(timer.payload_bytes > COPY_BYTES ? `${command}\n# The payload is too large for a command line and is left out.` : command, what);
});

async function cancel(timer) {
  const done = await ask({
    title: `Cancel ${iso(label(timer))}?`, body: p('The timer will not fire.'), action: 'Cancel the timer', danger: true,
    act: () => remove(path('timers', timer.namespace, timer.id)),
  });
  if (!done) return;
  toast('Cancelled the timer.');
  go(link('timers', [timer.namespace]));
}

async function fire(timer, reload) {
  const done = await ask({
    title: `Fire ${iso(label(timer))} now?`, body: p(timer.target ? 'Foliot calls the target at once.' : 'The timer is due at once, and a worker can lease it.'),
    action: 'Fire now', act: () => post(path('timers', timer.namespace, timer.id, 'fire')),
  });
  if (!done) return;
  toast('The timer is due now.');
  reload();
}

// Moving: the timeline, the time and the duration say the same; "Move" sends it.
function mover(timer, reload) {
  let due = Date.parse(timer.due);
  let wanted = due;
  const at = h('input', { type: 'datetime-local', step: 1, value: toInput(timer.due), onchange: () => want(Date.parse(fromInput(at.value)), 'at') });
  const after = h('input', { type: 'text', placeholder: '1h30m', autocomplete: 'off', oninput: () => want(now() + parseDuration(after.value), 'after') });
  const save = button('Move', async () => {
    const body = after.value && !Number.isNaN(parseDuration(after.value)) ? { after: after.value.replace(/\s/g, '') } : { due: new Date(wanted).toISOString() };
    if (await attempt(() => patch(path('timers', timer.namespace, timer.id), body), 'Moved the timer.')) reload();
  }, 'primary', { disabled: true });
  const reset = button('Reset', () => want(due, ''), 'quiet');
  const line = timeline({ due, onMove: (ms) => want(ms, 'line') });

  function want(ms, source) {
    if (Number.isNaN(ms)) {
      save.disabled = true;
      return;
    }
    wanted = ms;
    if (source !== 'after') after.value = '';
    if (source !== 'at') at.value = toInput(new Date(ms).toISOString());
    if (source !== 'line') line.set(ms);
    save.disabled = wanted === due;
    reset.hidden = wanted === due;
  }
  reset.hidden = true;
  return {
    el: h('section', {}, h2('Move'), line.el, div('row fields', field('Due at', at), field('or due after', after), save, reset)),
    busy: () => wanted !== due,
    set(next) {
      due = Date.parse(next.due);
      want(due, '');
      line.set(due, due);
    },
    draw: line.draw,
  };
}

function actions(timer, dead, reload) {
  const writes = can('write', timer.namespace);
  const path1 = path('dead', timer.namespace, timer.id);
  const leave = () => go(link('dead', [timer.namespace]));
  const redrive = async () => {
    if (await attempt(() => post(`${path1}/redrive`), 'Redriven: the timer is due now.')) leave();
  };
  const erase = async () => {
    const done = await ask({
      title: 'Delete this dead letter?', body: p('It cannot be redriven afterwards.'), action: 'Delete', danger: true,
      act: () => remove(path1),
    });
    if (done) leave();
  };
  return h('div', { class: 'actions start' },
    writes && dead && [button('Redrive', redrive, 'primary'), button('Delete…', erase, 'danger')],
    writes && !dead && [button('Fire now…', () => fire(timer, reload)), button('Cancel…', () => cancel(timer), 'danger')],
    !dead && [button('Copy as curl', () => copyAs(timer, curlCommand, 'the curl command'), 'quiet'), button('Copy as foliot', () => copyAs(timer, foliotCommand, 'the foliot command'), 'quiet')]);
}

// A timer that is gone still has a history.
function gone(view, namespace, which, page) {
  const byId = /^[0-9a-z]{26}$/.test(which);
  const past = history(namespace, byId ? { id: which } : { name: which });
  view.append(h1(byId ? mono(which) : name(which)), h('p', { class: 'muted' }, 'No such timer is pending: it has fired, was cancelled, or never existed.'),
    p(a(link('timers', [namespace]), 'Timers of ', name(namespace)), ' · ', a(link('dead', [namespace]), 'Dead letters')), past.el);
  page.refresh(namespace, past.load);
  past.load();
}

export async function show(view, route, page) {
  const [namespace, which] = route.parts;
  const dead = route.page === 'dead';
  const where = path(route.page, namespace, which);
  let timer;
  try {
    timer = await get(where, NO_PAYLOAD);
  } catch (problem) {
    if (problem.status === 404 && problem.kind === 'not-found') return gone(view, namespace, which, page);
    throw problem;
  }
  const count = h('div', { class: 'countdown', role: 'timer' });
  const details = div('', facts(timer));
  const past = history(namespace, { id: timer.id });
  const date = h('p', { class: 'muted' });
  const why = p();
  const held = () => dead || hold(timer).then((words) => swap(why, words), () => {});
  const reload = () => load().catch((problem) => problem.status === 404 && page.reload());
  const move = !dead && can('write', namespace) ? mover(timer, reload) : null;
  const left = () => {
    const ms = Date.parse(timer.due);
    text(count, dead ? 'dead' : ms > now() ? relative(ms) : timer.attempt > 0 ? 'trying again' : `due ${relative(ms)}`);
    count.title = utc(ms);
    text(date, dead ? '' : local(ms));
    move?.draw();
  };

  async function load() {
    const next = await get(where, NO_PAYLOAD);
    if (JSON.stringify(next) !== JSON.stringify(timer)) {
      timer = next;
      swap(details, facts(timer));
      move?.set(timer);
    }
    left();
    past.load();
    held();
  }

  view.append(h('p', { class: 'crumb' }, a(link(route.page, [namespace]), dead ? 'Dead letters' : 'Timers', ' of ', name(namespace))),
    div('head', h1(title(timer)), dead && pill('dead letter', 'bad')),
    count, date, why, actions(timer, dead, reload));
  if (move) view.append(move.el);
  view.append(div('two', h('section', {}, h2('Content'), details),
    h('section', {}, h2('Payload'), payload(path(route.page, namespace, timer.id, 'payload'), timer.payload_bytes, timer.payload_type))), past.el);
  left();
  const ticker = setInterval(() => document.hidden || left(), 1000);
  page.refresh(namespace, reload, { unless: () => move?.busy() });
  past.load();
  held();
  return { stop: () => clearInterval(ticker) };
}
