// SPDX-License-Identifier: MIT
// Starts the dashboard: who is the viewer, which page does the address name, is the server there. A page is a module with
// show(view, route, page); it returns {stop} or nothing. The sample stream is shared: it stays open while pages change.

import { get, path, Problem, remove, url, whenUnauthorized } from './api.js';
import { authorization } from './commands.js';
import { attempt } from './dialog.js';
import { add, button, div, h, h1, iso, p, swap, text } from './dom.js';
import { help, listen } from './keys.js';
import { changed, stream, throttle } from './live.js';
import { go, link, parse, withParam } from './router.js';
import { allSpaces, keepSpace, lastSpace, setClock, state } from './state.js';
import { span, tick, zoneLabel } from './time.js';

// within: the page needs a namespace; one: the module for one thing of the list.
const PAGES = {
  __proto__: null,
  now: { label: 'Now' },
  timers: { label: 'Timers', within: true, one: 'timer' },
  schedules: { label: 'Schedules', within: true, one: 'schedule' },
  'new-schedule': { module: 'schedule', within: true },
  dead: { label: 'Dead letters', within: true, one: 'timer' },
  targets: { label: 'Targets', shown: allSpaces },
  namespaces: { label: 'Namespaces' },
  cluster: { label: 'Cluster' },
  live: { label: 'Live' },
  clock: { label: 'Test clock', shown: () => state.test },
};

const LINK_TEXT = { live: 'Live', connecting: 'Connecting…', hidden: 'Paused', lost: 'No connection. Trying again…' };

const byId = (id) => document.getElementById(id);
const main = byId('main');
const menu = byId('menu');
const spaceInput = byId('namespace');
const linkState = byId('link');
let current = null; // {route, stop, view}
let samples = null; // {namespace, close}
let onSample = () => {};
let onBack = () => {};
let away = false; // the stream was closed or hidden since the page got its data
let first = ''; // a namespace that exists
let upgraded = false; // modules that are not loaded cannot be, or are of another version: the page must begin anew

function setLink(value, problem) {
  const back = value === 'live' && away;
  if (value !== 'connecting') away = value !== 'live';
  if (value !== 'connecting' || state.link !== 'lost') state.link = value;
  linkState.className = `state ${state.link}`;
  text(linkState, problem ? problem.message : LINK_TEXT[state.link]);
  if (back) {
    Promise.resolve(onBack()).catch(() => {});
    get('version').then(({ version }) => (upgraded = version !== state.version)).catch(() => {});
  }
}

function openSamples(namespace) {
  if (samples?.namespace === namespace) return;
  samples?.close();
  const query = { sample: '2/s', ...(namespace && { namespace }) };
  samples = { namespace, close: () => {} };
  const opened = stream({
    query, onState: setLink,
    onEvent: (type, data) => {
      if (type !== 'sample') return;
      setClock(data.at);
      onSample(data);
      if (!page.firstSpace() && data.gauges.pending) suggest().then(page.reload).catch(() => {});
    },
  });
  samples.close = opened.close;
}

const page = {
  firstSpace: () => (allSpaces() ? lastSpace() || first : state.who.namespaces.includes(lastSpace()) ? lastSpace() : state.who.namespaces[0] ?? ''),
  // Samples of the namespace ('' for all) come to `sample`; `back` loads the page's data again after the server was away.
  // A page that the viewer has left meanwhile gets none.
  follow(namespace, sample, back) {
    if (current !== this.mine) return;
    onSample = sample;
    onBack = back;
    openSamples(namespace || (allSpaces() ? '' : page.firstSpace()));
  },
  // Loads the page's data again when something has changed, and after the server was away.
  refresh(namespace, load, { every = 2000, when = changed, unless = () => false } = {}) {
    const again = throttle(() => current !== this.mine || unless() || load().catch(() => {}), every);
    this.follow(namespace, (sample) => when(sample) && again(), load);
    return again;
  },
  reload: () => navigate(true),
  welcome, // what to do first
};

function showProblem(view, problem) {
  swap(view, h1(problem.status === 404 ? 'Not found' : 'This page cannot be shown'),
    h('p', { class: 'error', role: 'alert' }, problem.message), button('Try again', () => navigate(true)));
}

function spaceOf(route) {
  if (PAGES[route.page]?.within || route.page === 'namespaces') return route.parts[0] ?? '';
  return route.query.get('namespace') ?? '';
}

function drawNav(route) {
  const within = page.firstSpace();
  swap(byId('nav'), h('ul', {}, Object.entries(PAGES).filter(([, item]) => item.label && (item.shown?.() ?? true)).map(([id, item]) =>
    h('li', {}, h('a', {
      href: item.within && within ? link(id, [within]) : link(id), 'aria-current': id === route.page || (id === 'schedules' && route.page === 'new-schedule') ? 'page' : null,
    }, item.label)))));
}

function drawFoot() {
  const { token, rights, session } = state.who;
  const signOut = async () => {
    if (await attempt(() => remove('ui/session'))) location.reload();
  };
  swap(byId('foot'), token !== null && p('Token ', h('b', {}, h('bdi', {}, token)), !rights.includes('write') && ', read-only'),
    p(`Times in ${zoneLabel()}`), state.test && p('This server has a test clock.'),
    state.skew !== 0 && h('p', { class: 'warn' }, `This computer's clock is ${span(state.skew)} ${state.skew > 0 ? 'behind' : 'ahead of'} the server's.`),
    p(`Foliot ${state.version} · `, button('Keys', help, 'link'), session && [' · ', button('Sign out', signOut, 'link')]));
}

