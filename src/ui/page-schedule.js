// SPDX-License-Identifier: MIT
// One schedule, or a new one: a form, with the next ten occurrences beside it while the viewer types.

import { get, patch, path, post, put, remove } from './api.js';
import { ask, guard, toast } from './dialog.js';
import { a, button, div, errorLine, field, h, h1, h2, iso, muted, name, p, plural, swap } from './dom.js';
import { history } from './history.js';
import { pause, rule, status, trigger } from './page-schedules.js';
import { go, link } from './router.js';
import { sheet } from './sheet.js';
import { can } from './state.js';
import { local, relative, time, toInput } from './time.js';

const TYPING_MS = 250;

// Fields of the form: key, label, kind, hint or options. `calendar` fields are refused with `every`.
const FIELDS = [
  { group: 'When' },
  { key: 'cron', label: 'Cron', hint: 'Five fields: minute, hour, day of month, month, day of week. Or @daily, @hourly …', example: '0 9 * * MON-FRI' },
  { key: 'every', label: 'or every', hint: 'A duration instead of cron', example: '15m' },
  { key: 'zone', label: 'Time zone', list: 'zones', calendar: true, example: 'UTC' },
  { key: 'start', label: 'Start', time: true }, { key: 'end', label: 'End', time: true },
  { key: 'count', label: 'Count', number: true, hint: 'Maximum number of occurrences' },
  { key: 'except', label: 'Except', lines: true, calendar: true, hint: 'Local dates or times, separated by spaces', example: '2026-12-25' },
  { key: 'gap', label: 'In a gap of the clock', options: [['', 'after (default)'], 'skip'], calendar: true },
  { key: 'repeat', label: 'In a repeated hour', options: [['', 'first (default)'], 'both'], calendar: true },
  { key: 'window', label: 'Jitter window', hint: 'Spreads schedules over this duration', example: '5m' },
  { group: 'Missed and overlapping occurrences' },
  { key: 'missed', label: 'Missed', options: [['', 'last (default)'], 'all', 'skip'] },
  { key: 'grace', label: 'Grace', example: '10s' }, { key: 'missed_within', label: 'Missed within', example: '1h' },
  { key: 'overlap', label: 'Overlap', options: [['', 'allow (default)'], 'skip', 'queue'] },
  { group: 'What' },
  { key: 'target', label: 'Target', wide: true, hint: 'Without a target, workers lease the occurrences', example: 'https://example.com/hook' },
  { key: 'payload', label: 'Payload (JSON)', json: true, area: true }, { key: 'headers', label: 'Headers (JSON object)', json: true, area: true },
  { key: 'timeout', label: 'Timeout', example: '30s' }, { key: 'retry', label: 'Retry (JSON object)', json: true, example: '{"max_attempts": 5}' },
];

// Fields that only a calendar has are refused with `every`.
function form(schedule, onInput) {
  const made = sheet(FIELDS, (key) => schedule[key], { onsubmit: (event) => event.preventDefault(), oninput: () => {
    refuse();
    onInput();
  } });
  const refuse = () => {
    const every = made.controls.get('every').value.trim() !== '';
    for (const { key, calendar } of FIELDS) if (calendar) made.controls.get(key).disabled = every;
    made.controls.get('cron').disabled = every;
  };
  refuse();
  return made;
}

function occurrences(list) {
  if (list.length === 0) return h('p', { class: 'muted' }, 'This schedule has no further occurrence.');
  return h('ol', { class: 'preview' }, list.map((one) => h('li', {}, time(one.at), muted(relative(Date.parse(one.at))),
    one.local && !one.local.startsWith(local(Date.parse(one.at)).replace(' ', 'T')) && h('span', { class: 'muted num' }, one.local.replace('T', ' ')),
    one.dst && h('span', { class: 'pill warn' }, one.dst === 'gap' ? 'clock gap' : 'repeated hour'))));
}

// What PATCH must send: fields that differ, and null for those that were removed.
function difference(before, after) {
  const change = {};
  for (const { key } of FIELDS.filter((one) => one.key)) {
    const [old, next] = [before[key], after[key]];
    if (JSON.stringify(old) === JSON.stringify(next)) continue;
    if ((key === 'start' || key === 'end') && old && next && toInput(old) === toInput(next)) continue;
    if (next !== undefined) change[key] = next;
    else if (old !== undefined) change[key] = null;
  }
  return change;
}

// Defaults that responses contain are not shown as the viewer's choice.
const DEFAULTS = { gap: 'after', repeat: 'first', missed: 'last', overlap: 'allow' };
const bare = (schedule) => Object.fromEntries(Object.entries(schedule).filter(([key, value]) => DEFAULTS[key] !== value && value !== null));

function zones() {
  const names = Intl.supportedValuesOf?.('timeZone') ?? [];
  return h('datalist', { id: 'zones' }, ['UTC', ...names].map((zone) => h('option', { value: zone })));
}

