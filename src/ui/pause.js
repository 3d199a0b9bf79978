// SPDX-License-Identifier: MIT
// Pausing and resuming, which work the same for namespaces and hosts.

import { path, post } from './api.js';
import { ask, toast } from './dialog.js';
import { button, field, h, iso, name, p, pill, select } from './dom.js';
import { fromInput, local } from './time.js';

export function pausedPill(paused) {
  if (!paused) return null;
  const el = pill('paused', 'warn');
  el.title = `since ${local(Date.parse(paused.since))}${paused.until ? `, until ${local(Date.parse(paused.until))}` : ''}`;
  return [' ', el, ' ', paused.reason && name(paused.reason, 'muted')];
}

function askPause(where, what) {
  const reason = h('input', { type: 'text', maxlength: 255 });
  const until = h('input', { type: 'datetime-local', step: 1 });
  return ask({
    title: `Pause ${iso(what)}?`, action: 'Pause',
    body: [p('Nothing begins while it is paused. Due timers wait.'), field('Reason (optional)', reason), field('Until (optional)', until)],
    act: () => post(`${path(...where)}/pause`, { ...(reason.value && { reason: reason.value }), ...(until.value && { until: fromInput(until.value) }) }),
  });
}

function askResume(where, what) {
  const missed = select([['fire', 'fire them, in order'], ['skip', 'skip them']], 'fire');
  return ask({
    title: `Resume ${iso(what)}?`, action: 'Resume', body: field('Timers that became due during the pause', missed), act: () => post(`${path(...where)}/resume`, { missed: missed.value }),
  });
}

// where: parts of the path, such as namespaces, NAME.
export const pauseButton = (where, paused, reload, kind = '') => button(paused ? 'Resume…' : 'Pause…', async () => {
  const done = await (paused ? askResume : askPause)(where, where[1]);
  if (!done) return;
  toast(paused ? 'Resumed.' : 'Paused.');
  reload();
}, kind);