function welcome(view) {
  add(view, h('div', { class: 'empty' }, p('This server has no timers yet. Create the first one:'), h('pre', { tabindex: 0 }, `curl -X PUT ${url(path('timers', 'demo', 'tea')).href}${authorization()} -H 'Content-Type: application/json' -d '{"after":"5m"}'`)));
}

async function render(route, view, own) {
  const entry = PAGES[route.page];
  if (!entry) throw new Problem(404, { detail: `There is no page "${iso(route.page)}".` });
  if (entry.within && route.parts.length === 0) {
    const namespace = page.firstSpace();
    if (namespace) return location.replace(link(route.page, [namespace], route.query));
    add(view, h1(PAGES[route.page].label ?? 'No namespace yet'));
    return welcome(view);
  }
  const module = await import(`./page-${route.parts.length > 1 && entry.one ? entry.one : entry.module ?? route.page}.js`).catch(() => {
    upgraded = true;
    throw new Problem(0, { detail: 'The server does not respond.' });
  });
  return module.show(view, route, own);
}

function openMenu(open) {
  document.body.classList.toggle('menu', open);
  menu.setAttribute('aria-expanded', String(open));
}

async function navigate(quiet) {
  if (upgraded && state.link === 'live') return location.reload();
  const route = parse(location.hash);
  const view = div(`page page-${route.page}`);
  const mine = { route, view, stop: () => {} };
  current?.stop();
  current = mine;
  onSample = () => {};
  onBack = page.reload;
  const namespace = spaceOf(route);
  if (namespace) keepSpace(namespace);
  spaceInput.value = namespace;
  openMenu(false);
  drawNav(route);
  openSamples(namespace || (allSpaces() ? '' : page.firstSpace()));
  swap(main, view);
  document.title = [...route.parts.slice(1).map(iso), PAGES[route.page]?.label, namespace && iso(namespace), 'Foliot'].filter(Boolean).join(' · ');
  if (quiet !== true) {
    window.scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
  try {
    const result = await render(route, view, { ...page, mine });
    if (current === mine) mine.stop = result?.stop ?? mine.stop;
    else result?.stop?.();
  } catch (problem) {
    if (problem.status !== 401 && current === mine) showProblem(view, problem);
    if (!('status' in problem)) throw problem;
  }
}

// --- The field for the namespace ---

async function suggest() {
  const { namespaces } = await get(path('namespaces'), { limit: 20, ...(spaceInput.value && { name_contains: spaceInput.value }) });
  first ||= namespaces[0]?.namespace ?? '';
  swap(byId('namespaces'), namespaces.map((one) => h('option', { value: one.namespace })));
}

function chooseSpace() {
  const namespace = spaceInput.value;
  const { page: id } = current.route;
  const was = spaceOf(current.route);
  if (!namespace && PAGES[id]?.within) spaceInput.value = was; // these pages need one
  if (namespace === was || spaceInput.value === was) return;
  if (PAGES[id]?.within) go(link(id === 'new-schedule' ? 'schedules' : id, [namespace]));
  else if (id === 'now' || id === 'live') go(link(id, [], withParam(current.route.query, 'namespace', namespace)));
  else go(namespace ? link('timers', [namespace]) : link('namespaces'));
}

function listenSpace() {
  let timer = 0;
  spaceInput.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(() => suggest().catch(() => {}), 200);
  });
  spaceInput.addEventListener('change', chooseSpace);
  byId('space').addEventListener('submit', (event) => {
    event.preventDefault();
    chooseSpace();
  });
}

// --- Start ---

let signingIn = false;
whenUnauthorized(async () => {
  if (signingIn) return;
  signingIn = true;
  samples?.close();
  samples = null;
  current?.stop();
  current = null;
  document.body.classList.add('signed-out');
  const view = div('page signin');
  swap(main, view);
  const { show } = await import('./page-signin.js');
  show(view, () => location.reload());
});

async function begin() {
  state.who = await get(path('whoami'));
  const [clock, version] = await Promise.all([get(path('clock')), get('version')]);
  state.test = clock.test;
  setClock(clock.now);
  state.version = version.version;
  await suggest();
}

async function start() {
  try {
    await begin();
  } catch (problem) {
    if (problem.status === 401) return;
    if (problem.status === 403) { // the token may not read
      drawFoot();
      return showProblem(main, problem);
    }
    // The server is away: say so, and begin when it is there.
    swap(main, h1('No connection'), h('p', { class: 'error', role: 'alert' }, problem.message, ' Trying again…'));
    setTimeout(start, 2000);
    return;
  }
  drawFoot();
  listen();
  listenSpace();
  window.addEventListener('hashchange', navigate);
  document.querySelector('.skip').addEventListener('click', (event) => {
    event.preventDefault();
    main.focus();
  });
  menu.addEventListener('click', () => openMenu(!document.body.classList.contains('menu')));
  setInterval(() => document.hidden || tick(), 1000);
  navigate(true);
}

start();