async function erase(namespace, schedule) {
  const done = await ask({
    title: `Delete ${iso(schedule.name)}?`, body: p('No further occurrences. Timers of past occurrences stay.'), action: 'Delete', danger: true,
    act: () => remove(path('schedules', namespace, schedule.name)),
  });
  if (done) go(link('schedules', [namespace]));
}

function preview(namespace, fields, nameOf) {
  const place = div();
  let timer = 0;
  let asked = 0;
  const load = async () => {
    const mine = ++asked;
    try {
      const body = fields.values();
      fields.mark(null);
      if (body.cron === undefined && body.every === undefined) return swap(place, muted('The next ten occurrences appear here.'));
      const { cron, every, zone, start, end, count, except, gap, repeat, window: spread } = body;
      const query = { n: 10, namespace, ...(nameOf() && { name: nameOf() }) };
      const answer = await post('v1/schedules/preview', { cron, every, zone, start, end, count, except, gap, repeat, window: spread }, query);
      if (mine === asked) swap(place, occurrences(answer.occurrences));
    } catch (problem) {
      if (mine !== asked) return;
      fields.mark(problem);
      swap(place, h('p', { class: 'error', role: 'alert' }, problem.message), problem.field === 'cron' && problem.position !== undefined && pointer(fields, problem.position));
    }
  };
  return {
    el: h('section', { class: 'aside', 'aria-live': 'polite' }, h2('Next ten occurrences'), place),
    ask(delay = TYPING_MS) {
      clearTimeout(timer);
      timer = setTimeout(load, delay);
    },
    stop: () => clearTimeout(timer),
  };
}

// The expression with a mark under the place that the server could not read.
const pointer = (fields, position) => {
  const expression = fields.el.elements.cron.value.trim();
  return h('pre', { 'aria-hidden': 'true' }, `${expression}\n${' '.repeat(Math.min(position, expression.length))}^`);
};

// What the server says of the schedule; the form below keeps what the viewer types.
function head(namespace, schedule, reload) {
  const writes = can('write', namespace);
  return [
    h('p', { class: 'row' }, rule(schedule), status(schedule), schedule.next && h('span', {}, '· next ', time(schedule.next, 'relative')),
      schedule.last && muted('· last ', time(schedule.last, 'relative')), muted(`· ${plural(schedule.made, 'occurrence')} created`)),
    div('actions start', writes && [
      button('Trigger', () => trigger(namespace, schedule).then(reload)), button(schedule.paused ? 'Resume' : 'Pause', () => pause(namespace, schedule).then(reload)),
      button('Delete…', () => erase(namespace, schedule), 'danger')], h('a', { class: 'button quiet', href: link('timers', [namespace], { schedule: schedule.name }) }, 'Its timers')),
  ];
}

export async function show(view, route, page) {
  const [namespace, which] = route.parts;
  const fresh = route.page === 'new-schedule';
  const read = () => get(path('schedules', namespace, which));
  const schedule = fresh ? {} : await read();
  const given = bare(schedule);
  const writes = can('write', namespace);
  const nameInput = fresh && h('input', { type: 'text', maxlength: 255, required: true, autocomplete: 'off' });
  const fields = form(given, () => ahead.ask());
  const ahead = preview(namespace, fields, () => (fresh ? nameInput.value : which));
  const error = errorLine();

  const save = () => guard(error, async () => {
    if (fresh && !nameInput.value) throw new Error('The schedule needs a name.');
    const values = fields.values();
    if (fresh) await put(path('schedules', namespace, nameInput.value), values);
    else await patch(path('schedules', namespace, which), difference(given, values));
    toast('Saved the schedule.');
    if (fresh) go(link('schedules', [namespace, nameInput.value]));
    else page.reload();
  }, fields.mark);

  const past = !fresh && history(namespace, { schedule: which });
  view.append(h('p', { class: 'crumb' }, a(link('schedules', [namespace]), 'Schedules of ', name(namespace))),
    div('head', h1(fresh ? 'New schedule' : name(which))));
  const top = div();
  const load = async () => {
    try {
      swap(top, head(namespace, await read(), load));
      past.load();
    } catch (problem) {
      if (problem.status === 404) page.reload();
    }
  };
  if (!fresh) swap(top, head(namespace, schedule, load));
  view.append(top);
  if (schedule.payload_base64) fields.controls.get('payload').placeholder = 'The payload is binary. It stays unless you type another one.';
  const saving = writes && div('actions start', button(fresh ? 'Create' : 'Save changes', save, 'primary'), error);
  view.append(div('editor', div('', fresh && field('Name', nameInput), fields.el, saving), ahead.el), zones());
  if (!writes) for (const input of fields.el.elements) input.disabled = true;
  ahead.ask(0);
  if (past) {
    view.append(past.el);
    past.load();
  }
  if (!fresh) page.refresh(namespace, load, { unless: () => top.matches(':active') });
  return { stop: ahead.stop };
}
