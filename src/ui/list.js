// SPDX-License-Identifier: MIT
// What all pages with a list share: the filter, one page of rows, the way to the next one, and refreshing while the page is
// live. The list is not refreshed while the viewer works in it.

import { get, PAGE } from './api.js';
import { ask, attempt, toast } from './dialog.js';
import { button, count, div, field, h, p, plural, swap } from './dom.js';
import { link, pick, setQuery, withParam } from './router.js';
import { control } from './sheet.js';
import { fromInput } from './time.js';

const TYPING_MS = 350;
const SEARCH_MS = 3000; // then the viewer must ask for more

// The filter: fields of a sheet; the keys are parameters of the API and of the page's address. apply() reloads the list.
export function filterBar(route, fields, apply) {
  let timer = 0;
  const place = (item) => {
    const { key, label, time } = item;
    const input = control(item, route.query.get(key));
    const change = ({ type }) => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        const value = time ? fromInput(input.value) : input.value;
        if ((route.query.get(key) ?? '') === value) return;
        setQuery(route, withParam(withParam(route.query, key, value), 'cursor', ''));
        showClear();
        apply();
      }, type === 'input' ? TYPING_MS : 0);
    };
    input.addEventListener('change', change);
    if (!time) input.addEventListener('input', change);
    return field(label, input);
  };
  const clear = button('Clear filter', () => {
    clearTimeout(timer);
    setQuery(route, pick(route.query, ['namespace']));
    build();
    showClear();
    apply();
  }, 'quiet');
  const bar = h('form', { class: 'filters', role: 'search', onsubmit: (event) => event.preventDefault() });
  const build = () => bar.replaceChildren(...fields.map(place), clear);
  const showClear = () => {
    clear.hidden = ![...route.query.keys()].some((key) => key !== 'namespace');
  };
  build();
  showClear();
  return bar;
}

// list: a table; where: path; rows: key of the answer; fields: of the filter bar; params: of the API besides;
// what: name of a row; order: the time by which a page is sorted, because the server sorts roughly; also(query): loads what else
// the page shows; refresh: {namespace, every, when(sample), unless}.
// Returns {bar, foot, load, reload, filter}.
export function listing({ route, page, list, where, rows, params = [], fields, what, order, rowsPerPage = PAGE, extra = {}, also, refresh }) {
  const foot = div();
  let asked = 0;
  let slow = false; // the server had to search
  let missed = false; // something has changed while the viewer worked in the list

  function filter(more = []) {
    const query = pick(route.query, [...fields.map(({ key }) => key), ...params, ...more]);
    if (params.includes('host') && route.query.has('host')) query.set('host', route.query.get('host')); // empty: without a target
    return query;
  }

  async function load() {
    const mine = ++asked;
    missed = false;
    const query = filter(['limit', 'cursor']);
    const limit = Math.min(Number(query.get('limit')) || rowsPerPage, 200);
    for (const [key, value] of Object.entries({ ...extra, limit })) query.set(key, value);
    let [answer] = await Promise.all([get(where, query), also?.()]);
    const found = answer[rows];
    const began = performance.now();
    while (mine === asked && answer.cursor && found.length < limit && performance.now() < began + SEARCH_MS) {
      query.set('cursor', answer.cursor);
      query.set('limit', limit - found.length);
      answer = await get(where, query);
      found.push(...answer[rows]);
    }
    slow = performance.now() > began + 500;
    if (mine !== asked) return; // the filter has changed meanwhile
    if (order) found.sort((a, b) => Date.parse(a[order]) - Date.parse(b[order]));
    const to = (cursor) => link(route.page, route.parts, withParam(route.query, 'cursor', cursor));
    list.set(found, found.length === 0 && answer.cursor && p('No match so far; there is more to search.'));
    swap(foot, h('div', { class: 'pager' },
      h('span', { class: 'muted grow' }, `${plural(found.length, what)} on this page`),
      route.query.get('cursor') && h('a', { href: to(''), class: 'button' }, 'First page'),
      answer.cursor && h('a', { href: to(answer.cursor), class: 'button' }, found.length ? 'Next page' : 'Search on')));
  }

  const reload = () => load().catch((problem) => toast(problem.message, 'bad'));
  const bar = filterBar(route, fields, () => {
    list.clear();
    reload();
  });
  const unless = () => {
    missed = list.busy();
    return missed || slow || refresh.unless?.();
  };
  const again = page.refresh(refresh.namespace, load, { ...refresh, unless });
  for (const type of ['pointerleave', 'focusout', 'click']) list.el.addEventListener(type, () => missed && again());
  return { bar, foot, load, reload, filter };
}

// Acts on the selected rows, and says on how many: done(n).
export async function each(rows, act, done) {
  const problems = (await Promise.all(rows.map((row) => act(row).then(() => null, (problem) => problem)))).filter(Boolean);
  toast(`${done(rows.length - problems.length)} ${problems[0]?.message ?? ''}`, problems[0] && 'bad');
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
