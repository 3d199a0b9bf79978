// SPDX-License-Identifier: MIT
// Charts in SVG. Each series is one path, whatever the number of bars, so drawing again is cheap. The readout above a chart
// follows the pointer, and the arrow keys when the chart has the focus.

import { brief, h, s, text } from './dom.js';

const LEFT = 44;
const BOTTOM = 18;
const TOP = 8;

function niceMax(max) {
  if (max <= 10) return Math.max(4, 2 * Math.ceil(max / 2)); // half of it has no fraction
  const power = 10 ** Math.floor(Math.log10(max));
  return [1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10].map((n) => n * power).find((n) => n >= max);
}

// The frame that all charts share. draw(layer, data, width, step) fills it; height is in sixteenths of a rem.
// Returns {el, say(text), set({values: [[…] per series or row], ticks: [{i, label}], describe(i)})}; describe is the readout of
// column i.
function frame({ title, height, legend = [], draw, summary }) {
  const readout = h('output', { class: 'readout', 'aria-live': 'polite' });
  const svg = s('svg', { role: 'img', tabindex: 0, class: 'chart' });
  const el = h('figure', {}, h('figcaption', {}, h('span', { class: 'title' }, title),
    h('span', { class: 'legend' }, legend.map(([label, kind]) => h('span', { class: `key ${kind}` }, label))), readout), svg);
  const cursor = s('rect', { class: 'cursor', y: TOP, height: height - TOP - BOTTOM, hidden: '' });
  const layer = s('g', {});
  svg.append(cursor, layer);
  svg.style.height = `${height / 16}rem`;
  let data = { values: [[]], ticks: [] };
  let at = -1;
  let width = 0; // in units of a sixteenth of a rem, so that text grows with the page's
  let unit = 1; // pixels

  const columns = () => data.values[0].length;
  const step = () => (width - LEFT) / Math.max(columns(), 1);
  const point = (i) => {
    at = i >= 0 && i < columns() ? i : -1;
    cursor.toggleAttribute('hidden', at < 0);
    cursor.setAttribute('x', LEFT + at * step());
    cursor.setAttribute('width', Math.max(step(), 1));
    text(readout, at < 0 ? '' : data.describe(at));
  };
  const redraw = () => {
    if (width < LEFT + 20) return;
    layer.replaceChildren();
    draw(layer, data, width, step());
    axis(layer, data.ticks, width, height, step());
    point(at);
  };
  svg.addEventListener('pointermove', (event) => point(Math.floor((event.offsetX / unit - LEFT) / step())));
  for (const type of ['pointerleave', 'blur']) svg.addEventListener(type, () => point(-1));
  svg.addEventListener('keydown', (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move) return;
    event.preventDefault();
    point(at < 0 ? (move > 0 ? 0 : columns() - 1) : Math.min(Math.max(at + move, 0), columns() - 1));
  });
  new ResizeObserver(([entry]) => {
    unit = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
    width = Math.floor(entry.contentRect.width / unit);
    svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    redraw();
  }).observe(el);
  return {
    el,
    say: (words) => text(readout, words),
    set(next) {
      data = next;
      svg.setAttribute('aria-label', `${title}. ${summary(data.values)}. Use the arrow keys to read the columns.`);
      redraw();
    },
  };
}

function axis(layer, ticks, width, height, stepWidth) {
  let free = 0;
  for (const { i, label } of ticks) {
    const x = LEFT + i * stepWidth;
    const half = label.length * 3.4;
    if (x - half < free || x + half > width + 4) continue;
    free = x + half + 8;
    layer.append(s('line', { x1: x, x2: x, y1: height - BOTTOM, y2: height - BOTTOM + 4, class: 'grid' }),
      s('text', { x, y: height - 3, 'text-anchor': 'middle' }, label));
  }
}

const level = (width, y) => s('line', { x1: LEFT, x2: width, y1: y, y2: y, class: 'grid' });
const mark = (y, label) => s('text', { x: LEFT - 6, y, 'text-anchor': 'end' }, label);

