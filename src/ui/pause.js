// SPDX-License-Identifier: MIT
// Pausing and resuming, which work the same for namespaces and hosts.

import { post } from './api.js';
import { ask, toast } from './dialog.js';
import { button, field, h, iso, p, pill, select } from './dom.js';
import { fromInput, local } from './time.js';

export function pausedPill(paused) {
  if (!paused) return null;
  const el = pill('paused', 'warn');
  el.title = [paused.since && `since ${local(Date.parse(paused.since))}`, paused.until && `until ${local(Date.parse(paused.until))}`, paused.reason && `reason: ${iso(paused.reason)}`].filter(Boolean).join(', ');
  return el;
}

function askPause(where, what) {
  const reason = h('input', { type: 'text', maxlength: 255 });
  const until = h('input', { type: 'datetime-local', step: 1 });
  return ask({
    title: `Pause ${iso(what)}?`, action: 'Pause',
    body: [p('Nothing begins while it is paused. Due timers wait.'), field('Reason (optional)', reason), field('Until (optional)', until)],
    act: () => post(`${where}/pause`, { ...(reason.value && { reason: reason.value }), ...(until.value && { until: fromInput(until.value) }) }),
  });
}

function askResume(where, what) {
  const missed = select([['fire', 'fire them, in order'], ['skip', 'skip them']], 'fire');
  return ask({
    title: `Resume ${iso(what)}?`, action: 'Resume', body: field('Timers that became due during the pause', missed), act: () => post(`${where}/resume`, { missed: missed.value }),
  });
}

export const pauseButton = (where, what, paused, reload, kind = '') => button(paused ? 'Resume…' : 'Pause…', async () => {
  const done = await (paused ? askResume : askPause)(where, what);
  if (!done) return;
  toast(paused ? 'Resumed.' : 'Paused.');
  reload();
}, kind);
