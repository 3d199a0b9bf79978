// SPDX-License-Identifier: MIT
// A timeline on which a timer is dragged to another time. It is a slider, so the keyboard moves the timer as well.

import { button, div, h } from './dom.js';
import { now } from './state.js';
import { local, relative, utc } from './time.js';

const RANGES = [['1 hour', 3600000], ['1 day', 86400000], ['1 week', 604800000], ['1 month', 2592000000], ['1 year', 31536000000], ['10 years', 315360000000]];
const STEPS = 240;

// timeline({due, onMove(ms)}) -> {el, set(ms)}.
export function timeline({ due, onMove }) {
  let at = due;
  let range = RANGES.find(([, ms]) => due - now() <= ms * 0.85)?.[1] ?? RANGES.at(-1)[1];
  const knob = h('div', { class: 'knob', role: 'slider', tabindex: 0, 'aria-label': 'Due time', 'aria-valuemin': 0, 'aria-valuemax': STEPS });
  const ghost = div('ghost');
  const from = h('span', {}, 'now');
  const to = h('span', {});
  const track = div('track', div('rail'), ghost, knob);
  const choices = RANGES.map(([label, ms]) => button(label, () => {
    range = ms;
    draw();
  }, 'tab'));

  const place = (ms) => `${Math.min(Math.max((ms - now()) / range, 0), 1) * 100}%`;

  function draw() {
    knob.style.insetInlineStart = place(at);
    ghost.style.insetInlineStart = place(due);
    ghost.hidden = at === due;
    to.textContent = local(now() + range).slice(0, 16);
    choices.forEach((choice, i) => choice.setAttribute('aria-pressed', String(RANGES[i][1] === range)));
    knob.setAttribute('aria-valuenow', Math.round(Math.min(Math.max((at - now()) / range, 0), 1) * STEPS));
    knob.setAttribute('aria-valuetext', `${local(at)}, ${relative(at)}`);
    knob.title = utc(at);
  }

  // Dragged times are round: nobody means 17:03:41.
  function move(ms) {
    const grain = [60000, 300000, 900000, 3600000, 86400000].findLast((size) => size <= range / STEPS) ?? 1000;
    at = Math.max(Math.round(ms / grain) * grain, now());
    draw();
    onMove(at);
  }

  const drag = (event) => {
    const box = track.getBoundingClientRect();
    move(now() + ((event.clientX - box.left) / box.width) * range);
  };
  track.addEventListener('pointerdown', (event) => {
    track.setPointerCapture(event.pointerId);
    track.addEventListener('pointermove', drag);
    knob.focus();
    drag(event);
    event.preventDefault();
  });
  const end = () => track.removeEventListener('pointermove', drag);
  track.addEventListener('pointerup', end);
  track.addEventListener('pointercancel', end);
  knob.addEventListener('keydown', (event) => {
    const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 }[event.key];
    if (!steps) return;
    event.preventDefault();
    move(at + (steps * range) / STEPS);
  });
  draw();
  return {
    el: div('timeline', h('div', { class: 'row tabs', role: 'group', 'aria-label': 'Span of the timeline' }, choices), track, div('ends muted', from, to)),
    set(ms, origin) {
      at = ms;
      if (origin !== undefined) due = origin;
      draw();
    },
    draw,
  };
}