// Stacked bars. series: [[name, class]].
export function bars({ title, series, summary }) {
  const height = 150;
  const plot = height - TOP - BOTTOM;
  return frame({
    title, height, legend: series, summary,
    draw(layer, { values }, width, stepWidth) {
      const gap = stepWidth > 4 ? Math.min(stepWidth * 0.2, 3) : 0;
      const top = niceMax(Math.max(...values[0].map((_, i) => values.reduce((sum, list) => sum + list[i], 0)), 0));
      for (const value of [0, top / 2, top]) {
        const y = height - BOTTOM - (value / top) * plot;
        layer.append(level(width, y), mark(y + 3.5, brief(value)));
      }
      const under = values[0].map(() => 0);
      values.forEach((list, k) => {
        let d = '';
        list.forEach((value, i) => {
          if (value <= 0) return;
          const y = height - BOTTOM - (under[i] / top) * plot;
          const tall = Math.max((value / top) * plot, 1);
          d += `M${(LEFT + i * stepWidth + gap / 2).toFixed(2)} ${y.toFixed(2)}v${(-tall).toFixed(2)}h${Math.max(stepWidth - gap, 0.8).toFixed(2)}v${tall.toFixed(2)}z`;
          under[i] += value;
        });
        if (d) layer.append(s('path', { d, class: `bar ${series[k][1]}` }));
      });
    },
  });
}

const LEVELS = 6;

// A heat map. rows: labels, the first at the bottom.
export function heat({ title, rows, summary }) {
  const height = TOP + BOTTOM + rows.length * 13;
  return frame({
    title, height, summary,
    draw(layer, { values }, width, stepWidth) {
      const max = Math.max(...values.flat(), 1);
      const wide = (stepWidth > 4 ? stepWidth - 0.5 : stepWidth + 0.1).toFixed(2);
      const paths = new Array(LEVELS).fill('');
      values.forEach((list, r) => {
        const y = height - BOTTOM - (r + 1) * 13;
        if (r % 2 === 0) layer.append(mark(y + 10, rows[r]));
        list.forEach((value, i) => {
          if (value <= 0) return;
          const degree = Math.min(Math.floor((Math.log(1 + value) / Math.log(1 + max)) * LEVELS), LEVELS - 1);
          paths[degree] += `M${(LEFT + i * stepWidth).toFixed(2)} ${y}h${wide}v12h-${wide}z`;
        });
      });
      layer.append(level(width, height - BOTTOM));
      paths.forEach((d, degree) => d && layer.append(s('path', { d, class: `heat heat${degree}` })));
    },
  });
}

// The next seven days of a schedule: a mark per occurrence, a line per midnight, a diamond where clocks change.
export function strip({ from, days = 7, marks, more, changes, label }) {
  const width = 280;
  const height = 26;
  const end = from + days * 86400000;
  const x = (ms) => ((ms - from) / (end - from)) * width;
  const svg = s('svg', { viewBox: `0 0 ${width} ${height}`, class: 'strip', role: 'img', 'aria-label': label, preserveAspectRatio: 'none' });
  const midnight = new Date(from);
  midnight.setHours(24, 0, 0, 0);
  for (; midnight.getTime() < end; midnight.setDate(midnight.getDate() + 1)) {
    svg.append(s('line', { x1: x(midnight.getTime()), x2: x(midnight.getTime()), y1: 0, y2: height, class: 'grid' }));
  }
  const inside = marks.filter((ms) => ms >= from && ms < end);
  const d = inside.map((ms) => `M${x(ms).toFixed(1)} 7v12`).join('');
  if (d) svg.append(s('path', { d, class: 'mark' }));
  if (more && inside.length > 0) svg.append(s('rect', { x: x(inside.at(-1)), y: 7, width: width - x(inside.at(-1)), height: 12, class: 'band' }));
  for (const { at, label: shift } of changes) {
    const cx = x(at);
    svg.append(s('path', { d: `M${cx} 0l4 5l-4 5l-4 -5z`, class: 'shift' }, s('title', {}, `Clocks change: ${shift}`)));
  }
  return svg;
}

// A small bar of parts: [[value, class]].
export function parts(list, label) {
  const total = list.reduce((sum, [value]) => sum + value, 0);
  const svg = s('svg', { viewBox: '0 0 100 8', class: 'parts', ...(label ? { role: 'img', 'aria-label': label } : { 'aria-hidden': 'true' }), preserveAspectRatio: 'none' });
  let x = 0;
  for (const [value, kind] of list) {
    const width = total > 0 ? (value / total) * 100 : 0;
    if (width > 0) svg.append(s('rect', { x, y: 0, width, height: 8, class: `bar ${kind}` }));
    x += width;
  }
  return svg;
}
