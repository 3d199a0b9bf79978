// SPDX-License-Identifier: MIT
// The test clock: advance it, and watch what happens.

import { get, path, post } from './api.js';
import { attempt, toast } from './dialog.js';
import { button, div, field, h, h1, h2, plural, text } from './dom.js';
import { feed } from './page-live.js';
import { can, now, setClock, state } from './state.js';
import { fromInput, local, tick, toInput, utc } from './time.js';

const STEPS = ['1s', '1m', '1h', '1d', '1w', '30d'];

export async function show(view, route, page) {
  const clock = div('countdown');
  const universal = h('p', { class: 'muted' });
  const draw = () => {
    text(clock, local(now(), { millis: true }));
    text(universal, utc(now()));
  };
  const load = async () => {
    const answer = await get(path('clock'));
    state.test = answer.test;
    setClock(answer.now);
    draw();
  };
  await load();
  if (!state.test) {
    view.append(h1('Test clock'), h('p', { class: 'empty' }, 'This server runs on real time. Start a server with --test-clock to advance its clock.'));
    return;
  }
  const to = h('input', { type: 'datetime-local', step: 1, value: toInput(new Date(now()).toISOString()) });
  const by = h('input', { type: 'text', placeholder: '1h30m', autocomplete: 'off', 'data-search': true });
  const buttons = [];
  const turn = async (body) => {
    buttons.forEach((one) => (one.disabled = true));
    const answer = await attempt(() => post(path('clock'), body));
    buttons.forEach((one) => (one.disabled = false));
    if (!answer) return;
    setClock(answer.now);
    draw();
    tick();
    to.value = toInput(answer.now);
    toast(`The clock is at ${local(Date.parse(answer.now))}. ${plural(answer.fired, 'timer')} fired.`);
  };
  buttons.push(...STEPS.map((advance) => button(`+${advance}`, () => turn({ advance }))),
    button('Advance', () => turn({ advance: by.value.replace(/\s/g, '') }), 'primary'), button('Go there', () => turn({ to: fromInput(to.value) })));
  const events = feed({});
  view.append(h1('Test clock'), clock, universal);
  if (can('admin')) {
    view.append(div('actions start', buttons.slice(0, STEPS.length)),
      div('row fields', field('Advance by', by), buttons.at(-2), field('or to', to), buttons.at(-1)));
  }
  view.append(h2('Events'), events.el);
  page.follow('', draw, load);
  return { stop: events.close };
}
