// SPDX-License-Identifier: MIT
// What all pages with a list share: the filter, one page of rows, the way to the next one, and refreshing while the page is
// live. The list is not refreshed while the viewer works in it.

import { get, PAGE } from './api.js';
import { ask, attempt, toast } from './dialog.js';
import { button, count, div, field, h, p, plural, select, swap } from './dom.js';
import { throttle } from './live.js';
import { link, pick, setQuery, withParam } from './router.js';
import { fromInput, toInput } from './time.js';

// --- The filter: its fields are parameters of the API, and the page's address holds the same query ---

const TYPING_MS = 350;

function control(item, value, changed) {
  if (item.options) return select(item.options, value, { 'data-search': item.search, onchange: (event) => changed(event.target.value, 0) });
  if (item.time) {
    return h('input', { type: 'datetime-local', step: 1, value: toInput(value), onchange: (event) => changed(fromInput(event.target.value), 0) });
  }
  return h('input', {
    type: item.search ? 'search' : 'text', value: value ?? '', spellcheck: 'false', autocomplete: 'off', maxlength: 1000, placeholder: item.example ?? '',
    'data-search': item.search, oninput: (event) => changed(event.target.value, TYPING_MS), onchange: (event) => changed(event.target.value, 0),
  });
}

// fields: [{param, label, search, time, options, example}]. apply() reloads the list with route.query.
export function filterBar(route, fields, apply) {
  let timer = 0;
  const change = (param) => (value, delay) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if ((route.query.get(param) ?? '') === value) return;
      setQuery(route, withParam(withParam(route.query, param, value), 'cursor', ''));
      showClear();
      apply();
    }, delay);
  };
  const clear = button('Clear filter', () => {
    clearTimeout(timer);
    setQuery(route, new URLSearchParams());
    build();
    showClear();
    apply();
  }, 'quiet');
  const bar = h('form', { class: 'filters', role: 'search', onsubmit: (event) => event.preventDefault() });
  const build = () => bar.replaceChildren(
    ...fields.map((item) => field(item.label, control(item, route.query.get(item.param), change(item.param)))),
    clear);
  const showClear = () => {
    clear.hidden = [...route.query.keys()].length === 0;
  };
  build();
  showClear();
  return bar;
}

export const hasFilter = (query, params) => params.some((param) => query.get(param));

// --- The list ---

export const changed = (sample) => Object.values(sample.counts).some((n) => n > 0);

// list: a table; where: path; rows: key of the answer; params: filter of the API; fields: of the filter bar;
// what: name of a row; also(query): loads what else the page shows; refresh: {namespace, every, when(sample), unless}.
// Returns {bar, foot, load, reload, stop}.
export function listing({ route, page, list, where, rows, params, fields, what, rowsPerPage = PAGE, extra = {}, also, refresh }) {
  const foot = div();
  let asked = 0;

  function filter(more = []) {
    const query = pick(route.query, [...params, ...more]);
    if (params.includes('host') && route.query.has('host')) query.set('host', route.query.get('host')); // empty: without a target
    return query;
  }

  async function load() {
    const mine = ++asked;
    const query = filter(['limit', 'cursor']);
    query.set('limit', Math.min(Number(query.get('limit')) || rowsPerPage, 200));
    for (const [key, value] of Object.entries(extra)) query.set(key, value);
    const [answer] = await Promise.all([get(where, query), also?.()]);
    if (mine !== asked) return; // the filter has changed meanwhile
    const found = answer[rows];
    const to = (cursor) => link(route.page, route.parts, withParam(route.query, 'cursor', cursor));
    list.set(found);
    swap(foot, h('div', { class: 'pager' },
      h('span', { class: 'muted grow' }, found.length === 0 && answer.cursor ? 'No match so far; there is more to search.' : `${plural(found.length, what)} on this page`),
      route.query.get('cursor') && h('a', { href: to(''), class: 'button' }, 'First page'),
      answer.cursor && h('a', { href: to(answer.cursor), class: 'button', rel: 'next' }, 'Next page')));
  }

  const reload = () => load().catch((problem) => toast(problem.message, 'bad'));
  const bar = filterBar(route, fields, () => {
    list.clear();
    reload();
  });
  const again = throttle(() => list.busy() || refresh.unless?.() || load().catch(() => {}), refresh.every);
  page.follow(refresh.namespace, (sample) => (refresh.when ?? changed)(sample) && again(), load);
  return { bar, foot, load, reload, filter, stop: () => again.cancel() };
}

// Counts what the filter matches, lets the viewer confirm the count, and acts. run(filter) sends the request.
export async function byFilter({ filter, run, verb, what, body, danger, final = (query) => query, done, reload }) {
  if (String(filter) === '') filter.set('all', 'true');
  const dry = await attempt(() => run(withParam(filter, 'dry_run', 'true')));
  if (!dry) return;
  const answer = await ask({
    title: `${verb} ${plural(dry.matched, what)}?`, danger, action: dry.matched > 0 ? `${verb} ${count(dry.matched)}` : null,
    body: dry.matched > 0 ? body : p(`No ${what} matches the filter.`), act: () => run(final(filter)),
  });
  if (!answer) return;
  toast(done(answer));
  reload();
}
